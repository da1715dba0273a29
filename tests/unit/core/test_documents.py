"""YAML that we read and write."""

import itertools
import time

import pytest

from pointsman.core.documents import parse_yaml, to_yaml
from pointsman.core.errors import UserError


def test_what_stands_twice_is_written_twice() -> None:
    shared = ["name"]
    document = {"a": shared, "b": {"c": shared}}
    text = to_yaml(document)
    assert "&" not in text and "*" not in text
    assert parse_yaml(text, name="it") == document


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\n---\nb: 2\n",
            "f:2:1: not valid YAML: expected a single document in the stream, but found another document",
        ),
        ("a: *x\n", "f:1:4: not valid YAML: found undefined alias"),
        ("a: [1\n", "f:2:1: not valid YAML: did not find expected ',' or ']'"),
    ],
)
def test_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        parse_yaml(text, name="f")
    assert str(refusal.value) == message


BOMB = "a: &a [x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise("abcdefghij")
)

MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n" for before, name in itertools.pairwise("abcdefghij")
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("[" * 100_000 + "]" * 100_000, "levels deep", id="brackets"),
        pytest.param("- " * 100_000 + "a", "levels deep", id="dashes"),
        pytest.param("a: " + ":".join(["1"] * 200_000), "so many digits", id="base 60"),
        pytest.param("a: " + ":".join(["1"] * 200) + ".5", "so many digits", id="base 60 with a fraction"),
        pytest.param("a: 0x" + "f" * 200_000, "so many digits", id="hexadecimal"),
        pytest.param("a: " + "9" * 5000, "so many digits", id="decimal"),
        pytest.param(BOMB, "stand for too much", id="references"),
        pytest.param("&a [*a]", "stand for too much", id="itself"),
        pytest.param(MERGES, "stand for too much", id="merges"),
        pytest.param("a: &a {k: 1}\nb: {<<: [" + ", ".join(["*a"] * 50_000) + "]}", "stand for too much", id="a merge"),
        pytest.param("&a {<<: *a}", "recursion", id="merged into itself"),
        pytest.param("a: 1\nb: {c: 1, d: 2, 'c': 3}", "file:2:17.*'c' stands twice", id="a key twice"),
    ],
)  # fmt: skip
def test_documents_that_mean_harm_are_refused_at_once(text: str, complaint: str) -> None:
    started = time.monotonic()
    with pytest.raises(UserError, match=complaint):
        parse_yaml(text, name="file")
    assert time.monotonic() - started < 5


def test_merges_are_fine_and_what_is_written_beside_them_counts() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {<<: *a, y: 3}\nc: {<<: [*b, *a], z: 4}\nd: {<<: *b, 1: 1, '1': 2}"
    assert parse_yaml(text, name="file") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": {"x": 1, "y": 3, "z": 4},
        "d": {"x": 1, "y": 3, 1: 1, "1": 2},
    }


def test_references_are_fine() -> None:
    assert parse_yaml("a: &a [1]\nb: *a", name="file") == {"a": [1], "b": [1]}
