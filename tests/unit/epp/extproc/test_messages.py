"""Our codec against the official ext_proc classes: every field that we read or write, unknown fields included."""

from collections.abc import Callable
from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st
from tests.work import count_work, peak_bytes

from pointsman.epp.extproc import messages
from pointsman.epp.extproc.messages import CHUNK_BYTES, BodyMode, Malformed, MessageKind, decode

ONEOF = {
    MessageKind.REQUEST_HEADERS: "request_headers",
    MessageKind.RESPONSE_HEADERS: "response_headers",
    MessageKind.REQUEST_BODY: "request_body",
    MessageKind.RESPONSE_BODY: "response_body",
    MessageKind.REQUEST_TRAILERS: "request_trailers",
    MessageKind.RESPONSE_TRAILERS: "response_trailers",
}
NAMES = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=200)
RAW = st.binary(max_size=300)
HEADERS = st.lists(st.tuples(NAMES, RAW, st.sampled_from(["raw_value", "value", "both"])), max_size=12)
# Field numbers that no version of the message uses, in every wire type.
UNKNOWN = st.lists(
    st.sampled_from([b"\xa0\x06\x05", b"\xa2\x06\x03abc", b"\xa5\x06abcd", b"\xa1\x06abcdefgh"]), max_size=3
).map(b"".join)


def header_map(headers: list[tuple[str, bytes, str]]) -> base_pb2.HeaderMap:
    entries = []
    for name, raw, how in headers:
        text = raw.decode("latin-1") if how != "raw_value" else ""
        entries.append(base_pb2.HeaderValue(key=name, value=text, raw_value=b"" if how == "value" else raw))
    return base_pb2.HeaderMap(headers=entries)


def expected_headers(headers: base_pb2.HeaderMap) -> dict[str, str]:
    rows = ((h.key.lower(), h.raw_value or h.value.encode()) for h in headers.headers)
    return {key: value.decode("utf-8", "surrogateescape") for key, value in rows}


@given(
    kind=st.sampled_from([MessageKind.REQUEST_HEADERS, MessageKind.RESPONSE_HEADERS]),
    headers=HEADERS,
    end=st.booleans(),
    junk=UNKNOWN,
)
def test_headers_are_read_as_protobuf_reads_them(
    kind: int, headers: list[tuple[str, bytes, str]], end: bool, junk: bytes
) -> None:
    inner = pb.HttpHeaders(headers=header_map(headers), end_of_stream=end)
    inner.MergeFromString(junk)
    official = pb.ProcessingRequest(**{ONEOF[kind]: inner})
    official.MergeFromString(junk)
    message = decode(official.SerializeToString())
    assert (message.kind, message.end) == (kind, end)
    assert message.headers == expected_headers(inner.headers)


@given(
    kind=st.sampled_from([MessageKind.REQUEST_BODY, MessageKind.RESPONSE_BODY]),
    body=st.binary(max_size=5000),
    end=st.booleans(),
    junk=UNKNOWN,
)
def test_bodies_are_read_as_protobuf_reads_them(kind: int, body: bytes, end: bool, junk: bytes) -> None:
    inner = pb.HttpBody(body=body, end_of_stream=end)
    inner.MergeFromString(junk)
    official = pb.ProcessingRequest(**{ONEOF[kind]: inner})
    message = decode(official.SerializeToString() + junk)
    assert (message.kind, message.body, message.end) == (kind, body, end)


@given(kind=st.sampled_from([MessageKind.REQUEST_TRAILERS, MessageKind.RESPONSE_TRAILERS]), headers=HEADERS)
def test_trailers_are_read_as_protobuf_reads_them(kind: int, headers: list[tuple[str, bytes, str]]) -> None:
    inner = pb.HttpTrailers(trailers=header_map(headers))
    message = decode(pb.ProcessingRequest(**{ONEOF[kind]: inner}).SerializeToString())
    assert (message.kind, message.headers) == (kind, expected_headers(inner.trailers))


def test_metadata_and_modes() -> None:
    official = pb.ProcessingRequest(request_headers=pb.HttpHeaders())
    official.metadata_context.filter_metadata["envoy.lb"].update({"served": "1.2.3.4:80", "n": [1.5, True, None]})
    official.metadata_context.filter_metadata["other"].update({"x": "y"})
    official.protocol_config.request_body_mode = BodyMode.FULL_DUPLEX_STREAMED
    official.protocol_config.response_body_mode = BodyMode.BUFFERED
    message = decode(official.SerializeToString())
    assert message.metadata("envoy.lb") == {"served": "1.2.3.4:80", "n": [1.5, True, None]}
    assert message.metadata("nothing") is None
    assert message.body_modes() == (BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED)
    assert decode(pb.ProcessingRequest(request_body=pb.HttpBody()).SerializeToString()).body_modes() is None


def test_a_message_that_comes_twice_is_merged() -> None:
    one = pb.ProcessingRequest(request_headers=pb.HttpHeaders(headers=header_map([("a", b"1", "raw_value")])))
    two = pb.ProcessingRequest(
        request_headers=pb.HttpHeaders(headers=header_map([("b", b"2", "raw_value")]), end_of_stream=True)
    )
    message = decode(one.SerializeToString() + two.SerializeToString())
    assert (message.headers, message.end) == ({"a": "1", "b": "2"}, True)


