"""What a check says: a verdict, what was seen, what follows from it, and a command to copy.

The order of a chain of checks is that of causes: what a later check complains of may be the consequence of what an
earlier one found, so the first that failed is the one to act on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pointsman.doctor.repairs import Repair

Verdict = Literal["ok", "skipped", "warning", "failed"]
ORDER: tuple[Verdict, ...] = ("ok", "skipped", "warning", "failed")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    verdict: Verdict
    evidence: str
    cause: str = ""
    fix: str = ""
    """A command to copy."""
    part: str = ""
    """Which part of the way the check is about; findings of one part are shown together."""
    repair: Repair | None = None
    """The change that `fix` makes, when it is one change of one object."""


def ok(check: str, evidence: str) -> Finding:
    """Return that a thing is as it should be."""
    return Finding(check=check, verdict="ok", evidence=evidence)


def skipped(check: str, why: str = "what it looks at is missing") -> Finding:
    """Return that a thing could not be looked at, or does not apply."""
    return Finding(check=check, verdict="skipped", evidence=why)


def failed(check: str, evidence: str, *, cause: str, fix: str | Repair) -> Finding:
    """Return that a thing is wrong, and what to do."""
    if isinstance(fix, Repair):
        return Finding(check=check, verdict="failed", evidence=evidence, cause=cause, fix=fix.command(), repair=fix)
    return Finding(check=check, verdict="failed", evidence=evidence, cause=cause, fix=fix)


def warned(check: str, evidence: str, *, cause: str, fix: str | Repair) -> Finding:
    """Return that a thing is doubtful, and what to do."""
    return replace(failed(check, evidence, cause=cause, fix=fix), verdict="warning")


def first_cause(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding to act on first; None when all is well."""
    for verdict in ("failed", "warning"):
        for finding in findings:
            if finding.verdict == verdict:
                return finding
    return None
