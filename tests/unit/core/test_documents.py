"""YAML that we write."""

from pointsman.core.documents import parse_yaml, to_yaml


def test_what_stands_twice_is_written_twice() -> None:
    shared = ["name"]
    document = {"a": shared, "b": {"c": shared}}
    text = to_yaml(document)
    assert "&" not in text and "*" not in text
    assert parse_yaml(text, name="it") == document
