"""Token counts out of responses, however these are cut."""

import struct
import time

import pytest

from pointsman.epp.body.parsers import PARSERS
from pointsman.epp.extproc.tokens import Usage
from pointsman.epp.extproc.usage import UsageReader, usage_reader

CHAT = (
    b'{"id":"x","usage":{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17,'
    b'"prompt_tokens_details":{"cached_tokens":3}},"choices":[]}'
)
SSE = (
    b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}\n\n'
    b'data: {"choices":[{"delta":{"content":"the \\"usage\\" of words"}}],"usage":null}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17}}\n\n'
    b"data: [DONE]\n\n"
)
MESSAGES = (
    b'event: message_start\ndata: {"message":{"usage":{"input_tokens":7,"output_tokens":1}}}\n\n'
    b'event: message_delta\ndata: {"usage":{"input_tokens":7,"output_tokens":10,"cache_read_input_tokens":2}}\n\n'
)


def read(*chunks: bytes) -> Usage | None:
    reader = UsageReader()
    for chunk in chunks:
        reader.feed(chunk)
    reader.feed(b"", end=True)
    assert reader._kept == b""
    return reader.usage


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        pytest.param(CHAT, Usage(prompt=7, completion=10, cached=3), id="chat"),
        pytest.param(SSE, Usage(prompt=7, completion=10), id="streamed"),
        pytest.param(MESSAGES, Usage(prompt=7, completion=10, cached=2), id="messages"),
        pytest.param(
            b'event: message_start\ndata: {"message":{"usage":{"input_tokens":25,"cache_read_input_tokens":4}}}\n\n'
            b'event: message_delta\ndata: {"delta":{},"usage":{"output_tokens":15}}\n\n',
            Usage(prompt=25, completion=15, cached=4),
            id="messages that tell it in parts",
        ),
        pytest.param(
            b'{"choices":[{"message":{"usage":{"prompt_tokens":1}}}],"usage":{"prompt_tokens":7},"x":{"usage":{"a":1}}}',
            Usage(prompt=7),
            id="others within",
        ),
        pytest.param(b'{"choices":[{"usage":{"prompt_tokens":1}}]}', None, id="only within"),
        pytest.param(
            b'event: x\ndata: {"response":{"id":"}","usage":{"input_tokens":7,"output_tokens":2}}}\n\n',
            Usage(prompt=7, completion=2),
            id="responses",
        ),
        pytest.param(
            b'data: {"a":{"usage":{"prompt_tokens":1}},"usage":{"prompt_tokens":7},"b":["}"]}\n\n',
            Usage(prompt=7),
            id="an event's own comes first",
        ),
        pytest.param(b'{"usage":{"prompt_tokens":7.0}}', Usage(prompt=7), id="a float"),
        pytest.param(b'{"usage":null}', None, id="null"),
        pytest.param(b'{"usage":{"prompt_tokens":"7"}}', Usage(prompt=7), id="a number as text"),
        pytest.param(b"no healthy upstream", None, id="not JSON"),
        pytest.param(b"", None, id="empty"),
    ],
)
def test_usage_however_it_is_cut(body: bytes, usage: Usage | None) -> None:
    assert read(body) == usage
    assert read(*(body[at : at + 1] for at in range(len(body)))) == usage, "byte by byte"
    for cut in range(len(body)):
        assert read(body[:cut], body[cut:]) == usage, f"cut at {cut}"


def test_a_long_answer_costs_no_memory() -> None:
    reader = UsageReader()
    for _ in range(1000):
        reader.feed(b"x" * 10_000)
        assert len(reader._kept) < 100


@pytest.mark.parametrize(
    "number", ["9" * 5000, "9" * 400, "-1", "1e400", "true", '"x7"', '"-7"', "[" * 12_000], ids=lambda text: text[:8]
)
def test_numbers_that_are_no_tokens_count_nothing(number: str) -> None:
    usage = read(f'{{"usage": {{"prompt_tokens": {number}, "completion_tokens": 3}}}}'.encode())
    assert usage is None or usage.prompt == 0


def test_a_usage_that_never_ends_is_let_go() -> None:
    reader = UsageReader()
    reader.feed(b'{"usage": {')
    started = time.process_time()
    for _ in range(20_000):
        reader.feed(b'"a": 1, ' * 16)
    assert time.process_time() - started < 2  # it was searched from its beginning with every chunk
    reader.feed(b'}} {"usage": {"prompt_tokens": 4}}', end=True)
    assert reader.usage == Usage(prompt=4)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_usage_far_from_the_end_counts_too(streamed: bool) -> None:
    body = b'{"usage":{"prompt_tokens":7},"choices":["' + b"x" * 50_000 + b'"]}'
    body = b"data: " + body + b"\n\n" if streamed else body
    assert read(body) == Usage(prompt=7)
    assert read(*(body[at : at + 1000] for at in range(0, len(body), 1000))) == Usage(prompt=7)


def test_sglang_calls_it_meta_info() -> None:
    reader = usage_reader(PARSERS["sglanghttp-parser"], path="/generate")
    reader.feed(
        b'{"text":"x","meta_info":{"prompt_tokens":3,"completion_tokens":2,"cached_tokens":1,"usage":{}}}', end=True
    )
    assert reader.usage == Usage(prompt=3, completion=2, cached=1)


def frame(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


# GenerateResponse: a piece with tokens 1 and 2, 7 prompt tokens, 10 generated, 3 cached; the same as a whole answer.
PIECE = frame(bytes.fromhex("0a0a 0a020102 1007 180a 2003".replace(" ", "")))
WHOLE = frame(bytes.fromhex("1210 0a020102 120473746f70 1807 200a 2803".replace(" ", "")))
EMBEDDED = frame(bytes.fromhex("0a040000803f 1007 1801".replace(" ", "")))


@pytest.mark.parametrize(
    ("path", "body", "usage"),
    [
        ("/vllm.grpc.engine.VllmEngine/Generate", PIECE, Usage(prompt=7, completion=10, cached=3)),
        ("/vllm.grpc.engine.VllmEngine/Generate", WHOLE, Usage(prompt=7, completion=10, cached=3)),
        (
            "/vllm.grpc.engine.VllmEngine/Generate",
            frame(b"") + PIECE + frame(b"\xff"),
            Usage(prompt=7, completion=10, cached=3),
        ),
        ("/vllm.grpc.engine.VllmEngine/Embed", EMBEDDED, Usage(prompt=7)),
        ("/vllm.grpc.engine.VllmEngine/Embed", b"no healthy upstream", None),
        (
            "/vllm.grpc.engine.VllmEngine/Generate",
            frame(b"x" * (1 << 20)) + PIECE,
            Usage(prompt=7, completion=10, cached=3),
        ),
    ],
)
def test_usage_of_vllms_grpc_however_it_is_cut(path: str, body: bytes, usage: Usage | None) -> None:
    for size in (len(body), 1 if len(body) < 1000 else 999, 7):
        reader = usage_reader(PARSERS["vllmgrpc-parser"], path=path)
        for at in range(0, len(body), size):
            reader.feed(body[at : at + size])
            assert len(reader._kept) <= 1 << 18  # type: ignore[attr-defined]
        assert reader.usage == usage
