"""YAML as kubectl and OLM read it, and what is refused because somebody would pay for it."""

import json
import time

import pytest

from pointsman.bundle.reader import MAX_DEPTH, read_documents
from pointsman.core.errors import UserError


def read(text: str) -> object:
    (document,) = read_documents(text.encode(), name="file.yaml")
    return document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("2020-01-01", "2020-01-01", id="a date is text"),
        pytest.param("1:30", "1:30", id="no base sixty"),
        pytest.param("1e3", 1000.0, id="a float needs no point"),
        pytest.param("0644", 420, id="octal with a zero"),
        pytest.param("0o644", 420, id="octal with an o"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("-0b11", -3, id="binary"),
        pytest.param("1_000", 1000, id="underscores"),
        pytest.param("4294967295", 4294967295, id="integers stay integers"),
        pytest.param("18446744073709551616", 18446744073709551616, id="beyond 64 bits"),
        pytest.param("089", 89.0, id="no octal, and a float in Go"),
        pytest.param("yes", True, id="yes"),
        pytest.param("Off", False, id="Off"),
        pytest.param('"yes"', "yes", id="quoted"),
        pytest.param("!!str 5", "5", id="tagged"),
        pytest.param("~", None, id="null"),
        pytest.param("1.2.3", "1.2.3", id="version"),
        pytest.param("=", "=", id="no value tag"),
    ],
)
def test_a_scalar_means_what_go_takes_it_for(text: str, value: object) -> None:
    found = read(f"a: {text}")
    assert found == {"a": value}
    assert isinstance(found, dict)
    assert type(found["a"]) is type(value)


def test_a_key_is_a_name_whatever_it_looks_like() -> None:
    assert read("y: 1\nno: 2\n1: 3\nnull: 4") == {"y": 1, "no": 2, "1": 3, "null": 4}


def test_merge_keys_and_aliases_are_resolved() -> None:
    assert read("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  x: 3\nc: *a") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 3, "y": 2},
        "c": {"x": 1, "y": 2},
    }


def test_json_may_escape_a_character_as_two_halves() -> None:
    document = {"a": "\U0001f600", "b": "\\\\ud83d\\ude00", "c": "\\\U0001f600", "n": 1}
    assert read_documents(json.dumps(document).encode(), name="x") == [document]
    with pytest.raises(UserError, match="not valid YAML: found invalid Unicode"):
        read_documents(rb'{"a": "\ud83d"}', name="x")


def test_documents_follow_each_other_and_empty_ones_are_left_out() -> None:
    assert read_documents(b"a: 1\n---\n---\n# nothing\n---\nb: 2\n", name="f") == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("a: 1\na: 2", "file.yaml:2:1: key 'a' stands twice", id="a key twice"),
        pytest.param("a: *b", "file.yaml:1:4: \\*b refers to nothing", id="unknown alias"),
        pytest.param("a: &a [*a]", "\\*a refers to nothing", id="an alias to itself"),
        pytest.param("a: .inf", "file.yaml:1:4: .inf cannot stand", id="infinity"),
        pytest.param("a: !!python/object:os.system x", "has no meaning", id="foreign tag"),
        pytest.param("a: !x {b: 1}", "has no meaning", id="tagged mapping"),
        pytest.param("? [a]\n: 1", "a key must be text", id="a key that is a list"),
        pytest.param("a: [1", "file.yaml:2:1: not valid YAML", id="syntax"),
        pytest.param("a: \x01", "not valid YAML", id="control character"),
        pytest.param("<<: 1", "takes a mapping", id="merge of a number"),
        pytest.param("[" * (MAX_DEPTH + 1), "nested deeper", id="nesting"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        read(text)


def test_aliases_that_expand_are_refused_while_they_are_read() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    began = time.process_time()
    with pytest.raises(UserError, match="aliases expand to more than"):
        read("\n".join(lines))
    assert time.process_time() - began < 2


def test_one_long_text_with_many_aliases_is_refused_too() -> None:
    with pytest.raises(UserError, match="aliases expand to more than"):
        read(f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]")


def test_many_merges_of_a_wide_mapping_are_bounded() -> None:
    wide = "a: &a {" + ", ".join(f"k{n}: 1" for n in range(5000)) + "}\n"
    with pytest.raises(UserError, match="aliases expand to more than"):
        read(wide + "\n".join(f"b{n}: {{<<: *a}}" for n in range(2000)))


def test_a_file_beyond_the_limit_is_not_even_parsed() -> None:
    with pytest.raises(UserError, match=r"file.yaml: has \d+ bytes, more than"):
        read("a: " + "x" * (32 * 1024 * 1024))
