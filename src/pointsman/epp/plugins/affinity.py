"""Scorers and filters by affinity: who already has what the request needs.

What they know comes from the views (loaded adapters, labels) or from a producer (cached prefixes); only `NoHitLru` and
the session plugins remember something of their own.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from pointsman.epp.plugins.api import (
    INFLIGHT_LOAD,
    LATENCY_PREDICTIONS,
    PREFIX_MATCHES,
    Context,
    Endpoints,
    HeaderChanges,
    Key,
    LatencyPredictions,
    Parameters,
    PrefixMatches,
    RequestCost,
    Results,
)
from pointsman.epp.plugins.scorers import INFLIGHT_PRODUCER
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Request

APPROX_PRODUCER = "approx-prefix-cache-producer"
PREDICTOR = "predicted-latency-producer"


class LoraAffinityScorer:
    """Who has the adapter loaded (1); who has a free place for it (0.8); who is about to load it (0.6); others 0."""

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Compare what each server says of its adapters with the target model."""
        model = request.target_model or request.model
        return [_lora(endpoint, model) for endpoint in endpoints]


def _lora(endpoint: EndpointView, model: str) -> float:
    lora = endpoint.metrics.lora
    if model in lora.running:
        return 1.0
    if len(lora.running) + len(lora.waiting) < lora.max_active:
        return 0.8
    return 0.6 if model in lora.waiting else 0.0


class PrefixCacheParameters(Parameters):
    """What `prefix-cache-scorer` takes."""

    prefix_match_info_producer_name: str = APPROX_PRODUCER
    match_length_weight: float = Field(default=0.0, ge=0, le=1)
    match_length_scale_tokens: int = Field(default=8192, gt=0)
    # Of the time when this scorer had an index of its own; files that are still around have them.
    auto_tune: bool | None = Field(default=None, description="Deprecated: of approx-prefix-cache-producer.")
    block_size: int | None = Field(default=None, description="Deprecated: of approx-prefix-cache-producer.")
    hash_block_size: int | None = Field(default=None, description="Deprecated: of approx-prefix-cache-producer.")
    max_prefix_blocks_to_match: int | None = Field(
        default=None, description="Deprecated: of approx-prefix-cache-producer."
    )
    lru_capacity_per_server: int | None = Field(
        default=None, description="Deprecated: of approx-prefix-cache-producer."
    )


class PrefixCacheScorer:
    """The more of the prompt is cached, the better: w · min(1, match · block / scale)² + (1 − w) · match / total."""

    def __init__(self, parameters: PrefixCacheParameters) -> None:
        self._weight = parameters.match_length_weight
        self._scale = parameters.match_length_scale_tokens
        self._matches = Key[PrefixMatches](PREFIX_MATCHES, producer=parameters.prefix_match_info_producer_name)
        self.consumes = (self._matches,)

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Return the matched share; 0 for everyone when nothing is known."""
        matches = self._matches.of(request)
        if matches is None or not matches.blocks or not matches.total:
            return [0.0] * len(endpoints)
        found, total, weight = matches.blocks.get, matches.total, self._weight
        if not weight:
            return [found(endpoint.target, 0) / total for endpoint in endpoints]
        unit = matches.block_tokens / self._scale
        blocks = [found(endpoint.target, 0) for endpoint in endpoints]
        return [weight * min(1.0, count * unit) ** 2 + (1 - weight) * count / total for count in blocks]


class NoHitLruParameters(Parameters):
    """What `no-hit-lru-scorer` takes."""

    or_default: ClassVar[frozenset[str]] = frozenset(("lru_size",))

    lru_size: int = Field(default=1024, gt=0)
    prefix_match_info_producer_name: str = APPROX_PRODUCER


class NoHitLru:
    """Spreads requests that nobody has a prefix for: to who never had one, then to who had one longest ago."""

    def __init__(self, parameters: NoHitLruParameters) -> None:
        self._size = parameters.lru_size
        self._matches = Key[PrefixMatches](PREFIX_MATCHES, producer=parameters.prefix_match_info_producer_name)
        self._used: OrderedDict[str, None] = OrderedDict()  # oldest first
        self.consumes = (self._matches,)

    def _is_cold(self, request: Request, endpoints: Endpoints) -> bool:
        """Return whether none of these has a hit; what others have is no use to anybody."""
        matches = self._matches.of(request)
        return (
            matches is None or not matches.blocks or not any(matches.blocks.get(each.target, 0) for each in endpoints)
        )

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Rank by age when nobody has a hit; stay out of it otherwise."""
        if not self._is_cold(request, endpoints):
            return [0.5] * len(endpoints)
        if len(endpoints) == 1:
            return [1.0]
        age = {target: at for at, target in enumerate(self._used)}
        order = sorted(range(len(endpoints)), key=lambda at: age.get(endpoints[at].target, -1))
        scores = [0.0] * len(endpoints)
        for rank, at in enumerate(order):
            scores[at] = 1.0 - rank / (len(endpoints) - 1)
        return scores

    def before_send(self, request: Request, results: Results, primary: str) -> HeaderChanges | None:
        """Note who got a cold request."""
        served = results.get(primary)
        if served is not None and self._is_cold(request, served.candidates):
            for picked in (served, results.get("prefill") if primary != "prefill" else None):
                if picked is not None:
                    self._used[picked.first.target] = None
                    self._used.move_to_end(picked.first.target)
            while len(self._used) > self._size:
                self._used.popitem(last=False)
        return None

    def on_endpoints(self, targets: frozenset[str]) -> None:
        """Forget those that are gone."""
        for target in [each for each in self._used if each not in targets]:
            del self._used[target]


