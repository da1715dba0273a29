"""Who is asked and told beside the picker, in which features, and what becomes of the answer."""

import random
from typing import Any

import pytest
from tests.unit.epp.plugins.making import APPROX, endpoint, make, request

from pointsman.core.addresses import ServiceAddress
from pointsman.core.values import ConfigError, check
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.plugins.api import (
    ENCODER_MATCHES,
    LATENCY_PREDICTIONS,
    PREFIX_MATCHES,
    STAGES,
    EncoderMatches,
    Key,
    Latency,
    LatencyPredictions,
    PrefixMatches,
)
from pointsman.epp.plugins.predicted import PredictedLatencyParameters, PredictedLatencyProducer
from pointsman.epp.plugins.sidecars import most_samples, prediction_service, training_service
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Prompt, Request

KEY = Key[LatencyPredictions](LATENCY_PREDICTIONS, producer="predicted-latency-producer")
ANSWER = "LatencyPredictorAnswer/predicted-latency-producer"
URLS: dict[str, Any] = {"predictionServerURL": "http://p:8001", "trainingServerURL": "http://t:8000"}


def test_the_environment_says_whom_to_ask_and_a_parameter_wins() -> None:
    environment = {
        "PREDICTION_SERVER_URL": "http://a:1, http://[::1]:2/base/,",
        "LATENCY_MAX_CONCURRENT_DISPATCHES": "9",
    }
    found = prediction_service("", seconds=0.2, environment=environment)
    assert found is not None
    assert found.addresses == (ServiceAddress("a", 1), ServiceAddress("::1", 2, "/base"))
    assert (found.seconds, found.dispatches) == (0.2, 9)
    found = prediction_service("http://b", seconds=0.2, environment=environment)
    assert found is not None
    assert found.addresses == (ServiceAddress("b", 80),)
    assert prediction_service("", seconds=0.2, environment={}) is None


def test_the_environment_says_whom_to_tell_and_how_often() -> None:
    environment = {
        "TRAINING_SERVER_URL": "http://t:8000",
        "LATENCY_FLUSH_INTERVAL_SEC": "3",
        "LATENCY_HTTP_TIMEOUT_SEC": "0",
        "LATENCY_MAX_SAMPLE_SIZE": "many",
    }
    found = training_service("", environment=environment)
    assert found is not None
    assert (found.address, found.every_seconds, found.seconds) == (ServiceAddress("t", 8000), 3, 10)
    assert most_samples(environment) == 1000
    assert training_service("", environment={}) is None


@pytest.mark.parametrize(
    "url", ["p:8001", "https://p", "http://", "http://p:0", "http://p:x", "http://p/a b", "http://p?q"]
)
def test_what_is_no_url_is_said_by_name(url: str) -> None:
    with pytest.raises(ValueError, match="PREDICTION_SERVER_URL must be http://host:port, not"):
        prediction_service("", seconds=1, environment={"PREDICTION_SERVER_URL": url})
    with pytest.raises(ValueError, match="TRAINING_SERVER_URL must be http://host:port, not"):
        training_service("", environment={"TRAINING_SERVER_URL": url})
    for name in ("predictionServerURL", "trainingServerURL"):
        (problem,) = check(PredictedLatencyParameters, {name: url}, path="parameters").problems
        assert str(problem).startswith(f"parameters.{name}: must be http://host:port, not")


def test_a_picker_says_what_is_wrong_with_its_environment() -> None:
    text = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins: [{type: predicted-latency-producer}]"
    environment = {"PREDICTION_SERVER_URL": "localhost:8001"}
    builder = Builder(clock=lambda: 0.0, rng=random.Random(7), environment=environment)
    with pytest.raises(ConfigError, match="PREDICTION_SERVER_URL must be http://host:port, not 'localhost:8001'"):
        builder.build(load(text))


def known(**attributes: object) -> Request:
    """A request of 100 tokens, of which endpoint a has a half and image sizes are known."""
    matches = PrefixMatches(total=10, block_tokens=10, blocks={"a:8000": 9}, cached={"a:8000": 5})
    media = EncoderMatches(total=40, matched={"a:8000": 30})
    facts = {
        f"{PREFIX_MATCHES}/{APPROX}": matches,
        f"{ENCODER_MATCHES}/mm-embeddings-cache-producer": media,
        **attributes,
    }
    return request(prompt=Prompt(tokens=100), attributes=facts)


BUSY = endpoint(
    "a", kv_usage=0.5, waiting=3, running=8, inflight_requests=2, inflight_tokens=700, labels={"role": "decode"}
)


def test_a_question_has_the_go_picker_s_features() -> None:
    producer = make("predicted-latency-producer", **URLS, endpointRoleLabel="role")
    asked = producer.question(known(), [BUSY, endpoint("b")])
    assert asked.targets == ("a:8000", "b:8000")
    first, second = asked.rows
    assert (first.kv_cache_percentage, first.num_request_waiting, first.num_request_running) == (0.5, 3, 2)
    assert (first.input_token_length, first.num_tokens_generated, first.prefix_cache_score) == (100, 1, 0.5)
    assert (first.prefill_tokens_in_flight, first.pod_type, first.encoder_input_size) == (700, "decode", 0)
    assert (second.prefix_cache_score, second.pod_type) == (0.0, second.pod_type)
    assert producer.needs([]).predictor == asked.service


