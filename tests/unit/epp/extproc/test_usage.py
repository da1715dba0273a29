"""Token counts out of responses, however these are cut."""

import time

import pytest

from pointsman.epp.extproc.usage import Usage, UsageReader

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
        pytest.param(b'{"usage":null}', None, id="null"),
        pytest.param(b'{"usage":{"prompt_tokens":"7"}}', Usage(), id="text where numbers belong"),
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
    "number", ["9" * 5000, "9" * 400, "-1", "1e400", "true", '"7"', "[" * 12_000], ids=lambda text: text[:8]
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
