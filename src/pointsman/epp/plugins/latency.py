"""Plugins that go by predicted latencies: how far each endpoint is from the latencies that the client asked for.

They consume `LatencyPredictions`, which any producer may publish; where a file names none, `predicted-latency-producer`
is added. Where nothing is predicted (of a request without a prompt) the filter drops nobody, the admitter turns nobody
away, and the scorer goes by load and cached prefix.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from pointsman.epp.plugins.affinity import APPROX_PRODUCER, PREDICTOR
from pointsman.epp.plugins.api import (
    LATENCY_PREDICTIONS,
    PREFIX_MATCHES,
    Context,
    Endpoints,
    Headroom,
    Key,
    LatencyPredictions,
    Parameters,
    PrefixMatches,
    Slo,
)
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Request

_SAME_MS = 1e-9  # values that differ by less are equal
_COLD_KV_USAGE = 0.02


class _Predicted:
    """What the three share: where predictions come from."""

    def __init__(self, producer: str) -> None:
        self._predictions = Key[LatencyPredictions](LATENCY_PREDICTIONS, producer=producer)
        self.consumes: Sequence[Key[Any]] = (self._predictions,)

    def _headrooms(self, request: Request, endpoints: Endpoints) -> list[Headroom | None]:
        """Return what each endpoint has; nothing at all when no endpoint has a prediction."""
        predictions = self._predictions.of(request)
        if predictions is None:
            return []
        slo = Slo.of(request)
        rooms = [predictions.headroom(endpoint.target, slo=slo) for endpoint in endpoints]
        return rooms if any(room is not None for room in rooms) else []


class HeadroomTierParameters(Parameters):
    """What `slo-headroom-tier-filter` takes."""

    epsilon_explore_neg: float = Field(default=0.01, ge=0, le=1)
    latency_prediction_info_producer_name: str = PREDICTOR


class HeadroomTierFilter(_Predicted):
    """Endpoints predicted to meet both latencies; now and then the others, so that they can recover."""

    def __init__(self, parameters: HeadroomTierParameters, *, context: Context) -> None:
        super().__init__(parameters.latency_prediction_info_producer_name)
        self._explore = parameters.epsilon_explore_neg
        self._rng = context.rng

    def filter(self, request: Request, endpoints: Endpoints) -> Endpoints:
        """Keep one tier; an endpoint without a prediction is not known to meet anything."""
        rooms = self._headrooms(request, endpoints)
        if not rooms:
            return endpoints
        tiers: dict[bool, list[EndpointView]] = {True: [], False: []}
        for endpoint, room in zip(endpoints, rooms, strict=True):
            tiers[room is not None and room.enough].append(endpoint)
        if not tiers[True] or not tiers[False]:
            return endpoints
        return tiers[self._rng.random() >= self._explore]


class LatencyScorerParameters(Parameters):
    """What `latency-scorer` takes."""

    ttft_weight: float = Field(default=0.8, ge=0)
    tpot_weight: float = Field(default=0.2, ge=0)
    headroom_selection_strategy: Literal["least", "most"] = "least"
    composite_kv_weight: float = Field(default=1, ge=0, alias="compositeKVWeight")
    composite_queue_weight: float = Field(default=1, ge=0)
    composite_prefix_weight: float = Field(default=1, ge=0)
    latency_prediction_info_producer_name: str = PREDICTOR
    prefix_match_info_producer_name: str = APPROX_PRODUCER


class LatencyScorer(_Predicted):
    """Who meets the latencies with least (or most) to spare; when nobody does, the idle, then who misses least.
    Without predictions a mean of free KV cache, (max − waiting) / max and cached share of the prompt.
    """

    def __init__(self, parameters: LatencyScorerParameters) -> None:
        super().__init__(parameters.latency_prediction_info_producer_name)
        self._matches = Key[PrefixMatches](PREFIX_MATCHES, producer=parameters.prefix_match_info_producer_name)
        self.consumes = (*self.consumes, self._matches)
        self._least = parameters.headroom_selection_strategy == "least"
        self._weights = _shares(parameters.ttft_weight, parameters.tpot_weight)
        self._composite_weights = _shares(
            parameters.composite_kv_weight, parameters.composite_queue_weight, parameters.composite_prefix_weight
        )

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Score the best group by how far it is from the objectives; the others get 0."""
        rooms = self._headrooms(request, endpoints)
        if not rooms:
            return self._composite(request, endpoints)
        # Without a prediction an endpoint counts as exactly on its objectives, as in llm-d: it is tried and then known.
        known = [room or Headroom() for room in rooms]
        group = [at for at, room in enumerate(known) if room.enough]
        least = self._least
        if not group:
            group, least = _missing_least(known, endpoints), True
        scores = [0.0] * len(endpoints)
        for at, distance in zip(group, self._distances([known[at] for at in group]), strict=True):
            scores[at] = (int((1 - distance if least else distance) * 100) + 1) / 100
        return scores

    def _distances(self, rooms: Sequence[Headroom]) -> list[float]:
        """Return how far each is from its objectives, 0 for the nearest; what is equal for all has no say."""
        ttft = _normal([abs(room.ttft) for room in rooms])
        tpot = _normal([abs(room.tpot) for room in rooms])
        if ttft is None or tpot is None:
            return ttft or tpot or [0.5] * len(rooms)
        first, second = self._weights
        return [first * one + second * other for one, other in zip(ttft, tpot, strict=True)]

    def _composite(self, request: Request, endpoints: Endpoints) -> list[float]:
        by_kv, by_queue, by_prefix = self._composite_weights
        longest = max(endpoint.waiting for endpoint in endpoints)
        matches = self._matches.of(request)
        cached, total = (matches.blocks, matches.total) if matches is not None and matches.total else ({}, 1)
        scores = []
        for endpoint in endpoints:
            queue = (longest - endpoint.waiting) / longest if longest > 0 else 1.0
            prefix = cached.get(endpoint.target, 0) / total
            value = by_kv * (1 - endpoint.kv_usage) + by_queue * queue + by_prefix * prefix
            scores.append(math.floor(100 * value + 0.5) / 100)
        return scores


