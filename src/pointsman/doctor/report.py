"""Findings for people, as a tree with the first cause last, where the eye ends; for programs; and as an exit code."""

from collections.abc import Iterator, Sequence
from typing import Any

from pointsman.doctor.findings import ORDER, Finding, first_cause

_MARKS = {"ok": "✓", "skipped": "-", "warning": "!", "failed": "✗"}
_CODES = {"ok": 0, "skipped": 0, "warning": 3, "failed": 1}  # 2 is a wrong command line


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the report, line by line."""
    part = ""
    for finding in findings:
        if finding.part != part:
            part = finding.part
            yield part
        yield from _finding(finding, indent="  " if part else "")
    cause = first_cause(findings)
    yield "" if cause else "all is well"
    if cause:
        yield f"first cause: {cause.check}: {_plain(cause.cause)} ({_plain(cause.evidence)})"
        yield f"try:         {_plain(cause.fix)}"


def _finding(finding: Finding, *, indent: str) -> Iterator[str]:
    yield f"{indent}{_MARKS[finding.verdict]} {finding.check}: {_plain(finding.evidence)}"
    if finding.cause:
        yield f"{indent}  ├─ cause: {_plain(finding.cause)}"
        yield f"{indent}  └─ fix:   {_plain(finding.fix)}"


def _plain(text: str) -> str:
    """Return a text of which nothing moves the cursor: what others wrote into objects stands in it."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report as JSON has it."""
    cause = first_cause(findings)
    return {
        "verdict": worst(findings),
        "firstCause": cause.check if cause else None,
        "checks": [
            {
                "part": finding.part,
                "check": finding.check,
                "verdict": finding.verdict,
                "evidence": finding.evidence,
                "cause": finding.cause,
                "fix": finding.fix,
                "fixable": finding.repair is not None and finding.repair.safe,
            }
            for finding in findings
        ],
    }


def worst(findings: Sequence[Finding]) -> str:
    """Return the worst verdict."""
    return max((finding.verdict for finding in findings), key=ORDER.index, default="ok")


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 0 when all is well, 1 when something failed, 3 when there are warnings alone."""
    return _CODES[worst(findings)]
