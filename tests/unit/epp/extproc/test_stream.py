"""One request, message by message, as Envoy sends them; answers are read with the official classes."""

import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from tests.unit.epp.extproc.talk import A, B, C, make, picked, streamed

from pointsman.epp.extproc.messages import BodyMode
from pointsman.epp.extproc.stream import OutOfOrder


def test_a_whole_request() -> None:
    talk = make(A)
    (reply,) = talk.headers()
    assert picked(reply) == "10.0.0.1:8000"
    assert talk.inflight == {"sim-1": 1}, "reserved at once"
    assert streamed(talk.body(b"hello")) == [(b"hello", False)]
    assert streamed(talk.body(b"", end=True)) == [(b"", True)]
    (headers,) = talk.answer()
    mutation = headers.response_headers.response.header_mutation.set_headers[0].header
    assert (mutation.key, mutation.raw_value) == ("x-went-into-resp-headers", b"true")
    assert streamed(talk.answer_body(b"data: 1\n\n")) == [(b"data: 1\n\n", False)]
    assert talk.inflight == {"sim-1": 1}
    assert streamed(talk.answer_body(b"data: 2\n\n", end=True)) == [(b"data: 2\n\n", True)]
    assert talk.inflight == {"sim-1": 0}, "freed with the last byte, not when Envoy closes"
    talk.exchange.closed()
    assert talk.inflight == {"sim-1": 0}
    assert talk.director.tally.ended == {"natural": 1}


def test_a_get_is_answered_on_its_headers() -> None:
    talk = make(A)
    (reply,) = talk.headers(end=True)
    assert picked(reply) == "10.0.0.1:8000"


def test_a_policy_that_reads_the_body_is_asked_at_its_end() -> None:
    talk = make(A, patient=True)
    whole = b'{"model":"m","prompt":"' + b"a" * 150_000 + b'"}'
    assert talk.headers() == []
    assert talk.body(whole[:100_000]) == []
    replies = talk.body(whole[100_000:], end=True)
    assert picked(replies[0]) == "10.0.0.1:8000"
    chunks = streamed(replies[1:])
    assert b"".join(body for body, _ in chunks) == whole
    assert [end for _, end in chunks] == [False, False, True]


def test_trailers_end_a_held_body() -> None:
    talk = make(A, patient=True)
    talk.headers()
    talk.body(b'{"model":"m"}')
    replies = talk.say(pb.ProcessingRequest(request_trailers=pb.HttpTrailers()))
    assert [reply.WhichOneof("response") for reply in replies] == [
        "request_headers",
        "request_body",
        "request_trailers",
    ]
    assert streamed(replies[1:2]) == [(b'{"model":"m"}', False)], "the trailers end it, not the body"


def test_trailers_pass_in_both_directions() -> None:
    talk = make(A)
    talk.headers()
    (request,) = talk.say(pb.ProcessingRequest(request_trailers=pb.HttpTrailers()))
    assert request.WhichOneof("response") == "request_trailers"
    talk.answer()
    (response,) = talk.say(pb.ProcessingRequest(response_trailers=pb.HttpTrailers()))
    assert response.WhichOneof("response") == "response_trailers"
    assert talk.inflight == {"sim-1": 0}


@pytest.mark.parametrize("mode", [BodyMode.NONE, BodyMode.STREAMED, BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL])
def test_where_envoy_owns_the_body_nothing_is_held_and_nothing_echoed(mode: int) -> None:
    talk = make(A, patient=True)
    (reply,) = talk.headers(modes=(mode, mode))
    assert picked(reply) == "10.0.0.1:8000"
    (body,) = talk.body(b"hello", end=True)
    assert not body.request_body.response.HasField("body_mutation")
    talk.answer()
    (answer,) = talk.answer_body(b"hello", end=True)
    assert not answer.response_body.response.HasField("body_mutation")


def test_an_id_is_made_only_when_there_is_none() -> None:
    (reply,) = make(A).headers(x_request_id="")
    rows = {o.header.key: o.header.raw_value for o in reply.request_headers.response.header_mutation.set_headers}
    assert rows["x-request-id"] == b"fresh-id"
    (reply,) = make(A).headers()
    rows = {o.header.key: o.header.raw_value for o in reply.request_headers.response.header_mutation.set_headers}
    assert "x-request-id" not in rows


