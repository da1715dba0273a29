"""A table of changes to a definition, each with its verdict."""

# ruff: noqa: E501 - one line per pair reads as the table that it is

from typing import Any

import pytest
from tests.unit.crds.schemas import definition, version, with_field, with_spec

from pointsman.crds import Definition, compare

SAFE, BREAKING, NONE = "safe", "breaking", "no change"
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
LIST: dict[str, Any] = {"type": "array", "items": TEXT}
MAP: dict[str, Any] = {"type": "object", "additionalProperties": TEXT}
RULE = {"rule": "self.a != ''", "message": "a is needed"}
RULES = "x-kubernetes-validations"
KEEP = "x-kubernetes-preserve-unknown-fields"


def field(before: Any, after: Any, verdict: str, path: str, *, name: str) -> Any:
    """Return a pair that differs in one field."""
    return pytest.param(with_field(before), with_field(after), verdict, path, id=name)


def pair(before: Definition, after: Definition, verdict: str, path: str, *, name: str) -> Any:
    return pytest.param(before, after, verdict, path, id=name)


PAIRS = [
    # fields
    pair(with_spec(properties={"a": TEXT}), with_spec(properties={"a": TEXT, "b": TEXT}), SAFE, "v1: spec.b", name="field-added"),
    pair(with_spec(properties={"a": TEXT, "b": TEXT}), with_spec(properties={"a": TEXT}), BREAKING, "v1: spec.b", name="field-removed"),
    pair(with_spec(properties={"a": TEXT}), with_spec(properties={"b": TEXT}), BREAKING, "v1: spec.a", name="field-renamed"),
    pair(with_spec(properties={}, **{KEEP: True}), with_spec(properties={"a": TEXT}, **{KEEP: True}), BREAKING, "v1: spec.a", name="field-added-where-anything-was-kept"),
    field(TEXT, TEXT | {"description": "other words"}, NONE, "", name="description"),
    field(TEXT, NUMBER, BREAKING, "v1: spec.a.type", name="type-changed"),
    field(NUMBER, {"type": "number"}, BREAKING, "v1: spec.a.type", name="type-widened-is-not-known-to-be-safe"),
    field(NUMBER, NUMBER | {"format": "int32"}, BREAKING, "v1: spec.a.format", name="format-added"),
    field(NUMBER | {"format": "int32"}, NUMBER, SAFE, "v1: spec.a.format", name="format-removed"),
    field(NUMBER | {"format": "int64"}, NUMBER | {"format": "int32"}, BREAKING, "v1: spec.a.format", name="format-changed"),
    field(TEXT, TEXT | {"nullable": True}, SAFE, "v1: spec.a.nullable", name="null-allowed"),
    field(TEXT | {"nullable": True}, TEXT, BREAKING, "v1: spec.a.nullable", name="null-refused"),
    # required
    pair(with_field(TEXT), with_field(TEXT, required=["a"]), BREAKING, "v1: spec.required", name="required-added"),
    pair(with_field(TEXT, required=["a"]), with_field(TEXT), SAFE, "v1: spec.required", name="required-removed"),
    pair(with_spec(properties={"a": TEXT, "b": TEXT}, required=["a", "b"]), with_spec(properties={"a": TEXT, "b": TEXT}, required=["b", "a"]), NONE, "", name="required-in-another-order"),
    pair(with_field(TEXT), with_spec(properties={"a": TEXT, "b": {"type": "object", "properties": {"c": TEXT}, "required": ["c"]}}), SAFE, "v1: spec.b", name="required-inside-a-new-field"),
    # enums
    field(TEXT | {"enum": ["x", "y"]}, TEXT | {"enum": ["x"]}, BREAKING, "v1: spec.a.enum", name="enum-narrowed"),
    field(TEXT | {"enum": ["x"]}, TEXT | {"enum": ["x", "y"]}, SAFE, "v1: spec.a.enum", name="enum-widened"),
    field(TEXT, TEXT | {"enum": ["x"]}, BREAKING, "v1: spec.a.enum", name="enum-added"),
    field(TEXT | {"enum": ["x"]}, TEXT, SAFE, "v1: spec.a.enum", name="enum-removed"),
    field(TEXT | {"enum": ["x", "y"]}, TEXT | {"enum": ["y", "x"]}, SAFE, "v1: spec.a.enum", name="enum-in-another-order"),
    # bounds
    field(NUMBER | {"minimum": 1}, NUMBER | {"minimum": 2}, BREAKING, "v1: spec.a.minimum", name="minimum-raised"),
    field(NUMBER | {"minimum": 2}, NUMBER | {"minimum": 1}, SAFE, "v1: spec.a.minimum", name="minimum-lowered"),
    field(NUMBER, NUMBER | {"minimum": 0}, BREAKING, "v1: spec.a.minimum", name="minimum-added"),
    field(NUMBER | {"minimum": 0}, NUMBER, SAFE, "v1: spec.a.minimum", name="minimum-removed"),
    field(NUMBER | {"maximum": 5}, NUMBER | {"maximum": 4}, BREAKING, "v1: spec.a.maximum", name="maximum-lowered"),
    field(NUMBER | {"maximum": 4}, NUMBER | {"maximum": 5}, SAFE, "v1: spec.a.maximum", name="maximum-raised"),
    field(NUMBER | {"maximum": 4}, NUMBER | {"maximum": 4, "exclusiveMaximum": True}, BREAKING, "v1: spec.a.exclusiveMaximum", name="maximum-becomes-exclusive"),
    field(NUMBER, NUMBER | {"multipleOf": 2}, BREAKING, "v1: spec.a.multipleOf", name="multiple-added"),
    field(TEXT | {"maxLength": 9}, TEXT | {"maxLength": 8}, BREAKING, "v1: spec.a.maxLength", name="length-tightened"),
    field(TEXT | {"maxLength": 8}, TEXT | {"maxLength": 9}, SAFE, "v1: spec.a.maxLength", name="length-widened"),
    field(TEXT, TEXT | {"minLength": 0}, SAFE, "v1: spec.a.minLength", name="minimal-length-of-0-says-nothing"),
    field(TEXT, TEXT | {"minLength": 1}, BREAKING, "v1: spec.a.minLength", name="minimal-length-added"),
    field(LIST | {"maxItems": 8}, LIST | {"maxItems": 1}, BREAKING, "v1: spec.a.maxItems", name="items-tightened"),
    field(LIST | {"maxItems": 1}, LIST | {"maxItems": 8}, SAFE, "v1: spec.a.maxItems", name="items-widened"),
    field(LIST, LIST | {"minItems": 1}, BREAKING, "v1: spec.a.minItems", name="items-demanded"),
    field(LIST, LIST | {"uniqueItems": True}, BREAKING, "v1: spec.a.uniqueItems", name="items-unique"),
    field(MAP, MAP | {"maxProperties": 64}, BREAKING, "v1: spec.a.maxProperties", name="entries-bounded"),
    field(MAP | {"minProperties": 1}, MAP, SAFE, "v1: spec.a.minProperties", name="entries-freed"),
    # patterns and defaults
    field(TEXT, TEXT | {"pattern": "^a$"}, BREAKING, "v1: spec.a.pattern", name="pattern-added"),
    field(TEXT | {"pattern": "^a$"}, TEXT | {"pattern": "^a+$"}, BREAKING, "v1: spec.a.pattern", name="pattern-changed"),
    field(TEXT | {"pattern": "^a$"}, TEXT, SAFE, "v1: spec.a.pattern", name="pattern-removed"),
    field(TEXT | {"default": "x"}, TEXT | {"default": "y"}, BREAKING, "v1: spec.a.default", name="default-changed"),
    field(TEXT, TEXT | {"default": "x"}, BREAKING, "v1: spec.a.default", name="default-added"),
    field(TEXT | {"default": "x"}, TEXT, BREAKING, "v1: spec.a.default", name="default-removed"),
    field(TEXT | {"default": ""}, TEXT, BREAKING, "v1: spec.a.default", name="empty-default-removed"),
    field(NUMBER | {"default": 1}, NUMBER | {"default": True}, BREAKING, "v1: spec.a.default", name="default-1-is-not-true"),
    # rules
    pair(with_field(TEXT), with_field(TEXT, **{RULES: [RULE]}), BREAKING, f"v1: spec.{RULES}", name="rule-added"),
    pair(with_field(TEXT, **{RULES: [RULE]}), with_field(TEXT), SAFE, f"v1: spec.{RULES}", name="rule-removed"),
    pair(with_field(TEXT, **{RULES: [RULE]}), with_field(TEXT, **{RULES: [RULE | {"message": "write a"}]}), NONE, "", name="rule-says-it-in-other-words"),
    pair(with_field(TEXT, **{RULES: [RULE]}), with_field(TEXT, **{RULES: [RULE | {"rule": "self.a == 'x'"}]}), BREAKING, f"v1: spec.{RULES}", name="rule-changed"),
    pair(with_field(TEXT, **{RULES: [RULE]}), with_field(TEXT, **{RULES: [RULE | {"optionalOldSelf": True}]}), BREAKING, f"v1: spec.{RULES}", name="rule-asks-for-what-was"),
    # lists, maps and what is inside
    field(LIST, LIST | {"x-kubernetes-list-type": "set"}, BREAKING, "v1: spec.a.x-kubernetes-list-type", name="list-becomes-a-set"),
    field(LIST, LIST | {"x-kubernetes-list-type": "atomic"}, NONE, "", name="list-says-that-it-is-atomic"),
    field(LIST | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"]}, LIST | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["y"]}, BREAKING, "v1: spec.a.x-kubernetes-list-map-keys", name="list-keys-changed"),
    field(MAP, MAP | {"x-kubernetes-map-type": "atomic"}, BREAKING, "v1: spec.a.x-kubernetes-map-type", name="map-becomes-atomic"),
    field(LIST, LIST | {"items": TEXT | {"maxLength": 3}}, BREAKING, "v1: spec.a[].maxLength", name="items-inside"),
    field(MAP, MAP | {"additionalProperties": NUMBER}, BREAKING, "v1: spec.a{}.type", name="values-inside"),
    field(MAP, {"type": "object", "additionalProperties": True}, BREAKING, "v1: spec.a.additionalProperties", name="values-of-another-shape"),
    field({"type": "object", KEEP: True}, {"type": "object"}, BREAKING, f"v1: spec.a.{KEEP}", name="unknown-fields-pruned"),
    field({"type": "object"}, {"type": "object", KEEP: True}, SAFE, f"v1: spec.a.{KEEP}", name="unknown-fields-kept"),
    field(TEXT, {"x-kubernetes-int-or-string": True}, BREAKING, "v1: spec.a.type", name="int-or-string"),
    field(TEXT, TEXT | {"not": {"enum": ["x"]}}, BREAKING, "v1: spec.a.not", name="keyword-that-we-cannot-judge"),
    field(TEXT, TEXT | {"x-kubernetes-from-the-future": 1}, BREAKING, "v1: spec.a.x-kubernetes-from-the-future", name="keyword-of-a-later-kubernetes"),
    # versions
    pair(definition(), definition(version(), version("v2", storage=False)), SAFE, "v2", name="version-added"),
    pair(definition(version(), version("v2", storage=False)), definition(), BREAKING, "v2", name="version-removed"),
    pair(definition(), definition(version(served=False)), BREAKING, "v1: served", name="version-not-served"),
    pair(definition(), definition(version(deprecated=True, deprecationWarning="old")), SAFE, "v1: deprecated", name="version-deprecated"),
    pair(definition(version(), version("v2", storage=False)), definition(version(storage=False), version("v2")), SAFE, "storage", name="storage-moved-to-the-same-schema"),
    pair(definition(version(), version("v2", storage=False, spec={"type": "object"})), definition(version(storage=False), version("v2", spec={"type": "object"})), BREAKING, "storage", name="storage-moved-to-a-smaller-schema"),
    pair(definition(version(subresources={"status": {}})), definition(), BREAKING, "v1: subresources", name="status-removed"),
    pair(definition(), definition(version(subresources={"status": {}})), BREAKING, "v1: subresources", name="status-added"),
    pair(definition(version(subresources={"status": {}})), definition(version(subresources={"status": {}, "scale": {}})), SAFE, "v1: subresources", name="scale-added"),
    pair(definition(), definition(version(additionalPrinterColumns=[{"name": "Age"}])), SAFE, "v1: additionalPrinterColumns", name="columns"),
    pair(definition(version(selectableFields=[{"jsonPath": ".a"}])), definition(), BREAKING, "v1: selectableFields", name="selectable-field-removed"),
    pair(definition(), definition(version(newThing=1)), BREAKING, "v1: newThing", name="part-of-a-version-that-we-do-not-know"),
    # the definition itself
    pair(definition(), definition(scope="Cluster"), BREAKING, "scope", name="scope"),
    pair(definition(), definition(conversion={"strategy": "Webhook"}), BREAKING, "conversion", name="conversion-by-webhook"),
    pair(definition(), definition(conversion={"strategy": "None"}), NONE, "", name="conversion-as-the-server-writes-it"),
    pair(definition(), definition(names={"shortNames": ["th"]}), SAFE, "names.shortNames", name="short-name-added"),
    pair(definition(names={"shortNames": ["th"]}), definition(), BREAKING, "names.shortNames", name="short-name-removed"),
    pair(definition(), definition(names={"listKind": "ThingList", "singular": "thing"}), NONE, "", name="names-as-the-server-writes-them"),
    pair(definition(), definition(names={"listKind": "Things"}), BREAKING, "names.listKind", name="list-kind-changed"),
    pair(definition(), definition(newPart={}), BREAKING, "newPart", name="part-that-we-do-not-know"),
]  # fmt: skip


def test_there_are_enough() -> None:
    assert len(PAIRS) >= 40


@pytest.mark.parametrize(("before", "after", "verdict", "path"), PAIRS)
def test_verdict(before: Definition, after: Definition, verdict: str, path: str) -> None:
    changes = compare(before, after)
    worst = NONE if not changes else BREAKING if changes[0].breaking else SAFE
    assert worst == verdict, changes
    assert verdict == NONE or path in [change.path for change in changes if change.breaking == (verdict == BREAKING)]


@pytest.mark.parametrize(("before", "after", "verdict", "path"), PAIRS)
def test_nothing_changes_into_itself(before: Definition, after: Definition, verdict: str, path: str) -> None:
    assert compare(before, before) == compare(after, after) == []
