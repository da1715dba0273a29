"""A body in parts reads as the whole does."""

import json

import pytest

from pointsman.epp.body.parsers import PARSERS
from pointsman.epp.body.parts import Body
from pointsman.epp.body.payload import BodyReading
from pointsman.epp.request.request import Needs, TokenService

NEEDS = Needs(body=True, prompt=True, block_tokens=64)
SERVICE = TokenService(host="h", port=1, model="m")


@pytest.mark.parametrize(
    "needs", [NEEDS, Needs(body=True), Needs(body=True, prompt=True, block_tokens=64, tokenizer=SERVICE)]
)
@pytest.mark.parametrize("size", [10, 40_000, 300_000])
@pytest.mark.parametrize("part", [7_001, 16_384, 1_000_000])
def test_parts_read_as_the_whole(needs: Needs, size: int, part: int) -> None:
    whole = json.dumps({"model": "m", "messages": [{"role": "user", "content": "points\n" * (size // 7)}]}).encode()
    body = Body(needs=needs)
    for at in range(0, len(whole), part):
        body.add(memoryview(whole)[at : at + part], last=at + part >= len(whole))
    reading = body.read()
    assert reading is not None
    assert reading.body == whole
    assert reading.prompt() == BodyReading(whole, needs=needs).prompt()


def test_nothing_is_nothing() -> None:
    body = Body(needs=NEEDS)
    body.add(b"", last=True)
    assert body.read() is None


@pytest.mark.parametrize(("parser", "tools"), [("openai-parser", True), ("anthropic-parser", None)])
def test_tools_say_something_about_the_answer_only_where_thinking_would_be_seen_too(
    parser: str, tools: bool | None
) -> None:
    body = Body(needs=Needs(body=True, prompt=True, hints=True), parser=PARSERS[parser])
    body.add(json.dumps({"model": "m", "messages": [], "tools": [{"name": "t"}]}).encode(), last=True)
    reading = body.read()
    assert reading is not None
    prompt = reading.prompt()
    assert prompt is not None
    assert (prompt.hints.tools if prompt.hints is not None else None) is tools
