"""The model's name on the way back, however the response is cut."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.epp.extproc.rename import ResponseRenamer


def run(chunks: list[bytes], *, served: str = "real/model", asked: str = "alias") -> bytes:
    renamer = ResponseRenamer(served=served, asked=asked)
    out = [renamer.feed(chunk, end=False) for chunk in chunks]
    return b"".join([*out, renamer.feed(b"", end=True)])


BODY = b'data: {"id":"1","model":"real/model","x":"y"}\n\ndata: {"model" : "real/model"}\n\ndata: {"model":"other"}\n\n'
WANT = b'data: {"id":"1","model":"alias","x":"y"}\n\ndata: {"model" : "alias"}\n\ndata: {"model":"other"}\n\n'


def test_every_cut_in_two() -> None:
    for cut in range(len(BODY) + 1):
        assert run([BODY[:cut], BODY[cut:]]) == WANT, f"cut at {cut}"


def test_byte_by_byte() -> None:
    assert run([BODY[at : at + 1] for at in range(len(BODY))]) == WANT


@given(st.lists(st.integers(0, len(BODY)), max_size=8))
def test_any_cuts(cuts: list[int]) -> None:
    at = [0, *sorted(cuts), len(BODY)]
    assert run([BODY[a:b] for a, b in itertools.pairwise(at)]) == WANT


def test_an_event_leaves_whole_when_nothing_can_follow() -> None:
    renamer = ResponseRenamer(served="real/model", asked="alias")
    event = b'data: {"choices":[{"delta":{"content":"hi"}}],"model":"real/model"}\n\n'
    assert renamer.feed(event, end=False) == event.replace(b"real/model", b"alias"), "no token waits for the next"


@pytest.mark.parametrize(
    "body",
    [
        b'{"content":"\\"model\\":\\"real/model\\""}',
        b'{"model":"real/model-2"}',
        b'{"remodel":"real/model"}',
        b'{"model":["real/model"]}',
        b'"model"',
        b"",
    ],
)
def test_what_only_looks_like_it_is_left_alone(body: bytes) -> None:
    assert run([body]) == body


def test_names_that_json_escapes() -> None:
    served = 'a"b\\c/ü'
    for raw in (json.dumps({"model": served}), json.dumps({"model": served}, ensure_ascii=False)):
        assert json.loads(run([raw.encode()], served=served, asked="ö")) == {"model": "ö"}
