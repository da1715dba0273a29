"""What is written reads back equal, by our reader and by others; text for Helm survives Helm's braces."""

import os
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.bundle.reader import read_documents
from pointsman.bundle.writer import Action, Template, write_document, write_documents

ODD = "yes N 1e3 0644 1:30 2020-01-01 a#b %a @a `a *a &a !a | > ? key: --- ... null ~ << = .5 +1 - -- --a -a 0x1 1_0"
ODD_TOO = "10m 1.5Gi é 😀 {{x}} on Null TRUE"
LINES = ["- a", "a: b", "a #b", "{{ x }}", "a\nb", "a\n\n", " a", "a ", "\n", "a \nb", ": ", "\ttab", "a\tb", "a\r\nb"]
CHARACTERS = ["\ufeffa", "a\u2028b", "\x85", "\x7f", "\x00", "a\n\ufeff", "a\n\x85b"]
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    [*ODD.split(), *ODD_TOO.split(), *LINES, *CHARACTERS]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=25,
)


def same(a: Any, b: Any) -> bool:
    """Say whether two values are equal, types included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@settings(max_examples=int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "60")))
@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_fuzz_everything_written_reads_back_equal(document: dict[str, Any]) -> None:
    text = write_document(document)
    (found,) = read_documents(text.encode(), name="f") or [None]
    assert same(found, document), text
    assert same(yaml.load(text, Loader=yaml.CSafeLoader), document), text


@pytest.mark.parametrize("helm", [False, True])
def test_empty_things_are_written(helm: bool) -> None:
    document: dict[str, Any] = {
        "a": {},
        "b": [],
        "c": "",
        "d": None,
        "e": 0,
        "f": False,
        "g": [{}, [], "", [[1]], {"x": {}}],
    }
    text = write_document(document, helm=helm)
    assert yaml.safe_load(text) == document


def test_lists_stand_under_their_key_and_text_is_bare_where_it_may_be() -> None:
    document = {"args": ["--leader-elect", "--bind=:8080"], "image": "quay.io/a/b:v1", "port": "8080", "on": "off"}
    assert write_document(document) == (
        'args:\n- --leader-elect\n- --bind=:8080\nimage: quay.io/a/b:v1\nport: "8080"\n"on": "off"\n'
    )


def test_several_lines_become_a_block() -> None:
    assert write_document({"a": {"b": "x\n  y\n"}}) == "a:\n  b: |\n    x\n      y\n"


def test_a_very_long_key_is_marked() -> None:
    key = "k" * 2000
    assert yaml.safe_load(write_document({key: {"a": [1]}, "b": {key: "x"}})) == {key: {"a": [1]}, "b": {key: "x"}}


def test_documents_are_separated() -> None:
    assert write_documents([{"a": 1}, {"b": 2}]) == "a: 1\n---\nb: 2\n"


def test_braces_of_a_bundle_are_written_so_that_helm_gives_them_back() -> None:
    text = write_document({"a": "{{ .Values.x }}", "{{k}}": "{{\n}}\n"}, helm=True)
    assert text == ('a: "{{ "{{" }} .Values.x }}"\n"{{ "{{" }}k}}": |\n  {{ "{{" }}\n  }}\n')


def test_a_template_keeps_its_actions_and_quotes_its_text() -> None:
    value = Template(("svc.", Action(".Release.Namespace"), '.svc"{{'))
    assert write_document({"a": value}, helm=True) == 'a: "svc.{{ .Release.Namespace }}.svc\\"{{ "{{" }}"\n'
    bare = Template((Action("toJson .Values.secrets"),), quoted=False)
    assert write_document({"a": bare}, helm=True) == "a: {{ toJson .Values.secrets }}\n"
