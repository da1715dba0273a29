"""Conditions that tell the truth: when a status last changed, and for which generation it was found out.

Pure. `lastTransitionTime` moves when and only when `status` does; `observedGeneration` is the generation that
was looked at, never the one that happens to be current.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Truth = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One finding, before it is dated."""

    type: str
    status: Truth
    reason: str
    message: str = ""


def merge(
    known: Sequence[dict[str, Any]], findings: Iterable[Condition], *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """Return the conditions with the findings put in; a status that stays keeps its date, others stay."""
    merged = {condition["type"]: dict(condition) for condition in known}
    for finding in findings:
        before = merged.get(finding.type, {})
        same = before.get("status") == finding.status and "lastTransitionTime" in before
        merged[finding.type] = {
            "type": finding.type,
            "status": finding.status,
            "reason": finding.reason,
            "message": finding.message,
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"] if same else timestamp(now),
        }
    return list(merged.values())


def truth_of(document: dict[str, Any], type_: str) -> Truth:
    """Return the status of a condition of a document; Unknown when it is absent."""
    for condition in document.get("status", {}).get("conditions") or []:
        if condition.get("type") == type_:
            status: Truth = condition["status"]
            return status
    return "Unknown"


def is_current(document: dict[str, Any], type_: str) -> bool:
    """Tell whether a condition is True for the generation that the document has now."""
    generation = document["metadata"].get("generation", 0)
    return any(
        condition.get("type") == type_
        and condition.get("status") == "True"
        and condition.get("observedGeneration", generation) == generation
        for condition in document.get("status", {}).get("conditions") or []
    )


def timestamp(now: datetime) -> str:
    """Return the time as Kubernetes writes it, in whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
