"""Reading ahead changes nothing but when the work is done: for any body, cut anywhere."""

import json
import os
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pointsman.epp.body.ahead import Ahead
from pointsman.epp.body.payload import BodyReading
from pointsman.epp.body.prompts import seed
from pointsman.epp.request.refusals import BadRequest
from pointsman.epp.request.request import Needs, Prompt

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "300"))
NEEDS = Needs(body=True, prompt=True, block_tokens=2)

texts = st.text(alphabet=st.sampled_from('ab"\\/\n\t{}[]:,é漢😀\ud83d "content":"'), max_size=40)
blocks = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts})
    | st.fixed_dictionaries({"type": st.just("image_url"), "image_url": st.fixed_dictionaries({"url": texts})}),
    max_size=3,
)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts | blocks}), max_size=4
)
members = {
    "model": texts,
    "messages": messages,
    "prompt": texts | st.lists(texts, max_size=3) | st.lists(st.integers(0, 9), max_size=9),
    "system": texts,
    "tools": st.lists(st.fixed_dictionaries({"type": texts}), max_size=2),
    "cache_salt": texts,
    "temperature": st.integers(0, 2),
}


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    keys = draw(st.lists(st.sampled_from(sorted(members)), unique=True, max_size=5))
    document = {key: draw(members[key]) for key in keys}
    ascii_, indent = draw(st.booleans()), draw(st.sampled_from((None, 1)))
    return json.dumps(document, ensure_ascii=ascii_, indent=indent).encode("utf-8", "surrogatepass")


def read(body: bytes, *, borders: list[int], max_blocks: int = 0) -> tuple[Prompt | None, str]:
    needs = Needs(body=True, prompt=True, block_tokens=2, max_blocks=max_blocks)
    ahead = Ahead(block_tokens=2, max_blocks=max_blocks)
    cuts = [0, *sorted(border % (len(body) + 1) for border in borders), len(body)]
    for start, stop in pairwise(cuts):
        ahead.feed(body[start:stop])
    try:
        return BodyReading(body, needs=needs, ahead=ahead).prompt(), ""
    except BadRequest as refusal:
        return None, str(refusal)


def plain(body: bytes, *, max_blocks: int = 0) -> tuple[Prompt | None, str]:
    needs = Needs(body=True, prompt=True, block_tokens=2, max_blocks=max_blocks)
    try:
        return BodyReading(body, needs=needs).prompt(), ""
    except BadRequest as refusal:
        return None, str(refusal)


@settings(max_examples=EXAMPLES)
@given(bodies(), st.lists(st.integers(0, 1000), max_size=6), st.integers(0, 3))
def test_fuzz_any_borders_give_the_same_prompt(body: bytes, borders: list[int], max_blocks: int) -> None:
    assert read(body, borders=borders, max_blocks=max_blocks) == plain(body, max_blocks=max_blocks)


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
@example(b'{"prompt":"\\', [12])
@example(b'{"prompt":"\\ud83d\\ude00"}', [17])
@example(b'{"prompt":"\\x"}', [])
@example(b'{"prompt":"\xff"}', [])
def test_fuzz_no_bytes_make_it_raise(body: bytes, borders: list[int]) -> None:
    assert read(body, borders=borders) == plain(body)


USUAL = [
    pytest.param({"model": "m", "prompt": 'a\nb"c\\d\\\\e é漢😀' * 9}, id="completions"),
    pytest.param(
        {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "x\n" * 50}]},
        id="chat",
    ),
    pytest.param(
        {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "abc" * 30}]}]}, id="blocks"
    ),
    pytest.param(
        {"model": "m", "system": "be brief", "messages": [{"role": "user", "content": "x" * 50}]}, id="system"
    ),
    pytest.param({"model": "m", "instructions": "i", "input": "x" * 50}, id="responses"),
]


@pytest.mark.parametrize("ascii_", [True, False], ids=["escaped", "as it is"])
@pytest.mark.parametrize("document", USUAL)
def test_the_guess_is_right_for_usual_bodies_at_every_border(document: dict[str, Any], ascii_: bool) -> None:
    body = json.dumps(document, ensure_ascii=ascii_).encode()
    expected, _ = plain(body)
    assert expected is not None and len(expected.blocks) > 5
    text = BodyReading(body, needs=NEEDS)._text()[0][0]
    for border in range(len(body)):
        ahead = Ahead(block_tokens=2, max_blocks=0)
        ahead.feed(body[:border])
        ahead.feed(body[border:])
        assert ahead.agrees(text) is not None, border
        assert BodyReading(body, needs=NEEDS, ahead=ahead).prompt() == expected


def test_byte_by_byte() -> None:
    body = json.dumps({"model": "ü", "prompt": '\\"\n漢😀' * 30}).encode()
    assert read(body, borders=list(range(len(body)))) == plain(body)


def test_most_of_the_chain_is_there_before_the_end() -> None:
    body = json.dumps({"model": "m", "prompt": "x" * 1000}).encode()
    ahead = Ahead(block_tokens=2, max_blocks=0)
    ahead.feed(body[:-100])
    hasher = ahead.agrees(b"x" * 1000)
    assert hasher is not None
    expected, _ = plain(body)
    assert expected is not None
    known = hasher.chain(seed(b"m"), most=1000)
    assert len(known) > 100
    assert known == expected.blocks[: len(known)]


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            {"model": "m", "messages": [{"role": "user", "content": "x" * 50}], "tools": [{"a": 1}]},
            id="tools come late",
        ),
        pytest.param({"model": "m", "messages": [{"content": "x" * 50, "role": "user"}]}, id="the role comes late"),
        pytest.param({"prompt": "x" * 99, "model": "m"}, id="the model comes late"),
        pytest.param({"prompt": "x" * 99}, id="no model"),
    ],
)
def test_a_wrong_guess_is_not_used(document: dict[str, Any]) -> None:
    body = json.dumps(document).encode()
    ahead = Ahead(block_tokens=2, max_blocks=0)
    ahead.feed(body)
    assert ahead.agrees(BodyReading(body, needs=NEEDS)._text()[0][0]) is None
    assert read(body, borders=[]) == plain(body)
