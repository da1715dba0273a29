"""A pick that waits for a tokenizer service, message by message."""

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from tests.unit.epp.extproc.talk import COMPLETION, TOKENIZED, A, B, full_talk, immediate, picked, streamed

from pointsman.epp.body.prompts import token_bytes
from pointsman.epp.request.request import Rendered


def test_the_pick_waits_for_the_tokens() -> None:
    talk = full_talk(A, config=TOKENIZED, rewrite="served")
    assert talk.headers() == []
    assert talk.body(COMPLETION, end=True) == []
    (asked,) = talk.asked
    assert asked.path == "/v1/completions/render"
    assert asked.body == COMPLETION.replace(b"asked", b"base")
    assert talk.inflight == {"sim-1": 0}, "nothing is decided yet"
    headers, body = talk.tell(Rendered(tokens=token_bytes(range(100))))
    assert picked(headers) == "10.0.0.1:8000"
    assert streamed([body]) == [(COMPLETION.replace(b"asked", b"served"), True)]
    assert talk.inflight == {"sim-1": 1}
    (record,) = talk.director.records.find()
    assert record.request.prompt is not None
    assert record.request.prompt.tokens == 100


def test_without_an_answer_tokens_are_estimated() -> None:
    talk = full_talk(A, config=TOKENIZED)
    talk.headers()
    talk.body(COMPLETION[:20])
    assert talk.body(COMPLETION[20:], end=True) == []
    headers, body = talk.tell(None)
    assert picked(headers) == "10.0.0.1:8000"
    assert streamed([body]) == [(COMPLETION, True)]
    (record,) = talk.director.records.find()
    assert record.request.prompt is not None
    assert record.request.prompt.tokens == 2


def test_different_texts_of_the_same_tokens_are_the_same_prefix() -> None:
    chains = []
    for text in (b"hello", b"hallo"):
        talk = full_talk(A, config=TOKENIZED)
        talk.headers()
        talk.body(COMPLETION.replace(b"hello", text), end=True)
        talk.tell(Rendered(tokens=token_bytes(range(200))))
        (record,) = talk.director.records.find()
        assert record.request.prompt is not None
        chains.append(record.request.prompt.blocks)
    assert chains[0] == chains[1]
    assert len(chains[0]) == 4, "200 tokens in blocks of 64"


def test_trailers_come_after_a_body_that_waited() -> None:
    talk = full_talk(A, config=TOKENIZED)
    talk.headers()
    talk.body(COMPLETION)
    assert talk.say(pb.ProcessingRequest(request_trailers=pb.HttpTrailers())) == []
    kinds = [reply.WhichOneof("response") for reply in talk.tell(None)]
    assert kinds == ["request_headers", "request_body", "request_trailers"]


def test_a_refusal_after_the_tokens_ends_the_stream() -> None:
    talk = full_talk(config=TOKENIZED)
    talk.headers()
    talk.body(COMPLETION, end=True)
    status, _ = immediate(talk.tell(None))
    assert status == 503
    assert talk.exchange.finished


def test_a_fault_after_the_tokens_is_an_answer_too() -> None:
    def fault(_record: object) -> None:
        raise RuntimeError("nobody expects it")

    talk = full_talk(A, config=TOKENIZED)
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.director.pool.replace([B])
    talk.director.records.listen(fault)
    assert immediate(talk.tell(None)) == (500, "inference error: Internal - internal error")
    assert talk.exchange.finished


@pytest.mark.parametrize("how", ["closed", "answered by Envoy"])
def test_a_request_that_is_gone_waits_for_no_tokens(how: str) -> None:
    talk = full_talk(A, config=TOKENIZED)
    talk.headers()
    talk.body(COMPLETION, end=True)
    assert talk.waiting is not None
    if how == "closed":
        talk.exchange.closed()
    else:
        talk.answer(end=True)
    assert talk.waiting is None
