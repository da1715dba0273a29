"""What bodies say, message by message: renamed models, refusals, paths, and what is read of a response."""

import json
from pathlib import Path

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from tests.unit.epp.extproc.talk import COMPLETION, LEAST_BUSY, A, full_talk, immediate, picked, streamed

from pointsman.epp.schedule.explain_log import DecisionRecorder, read_recording


def test_the_model_is_renamed_on_the_way_in_and_back_on_the_way_out() -> None:
    talk = full_talk(A, rewrite="served/model")
    talk.headers()
    replies = talk.body(COMPLETION, end=True)
    assert streamed(replies[1:]) == [(COMPLETION.replace(b"asked", b"served/model"), True)], "and not one byte besides"
    (headers,) = talk.answer()
    assert list(headers.response_headers.response.header_mutation.remove_headers) == ["content-length"]
    answer = b'{"id":"1","model":"served/model","choices":[]}'
    for cut in range(len(answer)):
        talk = full_talk(A, rewrite="served/model")
        talk.headers()
        talk.body(COMPLETION, end=True)
        talk.answer()
        chunks = streamed(talk.answer_body(answer[:cut])) + streamed(talk.answer_body(answer[cut:], end=True))
        assert b"".join(body for body, _ in chunks) == answer.replace(b"served/model", b"asked")
        assert [end for _, end in chunks][-1] is True


def test_what_a_renamer_holds_leaves_before_the_trailers() -> None:
    talk = full_talk(A, rewrite="served/model")
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.answer()
    assert streamed(talk.answer_body(b'x"mod')) == [(b"x", False)]
    replies = talk.say(pb.ProcessingRequest(response_trailers=pb.HttpTrailers()))
    assert [reply.WhichOneof("response") for reply in replies] == ["response_body", "response_trailers"]
    assert streamed(replies[:1]) == [(b'"mod', False)]


def test_a_body_is_left_alone_when_nothing_is_renamed() -> None:
    talk = full_talk(A)
    talk.headers()
    assert streamed(talk.body(COMPLETION, end=True)[1:]) == [(COMPLETION, True)]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        pytest.param(
            b"no healthy upstream",
            400,
            "inference error: BadRequest - error unmarshaling request bodyMap: "
            "invalid character 'o' in literal null (expecting 'u')",
            id="not JSON",
        ),
        pytest.param(
            b'{"prompt":"x"}', 400, "inference error: BadRequest - model not found in request body", id="model"
        ),
        pytest.param(b'{"model":7}', 400, "inference error: BadRequest - model not found in request body", id="number"),
        pytest.param(
            b'{"model":"' + b"m" * 1025 + b'"}',
            400,
            "inference error: BadRequest - the model's name has 1025 characters: at most 1024 are allowed",
            id="a name that would fill metrics and records",
        ),
    ],
)
def test_bodies_that_are_refused(body: bytes, status: int, words: str) -> None:
    talk = full_talk(A)
    talk.headers()
    assert immediate(talk.body(body, end=True)) == (status, words)
    assert talk.inflight == {"sim-1": 0}
    assert talk.director.tally.refused == {"BadRequest": 1}


@pytest.mark.parametrize(
    "name",
    [
        "x-llm-d-model-name-rewrite",
        "x-llm-d-inference-fairness-id",
        "x-llm-d-inference-objective",
        "x-request-id",
        "user-agent",
        "prefer",
    ],
)
def test_headers_that_are_no_text_harm_nobody(name: str, tmp_path: Path) -> None:
    talk = full_talk(A)
    recorder = DecisionRecorder(tmp_path / "decisions.jsonl")
    talk.director.records.listen(recorder)
    talk.headers(raw={name: b"\xff\xfe"})
    replies = talk.body(COMPLETION, end=True)
    assert picked(replies[0]) == "10.0.0.1:8000"
    assert (recorder.lines, recorder.errors) == (1, 0)
    assert len(list(read_recording(tmp_path / "decisions.jsonl"))) == 1
    assert talk.metrics.render().decode(), "nor the page of metrics, for ever after"
    json.dumps([record.to_json() for record in talk.director.records.find()])


def test_a_path_that_is_no_text_is_refused_in_words() -> None:
    talk = full_talk(A, config=LEAST_BUSY + "requestHandler: {parsers: [{pluginRef: openai-parser}]}")
    status, words = immediate(talk.headers(raw={":path": b"/\xff"}))
    assert (status, words) == (400, "inference error: BadRequest - no parser claims the path /?")


def test_an_empty_body_is_no_body() -> None:
    talk = full_talk(A)
    talk.headers()
    replies = talk.body(b"", end=True)
    assert picked(replies[0]) == "10.0.0.1:8000"
    assert streamed(replies[1:]) == [(b"", True)]


def test_a_path_of_no_api_passes_unread() -> None:
    talk = full_talk(A)
    (reply,) = talk.headers(path="/metrics")
    assert picked(reply) == "10.0.0.1:8000"
    assert streamed(talk.body(b"anything", end=True)) == [(b"anything", True)]


def test_tokens_are_read_from_the_response() -> None:
    talk = full_talk(A)
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.answer()
    talk.answer_body(b'{"usage":{"prompt_tokens":7,"completion_tokens":10}}', end=True)
    assert talk.inflight == {"sim-1": 0}
