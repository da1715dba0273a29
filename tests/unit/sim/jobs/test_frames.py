"""A frame around any text gives the event that encoding the whole would have given."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.sim.jobs.frames import GAP, event, frame, named_event


@given(st.lists(st.text(max_size=20), max_size=4), st.text(max_size=5))
def test_events_are_those_of_the_whole_document(pieces: list[str], model: str) -> None:
    made = frame(event({"model": model, "text": GAP, "logprobs": None})).around(pieces)
    assert made == b"".join(event({"model": model, "text": piece, "logprobs": None}) for piece in pieces)


@pytest.mark.parametrize("model", ["m", GAP, f"{GAP}{GAP}", '"\\u0000"'])
def test_a_model_may_be_called_what_the_gap_is_called(model: str) -> None:
    (line,) = frame(event({"model": model, "text": GAP})).around(["x"]).splitlines()[:1]
    assert json.loads(line.removeprefix(b"data: ")) == {"model": model, "text": "x"}


def test_named_events_say_their_name_twice() -> None:
    assert named_event("ping", {"a": 1}) == b'event: ping\ndata: {"type":"ping","a":1}\n\n'
