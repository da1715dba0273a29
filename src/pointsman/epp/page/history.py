"""The last fifteen minutes as points: rates, percentiles, shares, from the counters that `/metrics` shows. Pure.

A sample is what the counters say at one moment; a point is what happened between two of them. Percentiles are read from
the differences of buckets exactly as Prometheus' `histogram_quantile` does, so the page and a dashboard agree. Counters
never go back while a picker lives, and a picker that starts anew has a history of its own.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from pointsman.core.families import Cell
from pointsman.epp.metrics.picker import PickerMetrics

EVERY = 5.0  # seconds between two samples
KEPT = 180  # points: fifteen minutes
QUANTILES = (0.5, 0.9, 0.99)
_CELLS_AT_ONCE = 256


@dataclass(slots=True)
class Merged:
    """Distributions of many label sets as one."""

    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def add(self, cells: Sequence[Cell]) -> None:
        """Add so many."""
        counts = [cell.counts for cell in cells]
        if counts:
            self.counts = [sum(column) for column in zip(*counts, *([self.counts] if self.counts else ()), strict=True)]
            self.sum += sum(cell.sum for cell in cells)

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


@dataclass(slots=True, kw_only=True)
class Sample:
    """What the counters say at one moment."""

    at: float
    picked: int
    errors: float
    first_token: Merged = field(default_factory=Merged)
    duration: Merged = field(default_factory=Merged)
    index: Merged = field(default_factory=Merged)  # shares of prompts that the picker's own index had
    cached: Merged = field(default_factory=Merged)  # prompt tokens that model servers say they had …
    prompt: Merged = field(default_factory=Merged)  # … of so many


class Point(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What happened in the seconds before `at`; None where nothing did."""

    at: float
    rate: float  # picks a second
    errors: float  # a second
    first_token: tuple[float | None, ...]  # seconds, by QUANTILES
    duration: tuple[float | None, ...]
    expected: float | None  # share of prompts that the index found at the endpoint picked
    cached: float | None  # share of prompt tokens that model servers had


def fill(sample: Sample, metrics: PickerMetrics) -> Iterator[None]:
    """Add the distributions little by little: between two steps others may have their turn."""
    for merged, family in (
        (sample.first_token, metrics.first_token),
        (sample.duration, metrics.duration),
        (sample.index, metrics.index_ratio),
        (sample.cached, metrics.cached_tokens),
        (sample.prompt, metrics.input_tokens),
    ):
        cells = list(family.cells.values())
        for start in range(0, len(cells), _CELLS_AT_ONCE):
            merged.add(cells[start : start + _CELLS_AT_ONCE])
            yield


def point(before: Sample, now: Sample, *, bounds: Sequence[float]) -> Point:
    """Return what happened between two samples."""
    seconds = max(now.at - before.at, 1e-9)
    return Point(
        at=round(now.at, 3),
        rate=round((now.picked - before.picked) / seconds, 3),
        errors=round((now.errors - before.errors) / seconds, 3),
        first_token=_quantiles(before.first_token, now.first_token, bounds=bounds),
        duration=_quantiles(before.duration, now.duration, bounds=bounds),
        expected=_ratio(now.index.sum - before.index.sum, now.index.count - before.index.count),
        cached=_ratio(now.cached.sum - before.cached.sum, now.prompt.sum - before.prompt.sum)
        if now.cached.count > before.cached.count
        else None,
    )


def quantile(counts: Sequence[int], *, bounds: Sequence[float], q: float) -> float | None:
    """Return a quantile of a distribution in buckets as Prometheus reads it: straight lines inside of a bucket."""
    total = sum(counts)
    if not total:
        return None
    rank, seen = q * total, 0
    for at, count in enumerate(counts):
        if count and seen + count >= rank:
            if at >= len(bounds):
                return bounds[-1]
            low = bounds[at - 1] if at else 0.0
            return low + (bounds[at] - low) * (rank - seen) / count
        seen += count
    return bounds[-1]


def _quantiles(before: Merged, now: Merged, *, bounds: Sequence[float]) -> tuple[float | None, ...]:
    old = before.counts or [0] * len(now.counts)
    counts = [new - was for new, was in zip(now.counts, old, strict=True)]
    return tuple([_round(quantile(counts, bounds=bounds, q=q)) for q in QUANTILES])


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole > 0 else None


class History:
    """The points of the last fifteen minutes."""

    def __init__(self, *, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._last: Sample | None = None
        self.points: deque[Point] = deque(maxlen=KEPT)

    def add(self, sample: Sample) -> Point | None:
        """Take a sample; return the point that it makes with the one before."""
        before, self._last = self._last, sample
        if before is None:
            return None
        made = point(before, sample, bounds=self._bounds)
        self.points.append(made)
        return made
