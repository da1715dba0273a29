"""A pick that waits for a prediction sidecar, message by message."""

from tests.unit.epp.extproc.talk import COMPLETION, TOKENIZED, A, B, full_talk, immediate, picked, streamed

from pointsman.epp.body.prompts import token_bytes
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.request.request import Rendered

URL = "parameters: {predictionServerURL: 'http://127.0.0.1:8001'}"
PREDICTED = f"""
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {{type: predicted-latency-producer, {URL}}}
- {{type: latency-scorer}}
- {{type: max-score-picker}}
"""
FIRST, SECOND = "10.0.0.1:8000", "10.0.0.2:8000"


def test_the_pick_waits_for_predictions_and_goes_by_them() -> None:
    for answer, pick in (([(10.0, 1.0), (90.0, 1.0)], FIRST), ([(90.0, 1.0), (10.0, 1.0)], SECOND)):
        talk = full_talk(A, B, config=PREDICTED, rewrite="served")
        talk.headers()
        assert talk.body(COMPLETION, end=True) == []
        (asked,) = talk.sidecar.asked
        assert asked.targets == (FIRST, SECOND)
        assert talk.inflight == {"sim-1": 0, "sim-2": 0}, "nothing is decided yet"
        headers, body = talk.predict(answer)
        assert picked(headers) == pick
        assert streamed([body]) == [(COMPLETION.replace(b"asked", b"served"), True)]


def test_without_an_answer_the_model_here_decides() -> None:
    talk = full_talk(A, config=PREDICTED)
    talk.headers()
    talk.body(COMPLETION[:20])
    assert talk.body(COMPLETION[20:], end=True) == []
    headers, body = talk.predict(None)
    assert picked(headers) == FIRST
    assert streamed([body]) == [(COMPLETION, True)]


def test_nobody_waits_for_a_sidecar_that_is_left_alone() -> None:
    talk = full_talk(A, config=PREDICTED)
    talk.sidecar.willing = False
    talk.headers()
    headers, _ = talk.body(COMPLETION, end=True)
    assert picked(headers) == FIRST
    assert talk.sidecar.asked == []


def test_tokens_come_before_predictions() -> None:
    talk = full_talk(A, config=TOKENIZED + f"- {{type: predicted-latency-producer, {URL}}}\n")
    talk.headers()
    assert talk.body(COMPLETION, end=True) == []
    assert talk.tell(Rendered(tokens=token_bytes(range(100)))) == []
    (asked,) = talk.sidecar.asked
    assert asked.rows[0].input_token_length == 100
    assert picked(talk.predict([(1.0, 1.0)])[0]) == FIRST


def test_an_endpoint_that_came_meanwhile_is_a_candidate_and_one_that_went_is_not() -> None:
    talk = full_talk(A, config=PREDICTED)
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.director.pool.replace([B])
    assert picked(talk.predict([(1.0, 1.0)])[0]) == SECOND


def test_producers_look_once_also_after_a_change_of_the_configuration() -> None:
    for reload in (False, True):
        talk = full_talk(A, config=PREDICTED)
        talk.headers()
        talk.body(COMPLETION, end=True)
        if reload:
            rng = talk.director._rng
            talk.director.use(Builder(clock=lambda: 0.0, rng=rng).build(load(PREDICTED)).scheduler)
        talk.director.explain_next = 1
        talk.predict([(1.0, 1.0)])
        (record,) = talk.director.records.find()
        assert record.trace is not None
        looked = [step.name for step in record.trace.others if step.point == "DataProducer"]
        assert sorted(looked) == ["approx-prefix-cache-producer", "predicted-latency-producer"]
        assert "found-ahead" not in record.request.attributes


def test_a_client_that_leaves_is_not_answered() -> None:
    talk = full_talk(A, config=PREDICTED)
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.exchange.closed()
    assert talk.sidecar.waiting is None
    assert talk.inflight == {"sim-1": 0}
    assert talk.budget.held == 0


def test_a_refusal_after_the_predictions_ends_the_stream() -> None:
    talk = full_talk(A, config=PREDICTED)
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.director.pool.replace([])
    status, _ = immediate(talk.predict([(1.0, 1.0)]))
    assert status == 503


def test_a_body_that_waits_is_on_the_budget() -> None:
    for config in (PREDICTED, TOKENIZED):
        talk = full_talk(A, config=config)
        talk.headers()
        talk.body(COMPLETION, end=True)
        assert talk.budget.held >= len(COMPLETION)
        talk.predict(None) if config == PREDICTED else talk.tell(None)
        assert talk.budget.held == 0
