"""What requests to a model cost of late, in little room however many they are: a digest of them for each epoch.

A digest is a list of means with their weights, in order: single values near the ends, where the dear ones are, and many
in one where they are alike (a t-digest). What scorers read is a picture of it, taken anew every few seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import Field

from pointsman.epp.plugins.api import Parameters
from pointsman.epp.plugins.detectors import Seconds

_BUFFER = 512  # values that are not yet in order


class CostParameters(Parameters):
    """What `model-cost-extractor` takes."""

    compression: float = Field(default=200.0, gt=0, le=10_000)
    flush_interval_duration: Seconds = 5.0
    window_duration: Seconds = 7200.0
    """Length of an epoch, after which a model begins anew; 0 never ends."""


@dataclass(frozen=True)
class Costs:
    """A digest as it was: means and weights in order."""

    centroids: Sequence[tuple[float, float]] = ()
    count: int = 0
    _means: dict[tuple[float, float], float] = field(default_factory=dict)

    def trimmed_mean(self, low: float, high: float) -> float:
        """Return the mean of what lies between two quantiles; it is worked out once."""
        part = (low, high)
        if part not in self._means:
            self._means[part] = self._trimmed_mean(low * self.count, high * self.count)
        return self._means[part]

    def _trimmed_mean(self, start: float, stop: float) -> float:
        total = weights = seen = 0.0
        for mean, weight in self.centroids:
            inside = min(seen + weight, stop) - max(seen, start)
            if inside > 0:
                total += mean * inside
                weights += inside
            seen += weight
        return total / weights if weights else 0.0


NOTHING = Costs()


class CostWindow:
    """What one model's requests cost."""

    def __init__(self, parameters: CostParameters) -> None:
        self._parameters = parameters
        self._centroids: list[tuple[float, float]] = []
        self._buffer: list[float] = []
        self._count = 0
        self._began: float | None = None
        self._shown = float("-inf")
        self.now = NOTHING

    def add(self, cost: float, *, at: float) -> None:
        """Take the cost of one request."""
        epoch = self._parameters.window_duration
        if self._began is None or (epoch and at - self._began >= epoch):
            self._began, self._centroids, self._buffer, self._count = at, [], [], 0
        self._buffer.append(cost)
        self._count += 1
        if len(self._buffer) >= _BUFFER:
            self._merge()
        if at - self._shown >= self._parameters.flush_interval_duration:
            self._merge()
            self._shown = at
            self.now = Costs(tuple(self._centroids), self._count)

    def _merge(self) -> None:
        """Put the values in order, and alike ones together: the more the farther they are from both ends."""
        merged: list[tuple[float, float]] = []
        done, total = 0.0, float(self._count)
        for mean, weight in sorted([*self._centroids, *((value, 1.0) for value in self._buffer)]):
            if merged:
                last, held = merged[-1]
                both = held + weight
                middle = (done - held + both / 2) / total
                if both <= 4 * total * middle * (1 - middle) / self._parameters.compression:
                    merged[-1] = (last + (mean - last) * weight / both, both)
                    done += weight
                    continue
            merged.append((mean, weight))
            done += weight
        self._centroids, self._buffer = merged, []
