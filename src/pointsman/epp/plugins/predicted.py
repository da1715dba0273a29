"""Latencies predicted in this process, from the first request on: a simple model of an engine, corrected as it errs.

The model knows two things. The first token comes when the tokens ahead and the prompt's own uncached ones are computed
at some rate, plus a step; each further token takes a step, which grows with the requests that run. What it gets wrong
is learnt from every response, as a factor that depends on a few features: regression for a quantile, in logarithms, one
small step per response. So a prediction is what nine of ten responses keep (`quantile`), and an endpoint that is slower
than others is known by its own offset after some requests. Whether predictions hold is `coverage`.

Where llm-d's latency predictor runs beside the picker (`sidecars`) its predictions are told instead, for every endpoint
that it answered about in time. The model here learns on all the same, so it is ready whenever the other is not. Like
every plugin it asks nobody itself: `question` says what to ask, and the answer is in the request before it is decided.

Costs some microseconds per endpoint and request, only where it is configured.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, field_validator

from pointsman.epp.plugins.affinity import APPROX_PRODUCER
from pointsman.epp.plugins.api import (
    ENCODER_MATCHES,
    LATENCY_PREDICTIONS,
    PREFIX_MATCHES,
    STAGES,
    Context,
    EncoderMatches,
    Endpoints,
    Key,
    Latency,
    LatencyPredictions,
    Parameters,
    PrefixMatches,
)
from pointsman.epp.plugins.detectors import Seconds
from pointsman.epp.plugins.embeddings import EMBEDDINGS_PRODUCER
from pointsman.epp.plugins.scorers import INFLIGHT_PRODUCER
from pointsman.epp.plugins.sidecars import addresses_of, features, most_samples, prediction_service, training_service
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.predictions import Features, Predicted, PredictionQuestion, Sample, Samples
from pointsman.epp.request.request import Needs, Request

_FEATURES = 5
_STEP = 0.15  # of learning, at first; less and less down to
_LEAST_STEP = 0.02
_WIDEST = 6.0  # of a correction, in logarithms: four hundred times
_MOST_ENDPOINTS = 4096


class PredictedLatencyParameters(Parameters):
    """What `predicted-latency-producer` takes; from `quantile` on it is ours."""

    or_default: ClassVar[frozenset[str]] = frozenset(("slo_buffer_factor",))

    slo_buffer_factor: float = Field(default=1.0, gt=0)
    context_ttl: Seconds = Field(default=300.0, alias="contextTTL")
    streaming_mode: bool = False
    endpoint_role_label: str = ""
    predict_in_produce: bool = True
    use_encoder_cache_features: bool = False
    prefix_match_info_producer_name: str = APPROX_PRODUCER
    in_flight_load_producer_name: str = INFLIGHT_PRODUCER
    encoder_cache_match_info_producer_name: str = ""
    sampling_mean: float = Field(default=0.0, description="Deprecated, ignored.")
    max_decode_token_samples_for_prediction: int = Field(default=0, description="Deprecated, ignored.")
    quantile: float = Field(default=0.9, gt=0, lt=1, description="The share of responses that keep a prediction.")
    prefill_tokens_per_second: float = Field(default=15_928, gt=0, description="Where nothing is known yet.")
    step_ms: float = Field(default=10.0, gt=0, description="One step of decoding alone, where nothing is known yet.")
    step_ms_per_request: float = Field(default=0.3, ge=0, description="… and what each running request adds.")
    prediction_server_url: str = Field(
        default="",
        alias="predictionServerURL",
        description="Sidecars that predict, with commas between; else the environment's.",
    )
    training_server_url: str = Field(
        default="", alias="trainingServerURL", description="The sidecar that learns; else the environment's."
    )
    prediction_timeout: Seconds = Field(default=0.1, gt=0, le=10, description="How long a request waits for a sidecar.")

    @field_validator("prediction_server_url", "training_server_url")
    @classmethod
    def _leads_somewhere(cls, urls: str) -> str:
        addresses_of(urls)
        return urls


class Corrector:
    """A factor for predictions, learnt from what came of them: the quantile of actual / predicted, by features."""

    def __init__(self, quantile: float) -> None:
        self._quantile = quantile
        self._weights = [0.0] * _FEATURES
        self._offsets: dict[str, float] = {}  # by endpoint
        self._seen = 0

    def factor(self, target: str, features: Sequence[float]) -> float:
        """Return by what to multiply."""
        log = self._offsets.get(target, 0.0) + sum(map(float.__mul__, self._weights, features))
        return math.exp(min(max(log, -_WIDEST), _WIDEST))

    def learn(self, target: str, features: Sequence[float], *, predicted: float, actual: float) -> None:
        """Take what came of a prediction, as it was told, corrections included."""
        if predicted <= 0 or actual <= 0:
            return
        self._seen += 1
        missed = actual > predicted
        size = max(_LEAST_STEP, _STEP / math.sqrt(1 + self._seen / 20))
        # Far off, a step is longer; near, it is that of a quantile: up by q when missed, else down by 1 - q.
        error = abs(math.log(actual / predicted))
        push = (self._quantile if missed else self._quantile - 1.0) * size * (1.0 + min(error, 2.0))
        if target in self._offsets or len(self._offsets) < _MOST_ENDPOINTS:
            self._offsets[target] = min(max(self._offsets.get(target, 0.0) + push, -_WIDEST), _WIDEST)
        norm = 1.0 + sum(value * value for value in features)
        self._weights = [
            weight + 0.5 * push * value / norm for weight, value in zip(self._weights, features, strict=True)
        ]

    def forget(self, targets: frozenset[str]) -> None:
        """Keep only these endpoints' offsets."""
        self._offsets = {target: offset for target, offset in self._offsets.items() if target in targets}