def test_a_message_that_comes_many_times_is_merged_in_linear_time_and_memory() -> None:
    one = pb.ProcessingRequest(
        request_headers=pb.HttpHeaders(headers=header_map([("a", b"1", "raw_value")]))
    ).SerializeToString()

    def read(times: int) -> None:
        assert decode(one * times).headers == {"a": "1"}

    assert peak_bytes(lambda: read(18)) < 100_000, (
        "18 times, 216 bytes: it took megabytes once, and twice as many at 19"
    )
    assert peak_bytes(lambda: read(10_000)) < 8 * len(one) * 10_000
    assert count_work(lambda: read(4000)) < 5 * count_work(lambda: read(1000))


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(lambda n: {"n": [1.5] * n}, id="list"),
        pytest.param(lambda n: {f"k{i}": "v" for i in range(n)}, id="keys"),
    ],
)
def test_metadata_is_read_in_linear_time(entry: Callable[[int], dict[str, Any]]) -> None:
    def message(n: int) -> bytes:
        made = pb.ProcessingRequest(request_body=pb.HttpBody(body=b"x"))
        made.metadata_context.filter_metadata["envoy.lb"].update(entry(n))
        return bytes(made.SerializeToString())

    def read(data: bytes) -> None:
        assert decode(data).metadata("envoy.lb")

    small, large = message(500), message(2000)
    assert count_work(lambda: read(large)) < 5 * count_work(lambda: read(small))


def test_large_metadata_and_modes_are_not_remembered() -> None:
    """What is remembered stays small, whatever peers send."""

    def fill() -> None:
        for number in range(300):
            message = pb.ProcessingRequest(request_body=pb.HttpBody(body=b"x"))
            message.metadata_context.filter_metadata["envoy.lb"].update({"junk": f"{number}" + "x" * 100_000})
            raw = message.SerializeToString() + b"\x5a\x84\x80\x06" + b"\x1a\x80\x80\x06" + b"x" * 98_304
            found = decode(raw)
            assert found.metadata("envoy.lb")
            assert found.body_modes() == (0, 0)

    assert peak_bytes(fill) < 3_000_000, "300 messages of 200 KB"


def test_the_last_of_two_different_messages_counts() -> None:
    one = pb.ProcessingRequest(request_headers=pb.HttpHeaders(end_of_stream=True))
    two = pb.ProcessingRequest(request_body=pb.HttpBody(body=b"x"))
    message = decode(one.SerializeToString() + two.SerializeToString())
    assert (message.kind, message.body) == (MessageKind.REQUEST_BODY, b"x")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        message = decode(data)
        message.metadata("envoy.lb")
        message.body_modes()
    except Malformed:
        pass


@given(headers=HEADERS, data=st.data())
def test_a_mutated_message_is_a_message_or_malformed(headers: list[tuple[str, bytes, str]], data: Any) -> None:
    official = pb.ProcessingRequest(request_headers=pb.HttpHeaders(headers=header_map(headers)))
    official.metadata_context.filter_metadata["envoy.lb"].update({"k": ["v"]})
    raw = bytearray(official.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    test_any_bytes_are_a_message_or_malformed.hypothesis.inner_test(bytes(raw))  # type: ignore[attr-defined]


@given(
    kind=st.sampled_from([MessageKind.REQUEST_HEADERS, MessageKind.RESPONSE_HEADERS]),
    headers=st.lists(st.tuples(NAMES, st.text(max_size=200)), max_size=4),
    clear=st.booleans(),
    removed=st.lists(NAMES, max_size=3),
    metadata=st.none() | st.dictionaries(st.text(), st.dictionaries(st.text(), st.text()), max_size=2),
)
def test_header_replies(
    kind: int, headers: list[tuple[str, str]], clear: bool, removed: list[str], metadata: Any
) -> None:
    raw = messages.headers_reply(
        kind, set_headers=headers, remove_headers=removed, clear_route_cache=clear, metadata=metadata
    )
    reply = pb.ProcessingResponse.FromString(raw)
    assert reply.WhichOneof("response") == ONEOF[kind]
    common = getattr(reply, ONEOF[kind]).response
    assert [(o.header.key, o.header.raw_value.decode()) for o in common.header_mutation.set_headers] == headers
    assert all(o.append_action == o.OVERWRITE_IF_EXISTS_OR_ADD for o in common.header_mutation.set_headers)
    assert all(not o.header.value for o in common.header_mutation.set_headers), "Envoy reads raw_value only"
    assert list(common.header_mutation.remove_headers) == removed
    assert common.clear_route_cache == clear
    assert {k: dict(v) for k, v in dict(reply.dynamic_metadata).items()} == (metadata or {})


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 1_000_000])
@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("kind", [MessageKind.REQUEST_BODY, MessageKind.RESPONSE_BODY])
def test_bodies_leave_whole_in_chunks_that_envoy_takes(kind: int, size: int, end: bool) -> None:
    body = bytes(at % 251 for at in range(size))
    replies = [pb.ProcessingResponse.FromString(bytes(raw)) for raw in messages.body_replies(kind, body, end=end)]
    chunks = [getattr(reply, ONEOF[kind]).response.body_mutation.streamed_response for reply in replies]
    assert b"".join(chunk.body for chunk in chunks) == body
    assert all(len(chunk.body) <= CHUNK_BYTES for chunk in chunks)
    assert [chunk.end_of_stream for chunk in chunks] == [False] * (len(chunks) - 1) + [end]


def test_the_other_replies() -> None:
    plain = pb.ProcessingResponse.FromString(messages.continue_body(MessageKind.REQUEST_BODY))
    assert plain.request_body.HasField("response")
    assert not plain.request_body.response.HasField("body_mutation")
    trailers = pb.ProcessingResponse.FromString(messages.trailers_reply(MessageKind.RESPONSE_TRAILERS))
    assert trailers.WhichOneof("response") == "response_trailers"
    now = pb.ProcessingResponse.FromString(messages.immediate_reply(429, headers=(("a", "b"),), body=b"no"))
    assert now.immediate_response.status.code == 429
    assert now.immediate_response.headers.set_headers[0].header.raw_value == b"b"
    assert now.immediate_response.body == b"no"
