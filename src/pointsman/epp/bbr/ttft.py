"""How long a model's first tokens took of late, and how many requests it had then: what its scorers predict from.

A short window of the newest observations gives percentiles and the requests in flight around them. The floor is what
a request takes when nobody is in its way: a low percentile over the low percentiles of many stretches of time, so that
it does not rise with the load of the last minutes. Of a full history the smallest and the largest go, not the oldest.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pydantic import Field

from pointsman.epp.plugins.api import Parameters
from pointsman.epp.plugins.detectors import Seconds


class TtftParameters(Parameters):
    """What `ttft-percentile-extractor` takes."""

    interval_duration: Seconds = 5.0
    window_size: int = Field(default=5000, ge=1, le=1_000_000)
    max_observation_age: Seconds = 180.0
    max_requests: int = Field(default=100, ge=1)
    min_requests: int = Field(default=10, ge=1)
    bucket_duration: Seconds = 60.0
    bucket_history_size: int = Field(default=1000, ge=2, le=100_000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ttft:
    """One model's figures, as they stood when they were last worked out; seconds."""

    p25: float = 0.0
    p50: float = 0.0
    inflight_at_p25: float = 0.0
    inflight_at_p50: float = 0.0
    floor: float = 0.0
    """0 while too few requests have been seen to believe it."""
    trusted: bool = False
    """Whether enough of late were seen to predict from."""


COLD = Ttft()


class TtftWindow:
    """The observations of one model."""

    def __init__(self, parameters: TtftParameters) -> None:
        self._parameters = parameters
        self._newest: deque[tuple[float, float, int]] = deque(
            maxlen=parameters.window_size
        )  # when, how long, in flight
        self._lows: list[float] = []  # of each stretch of time, in order of size
        self._bucket: list[float] = []
        self._bucket_began: float | None = None
        self._worked_out = float("-inf")
        self._count = 0
        self.now = COLD

    def add(self, seconds: float, *, inflight: int, at: float) -> None:
        """Take one observation: how long it took, and how many others were there when it was sent."""
        self._newest.append((at, seconds, inflight))
        self._count += 1
        self._into_bucket(seconds, at)
        if at - self._worked_out >= self._parameters.interval_duration:
            self._worked_out = at
            self.now = self._figures(at)

    def _into_bucket(self, seconds: float, at: float) -> None:
        if self._bucket_began is None:
            self._bucket_began = at
        elif at - self._bucket_began >= self._parameters.bucket_duration:
            self._close_bucket()
            self._bucket_began = at
        if len(self._bucket) < self._parameters.window_size:
            self._bucket.append(seconds)

    def _close_bucket(self) -> None:
        if len(self._lows) >= self._parameters.bucket_history_size:
            del self._lows[0], self._lows[-1]
        insort(self._lows, percentile(sorted(self._bucket), 0.10))
        self._bucket = []

    def _figures(self, at: float) -> Ttft:
        limit = at - self._parameters.max_observation_age
        recent = islice(reversed(self._newest), self._parameters.max_requests)
        window = sorted((seconds, inflight) for when, seconds, inflight in recent if when >= limit)
        times = [seconds for seconds, _ in window]
        known = self._count >= self._parameters.min_requests
        floor = (percentile(self._lows, 0.10) or percentile(times, 0.10)) if known else 0.0
        p50, at_p50 = percentile(times, 0.50), _inflight_around(window, 0.50)
        return Ttft(
            p25=percentile(times, 0.25),
            p50=p50,
            inflight_at_p25=_inflight_around(window, 0.25),
            inflight_at_p50=at_p50,
            floor=floor,
            trusted=len(window) >= self._parameters.min_requests and at_p50 > 0 and p50 > floor > 0,
        )


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return a percentile of numbers in order of size, between the two nearest; 0 of none."""
    if not ordered:
        return 0.0
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _inflight_around(window: Sequence[tuple[float, int]], part: float) -> float:
    """Return the mean number in flight of the observations within ten percent of a percentile."""
    if not window:
        return 0.0
    last = len(window) - 1
    band = window[max(0, int((part - 0.10) * last)) : min(last, int((part + 0.10) * last)) + 1]
    return sum(inflight for _, inflight in band) / len(band)