class HeaderLabelParameters(Parameters):
    """What `header-label-affinity-scorer` takes."""

    header_name: str
    label_key: str


class HeaderLabelAffinityScorer:
    """Endpoints whose label has the value of a request's header."""

    def __init__(self, parameters: HeaderLabelParameters) -> None:
        self._header = parameters.header_name.lower()
        self._label = parameters.label_key

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Return 1 for those that match."""
        value = request.headers.get(self._header)
        if not value:
            return [0.0] * len(endpoints)
        return [1.0 if endpoint.labels.get(self._label) == value else 0.0 for endpoint in endpoints]


class PrefixAffinityParameters(Parameters):
    """What `prefix-cache-affinity-filter` takes."""

    or_default: ClassVar[frozenset[str]] = frozenset(("peak_prefill_throughput",))

    affinity_threshold: float = Field(default=0.80, ge=0, le=1)
    exploration_probability: float = Field(default=0.0, ge=0, le=1)
    max_ttft_penalty_ms: float = Field(default=18_000, ge=0, alias="maxTTFTPenaltyMs")
    ttft_source: Literal["prefillThroughput", "latencyPredictor"] = "prefillThroughput"
    peak_prefill_throughput: float = Field(default=15_928, gt=0)
    prefix_match_info_producer_name: str = APPROX_PRODUCER
    latency_prediction_info_producer_name: str = PREDICTOR
    in_flight_load_producer_name: str = INFLIGHT_PRODUCER


class PrefixCacheAffinityFilter:
    """Endpoints that have most of the prompt cached, unless waiting for the best of them would cost too much more."""

    def __init__(self, parameters: PrefixAffinityParameters, *, context: Context) -> None:
        self._parameters = parameters
        self._rng = context.rng
        self._matches = Key[PrefixMatches](PREFIX_MATCHES, producer=parameters.prefix_match_info_producer_name)
        predictor = parameters.latency_prediction_info_producer_name
        self._predictions = Key[LatencyPredictions](LATENCY_PREDICTIONS, producer=predictor)
        self._predicts = parameters.ttft_source == "latencyPredictor"
        self.affinity_outcomes: Counter[str] = Counter()
        load = Key[RequestCost](INFLIGHT_LOAD, producer=parameters.in_flight_load_producer_name)
        source: Key[Any] = self._predictions if self._predicts else load
        self.consumes: Sequence[Key[Any]] = (
            (self._matches, source) if parameters.max_ttft_penalty_ms else (self._matches,)
        )

    def filter(self, request: Request, endpoints: Endpoints) -> Endpoints:
        """Keep the sticky ones, or everyone."""
        kept, why = self._decide(request, endpoints)
        self.affinity_outcomes[why] += 1
        return kept

    def _decide(self, request: Request, endpoints: Endpoints) -> tuple[Endpoints, str]:
        """Return them, and in llm-d's words why."""
        matches, wanted = self._matches.of(request), self._parameters
        least, explore = wanted.affinity_threshold, wanted.exploration_probability
        if len(endpoints) <= 1 or not least:
            return endpoints, "not_applicable"
        if explore and self._rng.random() < explore:
            return endpoints, "exploration"
        if matches is None or not matches.total:
            return endpoints, "no_match"
        found, total = matches.blocks.get, matches.total
        sticky = [endpoint for endpoint in endpoints if found(endpoint.target, 0) / total >= least]
        if not sticky:
            return endpoints, "no_match"
        if len(sticky) == len(endpoints) or not wanted.max_ttft_penalty_ms:  # 0: any wait is worth it
            return sticky, "sticky"
        return self._by_wait(request, sticky, endpoints)

    def _by_wait(self, request: Request, sticky: Endpoints, endpoints: Endpoints) -> tuple[Endpoints, str]:
        """Keep the sticky ones unless the wait for them is too long."""
        stuck = {endpoint.target for endpoint in sticky}
        others = [endpoint for endpoint in endpoints if endpoint.target not in stuck]
        stay, go = self._wait_ms(request, sticky), self._wait_ms(request, others)
        known = max(stay, go) < math.inf
        if stay - go > self._parameters.max_ttft_penalty_ms:
            return endpoints, "load_override" if known else "missing_signal"
        return sticky, "sticky" if known else "missing_signal"

    def _wait_ms(self, request: Request, endpoints: Endpoints) -> float:
        """Return the shortest wait for a first token; endless, where it is to be predicted and nobody did."""
        if self._predicts:
            predictions = self._predictions.of(request)
            known = predictions.latencies if predictions is not None else {}
            waits = [known[endpoint.target].ttft_ms for endpoint in endpoints if endpoint.target in known]
            return min(waits, default=math.inf)
        least = min(endpoint.inflight_tokens for endpoint in endpoints)
        return least / self._parameters.peak_prefill_throughput * 1000
