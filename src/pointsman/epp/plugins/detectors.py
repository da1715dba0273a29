"""Saturation detectors: how full the pool is, for admission; named in a profile they filter out whoever is full.

By what servers say, a filter never leaves nobody: when all seem full or are unknown, all stay, because a slow answer
beats none. By our own account it may: a limit on concurrency is a promise.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from pointsman.core.durations import format_duration, parse_duration
from pointsman.core.errors import UserError
from pointsman.epp.plugins.api import Context, Endpoints, Parameters
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Request


def read_duration(value: object) -> object:
    """Return seconds for a Go duration; leave anything else to the type's own check."""
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except UserError as error:
        raise ValueError(str(error)) from None


Seconds = Annotated[float, BeforeValidator(read_duration), PlainSerializer(format_duration)]
"""A Go duration in a file, seconds in the program."""


class UtilizationParameters(Parameters):
    """What `utilization-detector` takes."""

    queue_depth_threshold: int = Field(default=5, ge=1)
    kv_cache_util_threshold: float = Field(default=0.8, gt=0, le=1)
    metrics_staleness_threshold: Annotated[Seconds, Field(gt=0)] = 0.2
    headroom: float = Field(default=0.0, ge=0)
    staleness_policy: Literal["saturated", "ignore"] = Field(
        default="saturated", description="What stale metrics count as: full, or nothing at all."
    )


class UtilizationDetector:
    """Full by what servers say: mean of max(queue / threshold, kv / threshold); stale or unknown is 1, or left out."""

    def __init__(self, parameters: UtilizationParameters, *, context: Context) -> None:
        self._parameters = parameters
        self._clock = context.clock

    def saturation(self, endpoints: Endpoints) -> float:
        """Return the mean over the endpoints; a pool of none is full."""
        if not endpoints:
            return 1.0
        now, limits = self._clock(), self._parameters
        if limits.staleness_policy == "ignore":
            fresh = [each for each in endpoints if each.metrics.age(now) <= limits.metrics_staleness_threshold]
            endpoints = fresh or endpoints
        return sum(self._load(endpoint, now) for endpoint in endpoints) / len(endpoints)

    def _load(self, endpoint: EndpointView, now: float) -> float:
        limits = self._parameters
        if endpoint.metrics.age(now) > limits.metrics_staleness_threshold:
            return 1.0
        queue = endpoint.waiting / limits.queue_depth_threshold
        return max(queue, endpoint.kv_usage / limits.kv_cache_util_threshold)

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        """Drop who is stale, or at or above a threshold plus its headroom."""
        now, limits = self._clock(), self._parameters
        queue = limits.queue_depth_threshold * (1 + limits.headroom)
        kv = limits.kv_cache_util_threshold * (1 + limits.headroom)
        kept = [
            endpoint
            for endpoint in endpoints
            if endpoint.metrics.age(now) <= limits.metrics_staleness_threshold
            and endpoint.waiting < queue
            and endpoint.kv_usage < kv
        ]
        return kept or endpoints


class ConcurrencyParameters(Parameters):
    """What `concurrency-detector` takes."""

    or_default: ClassVar[frozenset[str]] = frozenset(
        (
            "max_concurrency",
            "max_token_concurrency",
        )
    )

    concurrency_mode: Literal["requests", "tokens", "hybrid"] = "requests"
    max_concurrency: int = Field(default=100, gt=0)
    max_token_concurrency: int = Field(default=1_000_000, gt=0)
    headroom: float = Field(default=0.0, ge=0)


class ConcurrencyDetector:
    """Full by our own account: what is in flight, over the capacity of all endpoints."""

    def __init__(self, parameters: ConcurrencyParameters) -> None:
        self._parameters = parameters

    def saturation(self, endpoints: Endpoints) -> float:
        """Return the pool's load over its capacity; a pool of none is full."""
        if not endpoints:
            return 1.0
        return sum(self._loads(endpoints)) / len(endpoints)

    def _loads(self, endpoints: Endpoints) -> Sequence[float]:
        limits = self._parameters
        if limits.concurrency_mode == "requests":
            return [endpoint.inflight_requests / limits.max_concurrency for endpoint in endpoints]
        if limits.concurrency_mode == "tokens":
            return [endpoint.inflight_tokens / limits.max_token_concurrency for endpoint in endpoints]
        return [
            max(
                endpoint.inflight_requests / limits.max_concurrency,
                endpoint.inflight_tokens / limits.max_token_concurrency,
            )
            for endpoint in endpoints
        ]

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        """Drop who is at or above the capacity plus its headroom."""
        full = 1 + self._parameters.headroom
        loads = self._loads(endpoints)
        return [endpoint for endpoint, load in zip(endpoints, loads, strict=True) if load < full - 1e-12]