class Coverage:
    """Which share of predictions held."""

    def __init__(self) -> None:
        self._kept = 0
        self._judged = 0

    def judge(self, *, predicted: float, actual: float) -> None:
        """Take what was told, and what came of it."""
        if predicted > 0 and actual > 0:
            self._judged += 1
            self._kept += actual <= predicted

    @property
    def share(self) -> float | None:
        """The share; None while there is nothing to judge by."""
        return self._kept / self._judged if self._judged else None


class PredictedLatencyProducer:
    """Predicts the time to the first token, and per further token, of a request at each endpoint."""

    def __init__(self, parameters: PredictedLatencyParameters, *, context: Context) -> None:
        self._parameters = parameters
        self._clock = context.clock
        self._key = Key[LatencyPredictions](LATENCY_PREDICTIONS, producer=context.name)
        self._own = Key[Mapping[str, Latency]]("OwnLatencyPredictions", producer=context.name)
        self._answer = Key[Mapping[str, Predicted]]("LatencyPredictorAnswer", producer=context.name)
        self._matches = Key[PrefixMatches](PREFIX_MATCHES, producer=parameters.prefix_match_info_producer_name)
        self._media: Key[EncoderMatches] | None = None
        self.produces = (self._key,)
        self.consumes: Sequence[Key[Any]] = (self._matches,)
        self.ttft = Corrector(parameters.quantile)
        self.tpot = Corrector(parameters.quantile)
        self._coverage = {"ttft": Coverage(), "tpot": Coverage()}
        environment = context.environment
        self._service = prediction_service(
            parameters.prediction_server_url, seconds=parameters.prediction_timeout, environment=environment
        )
        self.training = training_service(parameters.training_server_url, environment=environment)
        self.samples = Samples(most_samples(environment))
        if parameters.use_encoder_cache_features and (self._service is not None or self.training is not None):
            name = parameters.encoder_cache_match_info_producer_name or EMBEDDINGS_PRODUCER
            self._media = Key[EncoderMatches](ENCODER_MATCHES, producer=name)
            self.consumes = (self._matches, self._media)

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return that the prompt's length is wanted, and who is to be asked about it."""
        asks = self._parameters.predict_in_produce
        return Needs(body=True, prompt=True, predictor=self._service if asks else None)

    def question(self, request: Request, endpoints: Endpoints) -> PredictionQuestion | None:
        """Return what the sidecar is to be asked."""
        if self._service is None or not self._parameters.predict_in_produce or request.prompt is None:
            return None
        return PredictionQuestion(
            service=self._service,
            answer=self._answer.name,
            targets=tuple(each.target for each in endpoints),
            rows=tuple(self._row(request, each, generated=1) for each in endpoints),
        )

    def _row(self, request: Request, endpoint: EndpointView, *, generated: int = 0, decoding: bool = False) -> Features:
        """Return an endpoint as the sidecar knows it; while it decodes nothing of the prompt's state matters."""
        assert request.prompt is not None
        return features(
            request.prompt,
            endpoint,
            role_label=self._parameters.endpoint_role_label,
            generated=generated,
            matches=None if decoding else self._matches.of(request),
            media=None if decoding or self._media is None else self._media.of(request),
        )

    def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object]:
        """Return a prediction for every endpoint."""
        if not self._parameters.predict_in_produce or request.prompt is None:
            return {}
        own = {each.target: self._predict(request, each) for each in endpoints}
        buffer = self._parameters.slo_buffer_factor
        answer = self._answer.of(request)
        if answer is None:
            return {self._key.name: LatencyPredictions(latencies=own, slo_buffer=buffer)}
        told = {target: _told(answer.get(target), latency) for target, latency in own.items()}
        return {self._key.name: LatencyPredictions(latencies=told, slo_buffer=buffer), self._own.name: own}

    def _predict(self, request: Request, endpoint: EndpointView) -> Latency:
        wanted, known = self._parameters, self._features(request, endpoint)
        step = wanted.step_ms + wanted.step_ms_per_request * endpoint.running
        ahead = endpoint.inflight_tokens + self._uncached(request, endpoint)
        first = ahead / wanted.prefill_tokens_per_second * 1000 + step
        tpot = None
        if wanted.streaming_mode and endpoint.labels.get(wanted.endpoint_role_label) != "prefill":
            tpot = step * self.tpot.factor(endpoint.target, known)
        return Latency(ttft_ms=first * self.ttft.factor(endpoint.target, known), tpot_ms=tpot)

    def _uncached(self, request: Request, endpoint: EndpointView) -> int:
        matches = self._matches.of(request)
        tokens = request.prompt.tokens if request.prompt is not None else 0
        cached = matches.cached.get(endpoint.target, 0) * matches.block_tokens if matches is not None else 0
        return max(0, tokens - cached)

    def _features(self, request: Request, endpoint: EndpointView) -> list[float]:
        return [
            min(endpoint.waiting, 100.0) / 10,
            min(endpoint.running, 1000.0) / 100,
            float(endpoint.kv_usage),
            math.log1p(self._uncached(request, endpoint)) / 10,
            math.log1p(endpoint.inflight_tokens) / 10,
        ]

    def learn(self, request: Request, endpoint: EndpointView, ttft_ms: float, tpot_ms: float | None) -> None:
        """Compare what an endpoint took with what was predicted for it, as the endpoint was when it was picked.

        A first token comes from where the prompt was computed, which may be another.
        """
        predictions = self._key.of(request)
        if predictions is None:
            return
        told = predictions.latencies
        own = self._own.of(request) or told
        stages: Any = request.attributes.get(STAGES, {})
        first = stages.get("prefill", endpoint)
        if first.target in told:
            self._learn_ttft(request, first, ttft_ms, told=told[first.target], own=own[first.target])
        if endpoint.target in told and tpot_ms is not None:
            self._learn_tpot(request, endpoint, tpot_ms, told=told[endpoint.target], own=own[endpoint.target])

    def _learn_ttft(self, request: Request, at: EndpointView, actual: float, *, told: Latency, own: Latency) -> None:
        self._coverage["ttft"].judge(predicted=told.ttft_ms, actual=actual)
        self.ttft.learn(at.target, self._features(request, at), predicted=own.ttft_ms, actual=actual)
        if self.training is not None and actual > 0:
            row = self._row(request, at)
            self.samples.add(Sample(features=row, at=self._clock(), ttft_ms=actual, predicted_ttft_ms=told.ttft_ms))

    def _learn_tpot(self, request: Request, at: EndpointView, actual: float, *, told: Latency, own: Latency) -> None:
        if told.tpot_ms is None or own.tpot_ms is None:
            return
        self._coverage["tpot"].judge(predicted=told.tpot_ms, actual=actual)
        self.tpot.learn(at.target, self._features(request, at), predicted=own.tpot_ms, actual=actual)
        if self.training is not None and actual > 0:
            row = self._row(request, at, decoding=True)
            self.samples.add(Sample(features=row, at=self._clock(), tpot_ms=actual, predicted_tpot_ms=told.tpot_ms))

    @property
    def coverage(self) -> Mapping[str, float]:
        """The share of responses that were no slower than predicted, of those that could be compared."""
        shares = {name: each.share for name, each in self._coverage.items()}
        return {name: share for name, share in shares.items() if share is not None}

    def on_endpoints(self, targets: frozenset[str]) -> None:
        """Forget those that are gone."""
        self.ttft.forget(targets)
        self.tpot.forget(targets)


def _told(answer: Predicted | None, own: Latency) -> Latency:
    """Return what a sidecar says; further tokens do not matter where they do not matter to us."""
    if answer is None:
        return own
    return Latency(ttft_ms=answer[0], tpot_ms=None if own.tpot_ms is None else answer[1])
