"""Scorers by load: who has room. Pure functions of the views, which already count every pick that was made."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pointsman.epp.plugins.api import INFLIGHT_LOAD, BareName, Endpoints, Key, Parameters, RequestCost
from pointsman.epp.request.request import Request

INFLIGHT_PRODUCER = "inflight-load-producer"


def least_is_best(values: Sequence[float]) -> list[float]:
    """Return 1 for the lowest, 0 for the highest, and in between in proportion; all 1 when all are equal."""
    low, high = min(values), max(values)
    if low == high:
        return [1.0] * len(values)
    span = high - low
    return [(high - value) / span for value in values]


class QueueScorer:
    """The shorter the queue, the better: (max − waiting) / (max − min), 1 for all when they are equal."""

    def score(self, _request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Compare the waiting requests."""
        return least_is_best([endpoint.waiting for endpoint in endpoints])


class RunningRequestsScorer:
    """The fewer requests run, the better: (max − running) / (max − min), 1 for all when they are equal."""

    def score(self, _request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Compare the running requests."""
        return least_is_best([endpoint.running for endpoint in endpoints])


class KvCacheUtilizationScorer:
    """The emptier the KV cache, the better: 1 − usage."""

    def score(self, _request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Return what is free."""
        return [1.0 - endpoint.kv_usage for endpoint in endpoints]


class LoadAwareParameters(Parameters):
    """What `load-aware-scorer` takes."""

    or_default: ClassVar[frozenset[str]] = frozenset(("threshold",))

    threshold: int = Field(default=128, gt=0)


class LoadAwareScorer:
    """Half of a score, less with a queue: 0.5 · (1 − min(waiting, threshold) / threshold)."""

    def __init__(self, parameters: LoadAwareParameters) -> None:
        self._threshold = parameters.threshold

    def score(self, _request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Compare each queue with the threshold."""
        limit = self._threshold
        return [0.5 * (1.0 - min(endpoint.waiting, limit) / limit) for endpoint in endpoints]


class ActiveRequestParameters(Parameters):
    """What `active-request-scorer` takes."""

    idle_threshold: int = Field(default=0, ge=0)
    max_busy_score: float = Field(default=1.0, ge=0, le=1)
    in_flight_load_producer_name: str = INFLIGHT_PRODUCER
    request_timeout: str = Field(default="", description="Deprecated, ignored: requests end when they end.")


class ActiveRequestScorer:
    """The fewer of our requests are in flight, the better: 1 when idle, else (max − n) / max · maxBusyScore."""

    def __init__(self, parameters: ActiveRequestParameters) -> None:
        self._idle = parameters.idle_threshold
        self._busy = parameters.max_busy_score
        self.consumes = (Key[RequestCost](INFLIGHT_LOAD, producer=parameters.in_flight_load_producer_name),)

    def score(self, _request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Compare with the busiest."""
        counts = [endpoint.inflight_requests for endpoint in endpoints]
        most, idle, busy = max(counts), self._idle, self._busy
        return [1.0 if count <= idle else (most - count) / most * busy for count in counts]


class TokenLoadParameters(Parameters):
    """What `token-load-scorer` takes."""

    or_default: ClassVar[frozenset[str]] = frozenset(("queue_threshold_tokens", "non_text_token_weight"))

    queue_threshold_tokens: int = Field(default=4_194_304, gt=0)
    in_flight_load_producer_name: str = INFLIGHT_PRODUCER
    non_text_token_weight: float = Field(
        default=1.0, gt=0, description="What a token of an image, video or sound counts."
    )


_NO_COST = RequestCost(prompt=0)


class TokenLoadScorer:
    """The fewer tokens are to be computed, with this request's, the better: 1 − min(tokens, threshold) / threshold."""

    def __init__(self, parameters: TokenLoadParameters) -> None:
        self._threshold = parameters.queue_threshold_tokens
        self._more = parameters.non_text_token_weight - 1.0
        self._cost = Key[RequestCost](INFLIGHT_LOAD, producer=parameters.in_flight_load_producer_name)
        self.consumes = (self._cost,)

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Compare each sum with the threshold."""
        limit = self._threshold
        cost = self._cost.of(request) or _NO_COST
        loads: Sequence[float] = [endpoint.inflight_tokens + cost.at(endpoint.target) for endpoint in endpoints]
        if self._more:
            media = [endpoint.inflight_media + cost.media_at(endpoint.target) for endpoint in endpoints]
            loads = [load + self._more * min(part, load) for load, part in zip(loads, media, strict=True)]
        return [1.0 if load <= 0 else 1.0 - min(load, limit) / limit for load in loads]


class FixedRange(Parameters):
    """Both ends of a scale."""

    min: float
    max: float

    @model_validator(mode="after")
    def _ordered(self) -> "FixedRange":
        if self.min >= self.max:
            raise ValueError("min must be below max")
        return self


class AdaptiveRange(Parameters):
    """The scale is from the lowest to the highest value that there is."""


class Normalization(Parameters):
    """How values become scores: one of the two; the adaptive range when neither is given."""

    fixed_range: FixedRange | None = None
    adaptive_range: AdaptiveRange | None = None

    @model_validator(mode="after")
    def _one(self) -> "Normalization":
        if self.fixed_range is not None and self.adaptive_range is not None:
            raise ValueError("give only one of fixedRange and adaptiveRange")
        return self


class LinearAlgorithm(Parameters):
    """A straight line from one end of the range to the other."""

    type: Literal["linear_lower_is_better", "linear_higher_is_better"]
    normalization: Normalization = Normalization()


class AttributeScorerParameters(Parameters):
    """What `endpoint-attribute-scorer` takes."""

    attribute_key: BareName
    producer: str = "core-metrics-extractor"
    algorithm: LinearAlgorithm


class EndpointAttributeScorer:
    """A custom metric on a scale."""

    def __init__(self, parameters: AttributeScorerParameters) -> None:
        self._key = parameters.attribute_key
        self._lower = parameters.algorithm.type == "linear_lower_is_better"
        self._range = parameters.algorithm.normalization.fixed_range

    def score(self, _request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Place each value on the scale; 0 where there is none."""
        values = [endpoint.attributes.get(self._key) for endpoint in endpoints]
        known = [value for value in values if value is not None]
        if not known:
            return [0.0] * len(values)
        low, high = (self._range.min, self._range.max) if self._range else (min(known), max(known))
        return [0.0 if value is None else self._place(value, low=low, high=high) for value in values]

    def _place(self, value: float, *, low: float, high: float) -> float:
        if low == high:
            return 1.0
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return 1.0 - share if self._lower else share
