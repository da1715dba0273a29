"""Why a decision came out as it did.

A `Trace` is filled while a policy decides, if someone asked for one. It keeps references to what the plugins returned
and formats nothing, so that tracing every decision stays affordable; `to_json` does the arithmetic when a person reads.
`Meter` counts what each plugin costs over all decisions and is always on.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pointsman.core.logs import get_logger
from pointsman.epp.pool.view import EndpointView

log = get_logger(__name__)

BOUNDS_SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_BOUNDS = tuple(round(bound * 1e9) for bound in BOUNDS_SECONDS)
_FIRST = _BOUNDS[0]  # nearly every call is shorter than this


class Meter:
    """What one plugin has cost at one extension point."""

    __slots__ = ("buckets", "errors", "name", "nanos", "point", "type")

    def __init__(self, *, point: str, type_name: str, name: str) -> None:
        self.point = point
        self.type = type_name
        self.name = name
        self.nanos = 0
        self.errors = 0
        self.buckets = [0] * (len(_BOUNDS) + 1)

    @property
    def calls(self) -> int:
        """How often it was called."""
        return sum(self.buckets)

    def add(self, nanos: int) -> None:
        """Count one call."""
        self.nanos += nanos
        self.buckets[0 if nanos <= _FIRST else bisect_left(_BOUNDS, nanos)] += 1

    def failed(self, error: BaseException) -> None:
        """Count a failure, and log it the first, second, fourth … time."""
        self.errors += 1
        if self.errors & (self.errors - 1) == 0:
            log.warning("plugin failed", plugin=self.name, point=self.point, errors=self.errors, exc_info=error)


class Meters:
    """All meters; they outlive configurations, so counters never jump back."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, str, str], Meter] = {}

    def get(self, point: str, *, type_name: str, name: str) -> Meter:
        """Return the meter of a plugin at an extension point."""
        key = (point, type_name, name)
        if key not in self._meters:
            self._meters[key] = Meter(point=point, type_name=type_name, name=name)
        return self._meters[key]

    def __iter__(self) -> Iterator[Meter]:
        return iter(self._meters.values())


@dataclass(slots=True)
class DecisionStep:
    """One plugin's part in one decision."""

    point: str
    name: str
    nanos: int
    before: Sequence[EndpointView]
    answer: Any = None  # what was made of it: endpoints of a filter or picker, scores or None of a scorer
    weight: float = 1.0
    error: str = ""


@dataclass(slots=True)
class Trace:
    """All steps of one decision, by profile."""

    profiles: dict[str, list[DecisionStep]] = field(default_factory=dict)
    others: list[DecisionStep] = field(default_factory=list)  # producers, admitters, hooks

    def to_json(self) -> dict[str, Any]:
        """Return it as people and machines read it."""
        return {
            "profiles": {name: _profile(steps) for name, steps in self.profiles.items()},
            "plugins": [_time(step) for step in self.others],
        }


def _profile(steps: Sequence[DecisionStep]) -> dict[str, Any]:
    candidates: dict[str, dict[str, Any]] = {}
    for step in steps:
        for endpoint in step.before:
            candidates.setdefault(endpoint.target, {"address": endpoint.target})
        if step.point == "Filter":
            kept = {endpoint.target for endpoint in step.answer}
            for endpoint in step.before:
                if endpoint.target not in kept:
                    candidates[endpoint.target]["dropped_by"] = step.name
        elif step.point == "Scorer" and step.answer is not None:
            for endpoint, score in zip(step.before, step.answer, strict=True):
                candidates[endpoint.target].setdefault("scores", {})[step.name] = score
    return {
        "candidates": list(candidates.values()),
        "weights": {step.name: step.weight for step in steps if step.point == "Scorer"},
        "plugins": [_time(step) for step in steps],
    }


def _time(step: DecisionStep) -> dict[str, Any]:
    row = {"point": step.point, "plugin": step.name, "microseconds": step.nanos / 1000}
    return {**row, "error": step.error} if step.error else row
