"""YAML that we read and write."""

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