@pytest.mark.parametrize(
    ("subset", "allowed"),
    [
        pytest.param(["10.0.0.2:8000"], {"10.0.0.2:8000"}, id="one"),
        pytest.param(["10.0.0.2:1", "10.0.0.3"], {"10.0.0.2:8000", "10.0.0.3:8000"}, id="by address, not port"),
        pytest.param(None, {"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"}, id="no hint"),
    ],
)
def test_the_subset_hint(subset: list[str] | None, allowed: set[str]) -> None:
    talk = make(A, B, C)
    (reply,) = talk.headers(subset=subset)
    assert set(picked(reply).split(",")) == allowed


@pytest.mark.parametrize("subset", [[], ["10.9.9.9:8000"]])
def test_a_subset_that_leaves_nobody_is_503(subset: list[str]) -> None:
    talk = make(A)
    (reply,) = talk.headers(subset=subset)
    refused = reply.immediate_response
    assert refused.status.code == 503
    message = b"inference error: ServiceUnavailable - failed to find endpoint candidates for serving the request"
    assert refused.body == message
    header = refused.headers.set_headers[0].header
    assert (header.key, header.raw_value) == ("x-llm-d-request-dropped-reason", b"rejected-no-endpoints")
    assert talk.exchange.finished


def test_an_empty_pool_is_503_with_a_body_and_500_without() -> None:
    (reply,) = make().headers()
    assert reply.immediate_response.status.code == 503
    (reply,) = make().headers(end=True)
    assert reply.immediate_response.status.code == 500
    assert reply.immediate_response.body == b"inference error: Internal - no pods available in datastore"


def test_a_client_that_goes_away_frees_its_place() -> None:
    talk = make(A)
    talk.headers()
    talk.exchange.closed()
    assert talk.inflight == {"sim-1": 0}
    assert talk.director.tally.ended == {"client-disconnect": 1}


def test_the_reservation_follows_the_request_to_who_served_it() -> None:
    talk = make(A, B)
    (reply,) = talk.headers()
    first, second = picked(reply).split(",")
    talk.answer(served=second)
    by_target = {member.endpoint.target: member.inflight for member in talk.director.pool.members}
    assert by_target == {first: 0, second: 1}
    talk.exchange.closed()
    assert set(talk.inflight.values()) == {0}


def test_served_by_someone_we_do_not_know_changes_nothing() -> None:
    talk = make(A)
    talk.headers()
    talk.answer(served="10.9.9.9:1")
    assert talk.inflight == {"sim-1": 1}


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(pb.ProcessingRequest(request_body=pb.HttpBody(body=b"x")), id="body first"),
        pytest.param(pb.ProcessingRequest(request_trailers=pb.HttpTrailers()), id="trailers first"),
    ],
)
def test_messages_out_of_order(message: pb.ProcessingRequest) -> None:
    with pytest.raises(OutOfOrder):
        make(A).say(message)


def test_headers_twice() -> None:
    talk = make(A)
    talk.headers()
    with pytest.raises(OutOfOrder):
        talk.headers()
    talk.exchange.closed()
    assert talk.inflight == {"sim-1": 0}


def test_an_empty_message_is_no_message() -> None:
    assert make(A).say(pb.ProcessingRequest()) == []


@pytest.mark.parametrize(
    ("patient", "path", "mode", "spared"),
    [
        pytest.param(False, "/v1/completions", BodyMode.STREAMED, True, id="no parser reads"),
        pytest.param(True, "/metrics", BodyMode.STREAMED, True, id="none reads this path"),
        pytest.param(True, "/v1/completions", BodyMode.STREAMED, False, id="its usage is read"),
        pytest.param(False, "/v1/completions", BodyMode.FULL_DUPLEX_STREAMED, False, id="full duplex does not obey"),
        pytest.param(False, "/v1/completions", BodyMode.NONE, False, id="nothing to spare"),
    ],
)
def test_a_response_body_that_nobody_reads_is_spared(patient: bool, path: str, mode: int, spared: bool) -> None:
    talk = make(A, patient=patient)
    talk.headers(path=path, modes=(BodyMode.NONE, mode))
    (reply,) = talk.answer()
    assert reply.HasField("mode_override") == spared
    if spared:
        assert reply.mode_override == ProcessingMode(response_trailer_mode=ProcessingMode.SEND)


@pytest.mark.parametrize("mode", [BodyMode.NONE, BodyMode.STREAMED])
def test_without_its_body_a_response_ends_with_its_stream(mode: int) -> None:
    talk = make(A)
    talk.headers(modes=(BodyMode.NONE, mode))
    talk.answer()
    assert talk.inflight == {"sim-1": 1}
    talk.exchange.closed()
    assert talk.inflight == {"sim-1": 0}
    assert talk.director.tally.ended == {"natural": 1}