def _missing_least(rooms: Sequence[Headroom], endpoints: Endpoints) -> list[int]:
    """Return, where all miss something, the idle; else who misses only TPOT, else only TTFT, else both."""
    idle = [at for at, endpoint in enumerate(endpoints) if not endpoint.inflight_requests]
    if idle:
        return idle
    missed = [(room.ttft < 0, room.tpot < 0) for room in rooms]
    mildest = min(missed)
    return [at for at, each in enumerate(missed) if each == mildest]


def _normal(values: Sequence[float]) -> list[float] | None:
    """Return the values from 0 for the lowest to 1 for the highest; None when they are equal."""
    low, high = min(values), max(values)
    return None if high - low <= _SAME_MS else [(value - low) / (high - low) for value in values]


def _shares(*weights: float) -> tuple[float, ...]:
    """Return the weights as shares of 1; the first has all when there are none."""
    total = sum(weights)
    return tuple(weight / total for weight in weights) if total > 0 else (1.0, *(0.0 for _ in weights[1:]))


class LatencyAdmitterParameters(Parameters):
    """What `latency-slo-admitter` takes."""

    latency_prediction_info_producer_name: str = PREDICTOR


class LatencySloAdmitter(_Predicted):
    """Sheds requests of negative priority whose latencies nobody can meet, and nobody is idle or has an empty cache."""

    def __init__(self, parameters: LatencyAdmitterParameters) -> None:
        super().__init__(parameters.latency_prediction_info_producer_name)

    def admit(self, request: Request, endpoints: Endpoints) -> str:
        """Turn away only on the evidence of predictions; a latency that was not asked for cannot be missed."""
        if request.priority >= 0:
            return ""
        slo, rooms = Slo.of(request), self._headrooms(request, endpoints)
        if not rooms or not (slo.ttft_ms or slo.tpot_ms):
            return ""
        if any(not endpoint.inflight_requests or endpoint.kv_usage < _COLD_KV_USAGE for endpoint in endpoints):
            return ""
        if any(room is not None and _meets(room, slo=slo) for room in rooms):
            return ""
        return "no valid endpoint available to serve the request"


def _meets(room: Headroom, *, slo: Slo) -> bool:
    return (room.ttft >= 0 or not slo.ttft_ms) and (room.tpot >= 0 or not slo.tpot_ms)