def test_media_are_features_where_that_is_asked_for() -> None:
    producer = make("predicted-latency-producer", **URLS, useEncoderCacheFeatures=True)
    assert [key.producer for key in producer.consumes] == [APPROX, "mm-embeddings-cache-producer"]
    (row,) = producer.question(known(), [BUSY]).rows
    assert (row.encoder_input_size, row.encoder_matched_size) == (40, 30)


@pytest.mark.parametrize("parameters", [{}, {**URLS, "predictInProduce": False}])
def test_without_a_service_nobody_is_asked(parameters: dict[str, Any]) -> None:
    producer = make("predicted-latency-producer", **parameters)
    assert producer.question(known(), [BUSY]) is None
    assert producer.needs([]).predictor is None


def test_a_request_without_a_prompt_is_not_asked_about() -> None:
    assert make("predicted-latency-producer", **URLS).question(request(), [BUSY]) is None


def test_the_answer_is_told_and_who_is_not_in_it_is_predicted_here() -> None:
    producer = make("predicted-latency-producer", **URLS, streamingMode=True, endpointRoleLabel="role")
    views = [BUSY, endpoint("b"), endpoint("p", labels={"role": "prefill"})]
    own = KEY.of(known(**producer.produce(known(), views)))
    answered = known(**{ANSWER: {"a:8000": (123.0, 4.0), "p:8000": (50.0, 9.0)}})
    told = KEY.of(known(**producer.produce(answered, views)))
    assert own is not None
    assert told is not None
    assert told.latencies["a:8000"] == Latency(ttft_ms=123.0, tpot_ms=4.0)
    assert told.latencies["b:8000"] == own.latencies["b:8000"]
    assert told.latencies["p:8000"] == Latency(ttft_ms=50.0, tpot_ms=None), "no tokens come from there"


def after(producer: PredictedLatencyProducer, answer: dict[str, tuple[float, float]], *views: EndpointView) -> Request:
    bare = known(**{ANSWER: answer}) if answer else known()
    return known(**producer.produce(bare, views))


def test_samples_have_the_features_of_the_pick_and_what_was_predicted() -> None:
    producer = make("predicted-latency-producer", now=7.0, **URLS, streamingMode=True)
    producer.learn(after(producer, {"a:8000": (123.0, 4.0)}, BUSY), BUSY, 80.0, 9.5)
    first, further = producer.samples.take()
    assert (first.ttft_ms, first.tpot_ms, first.predicted_ttft_ms, first.at) == (80.0, 0.0, 123.0, 7.0)
    assert (first.features.prefix_cache_score, first.features.num_tokens_generated) == (0.5, 0)
    assert (further.ttft_ms, further.tpot_ms, further.predicted_tpot_ms) == (0.0, 9.5, 4.0)
    assert further.features.prefix_cache_score == 0.0
    assert producer.coverage == {"ttft": 1.0, "tpot": 0.0}


def test_a_first_token_is_learnt_where_the_prompt_was_computed() -> None:
    producer = make("predicted-latency-producer", **URLS, streamingMode=True, endpointRoleLabel="role")
    prefill = endpoint("p", inflight_tokens=33, labels={"role": "prefill"})
    done = after(producer, {"a:8000": (10.0, 1.0), "p:8000": (20.0, 1.0)}, BUSY, prefill)
    facts = {**done.attributes, STAGES: {"decode": BUSY, "prefill": prefill}}
    producer.learn(known(**facts), BUSY, 80.0, 9.5)
    first, further = producer.samples.take()
    assert (first.features.prefill_tokens_in_flight, first.predicted_ttft_ms) == (33, 20.0)
    assert (further.features.prefill_tokens_in_flight, further.features.pod_type) == (700, "decode")


def test_without_streams_there_are_no_further_tokens_to_learn_from() -> None:
    producer = make("predicted-latency-producer", **URLS)
    producer.learn(after(producer, {}, BUSY), BUSY, 80.0, 9.5)
    (only,) = producer.samples.take()
    assert only.ttft_ms == 80.0


def test_without_a_trainer_nothing_is_kept() -> None:
    producer = make("predicted-latency-producer")
    producer.learn(after(producer, {}, BUSY), BUSY, 80.0, None)
    assert producer.samples.take() == []


def test_the_model_here_learns_from_itself_and_not_from_what_the_sidecar_said() -> None:
    """It has to be good on the day on which the sidecar is gone."""
    alone, beside = make("predicted-latency-producer"), make("predicted-latency-producer", **URLS)
    for _ in range(200):
        alone.learn(after(alone, {}, BUSY), BUSY, 400.0, None)
        beside.learn(after(beside, {"a:8000": (1.0, 1.0)}, BUSY), BUSY, 400.0, None)
    by_itself, left_alone = KEY.of(after(alone, {}, BUSY)), KEY.of(after(beside, {}, BUSY))
    assert by_itself is not None
    assert left_alone is not None
    assert left_alone.latencies == by_itself.latencies
    assert beside.coverage == {"ttft": 0.0}, "of what was told"
