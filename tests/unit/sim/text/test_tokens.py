"""Tokens: the pattern, the ids, and what an echo gives back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.sim.text import tokens


def test_words_and_marks_keep_their_white_space() -> None:
    assert tokens.split("Hello,  you_two! (x)") == ["Hello", ",  ", "you_two", "! ", "(", "x", ")"]


@pytest.mark.parametrize(
    ("token", "number"),
    [
        pytest.param("", 0x811C9DC5, id="offset basis"),
        pytest.param("a", 0xE40C292C, id="published vector a"),
        pytest.param("foobar", 0xBF9CF968, id="published vector foobar"),
    ],
)
def test_ids_are_fnv1a_32(token: str, number: int) -> None:
    assert tokens.identify(token) == number


@given(st.text())
def test_counting_agrees_with_splitting(text: str) -> None:
    assert tokens.count(text) == len(tokens.split(text)) == len(tokens.encode(text))


@given(st.text())
def test_pieces_lose_nothing_and_are_as_many_as_tokens(text: str) -> None:
    pieces = tokens.pieces(text)
    assert "".join(pieces) == text
    assert len(pieces) == max(tokens.count(text), 1 if text else 0)
