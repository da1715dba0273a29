"""Findings for people, as a tree with the first cause last, where the eye ends; for programs; and as an exit code."""

from collections.abc import Iterator, Sequence
from typing import Any

from pointsman.doctor.checks import ORDER, Finding, first_cause

_MARKS = {"ok": "✓", "skipped": "-", "warning": "!", "failed": "✗"}
_CODES = {"ok": 0, "skipped": 0, "warning": 3, "failed": 1}  # 2 is a wrong command line


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the report, line by line."""
    for finding in findings:
        yield f"{_MARKS[finding.verdict]} {finding.check}: {finding.evidence}"
        if finding.cause:
            yield f"  ├─ cause: {finding.cause}"
            yield f"  └─ fix:   {finding.fix}"
    cause = first_cause(list(findings))
    yield "" if cause else "all is well"
    if cause:
        yield f"first cause: {cause.check}: {cause.cause} ({cause.evidence})"
        yield f"try:         {cause.fix}"


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report as JSON has it."""
    cause = first_cause(list(findings))
    return {
        "verdict": worst(findings),
        "firstCause": cause.check if cause else None,
        "checks": [
            {
                "check": finding.check,
                "verdict": finding.verdict,
                "evidence": finding.evidence,
                "cause": finding.cause,
                "fix": finding.fix,
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
