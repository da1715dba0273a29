"""Values drawn from schemas: they fit, they repeat, they end; what cannot be met is refused with its place."""

import contextlib
import re
from datetime import date, datetime
from enum import Enum
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from pointsman.sim.engine.chance import Chance
from pointsman.sim.failures import Refusal
from pointsman.sim.text import patterns, shapes
from pointsman.sim.text.schemas import Bounds, check, draw


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Wagon(BaseModel):
    number: Annotated[int, Field(ge=1000, le=1003)]
    weight: Annotated[float, Field(gt=200, lt=201)]
    colour: Colour
    note: str | None = None


class Train(BaseModel):
    name: Annotated[str, Field(min_length=12, max_length=14)]
    code: Annotated[str, Field(pattern=r"^[A-Z]{3}-\d{2,4}(x|yz)$")]
    kind: Literal["freight", "express"]
    wagons: Annotated[list[Wagon], Field(min_length=2, max_length=4)]
    leader: Wagon | str
    pair: tuple[int, str]
    days: dict[str, int]
    leaves: datetime
    day: date
    address: IPv4Address
    identity: UUID
    step: Annotated[int, Field(multiple_of=7, ge=50)]


class Station(BaseModel):
    name: str
    next: "Station | None"
    lines: list["Station"]


@pytest.mark.parametrize("model", [Train, Station])
def test_models_of_pydantic_accept_what_is_drawn_from_their_schemas(model: type[BaseModel]) -> None:
    for seed in range(200):
        model.model_validate(draw(model.model_json_schema(), Chance(seed), bounds=Bounds(), name="m"))


def test_the_same_seed_draws_the_same() -> None:
    schema = Train.model_json_schema()
    one, two, other = (draw(schema, Chance(seed), bounds=Bounds(), name="m") for seed in (1, 1, 2))
    assert one == two != other


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        pytest.param(5, "s is not a schema", id="no schema"),
        pytest.param({"type": "text"}, "s has type 'text'", id="type"),
        pytest.param({"enum": []}, "enum without values", id="enum"),
        pytest.param({"type": "integer", "minimum": 5, "maximum": 4}, "minimum 5 is above its maximum 4", id="range"),
        pytest.param({"type": "integer", "minimum": 1.2, "maximum": 1.8}, "allows no integer", id="no integer"),
        pytest.param(
            {"type": "integer", "minimum": 1e299, "maximum": 1e299, "multipleOf": 1e-300}, "too small", id="steps"
        ),
        pytest.param({"type": "number", "minimum": 1e299, "multipleOf": 1e-300}, "too small", id="steps of a number"),
        pytest.param({"type": "string", "minLength": 9, "maxLength": 3}, "a text of 9 letters", id="length"),
        pytest.param({"type": "string", "minLength": 10**9}, "a text of 1000000000 letters", id="endless"),
        pytest.param({"type": "array", "minItems": 10**9}, "wants 1000000000 items", id="many"),
        pytest.param({"type": "string", "pattern": "("}, "cannot be drawn from", id="pattern"),
        pytest.param({"type": "string", "pattern": "a{100000}"}, "wants 100000 letters", id="long pattern"),
        pytest.param({"type": "string", "pattern": "(?=a)b"}, "assert is not supported", id="look-ahead"),
        pytest.param({"$ref": "#/$defs/no"}, "'#/\\$defs/no', which is not there", id="nowhere"),
        pytest.param({"$ref": "http://x/y"}, "only references into itself", id="elsewhere"),
        pytest.param({"$ref": "#"}, "refers to itself without end", id="itself"),
        pytest.param({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "goes too deep", id="endless tree"),
        pytest.param({"required": ["a"], "additionalProperties": False}, "requires 'a'", id="required"),
        pytest.param({"allOf": [{"type": "string"}, {"type": "null"}]}, "allOf of different types", id="allOf"),
        pytest.param({"anyOf": [5]}, "alternatives without a schema", id="anyOf"),
        pytest.param({"properties": {"a": {"minimum": "x"}}, "required": ["a"]}, "s.a has a minimum", id="inside"),
    ],
)
def test_a_schema_that_cannot_be_met_says_where_and_why(schema: Any, reason: str) -> None:
    with pytest.raises(Refusal, match=reason) as caught:
        draw(schema, Chance(1), bounds=Bounds(), name="s")
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "pattern",
    [
        r"\\d{3}-\\d{4}",
        "[^a-y]+",
        "(foo|bar)?baz",
        "[a-f0-9]{8}",
        r"^\\w+@\\w+\\.(com|org)$",
        ".*",
        "a|b|",
        r"\\S\\s\\D\\W",
    ],
)
def test_texts_match_their_pattern(pattern: str) -> None:
    for seed in range(50):
        assert re.fullmatch(pattern, patterns.draw(pattern, Chance(seed)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "anyOf",
                    "allOf",
                    "$ref",
                    "enum",
                    "required",
                    "minimum",
                    "maxItems",
                    "pattern",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=120)
@given(schema=json_values, seed=st.integers(0, 9))
def test_any_schema_gives_a_value_or_one_refusal(schema: Any, seed: int) -> None:
    with contextlib.suppress(Refusal):
        draw(schema, Chance(seed), bounds=Bounds(), name="s")


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        pytest.param({"choice": ["yes", "no"]}, {"yes", "no"}, id="choice"),
        pytest.param({"regex": "a[12]"}, {"a1", "a2"}, id="pattern"),
        pytest.param({"json": '{"enum": [1, 2]}'}, {"1", "2"}, id="schema as text"),
        pytest.param({"json": {"const": "x"}}, {'"x"'}, id="schema"),
    ],
)
def test_shapes_of_vllm(given: dict[str, Any], texts: set[str]) -> None:
    shape = shapes.from_vllm(given)
    assert shape is not None
    assert {shape.text(Chance(seed), bounds=Bounds()) for seed in range(40)} == texts


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param({"grammar": "root ::= x"}, "grammar is not simulated", id="grammar"),
        pytest.param({"regex": "a", "choice": ["b"]}, "choose one", id="two"),
        pytest.param({"choice": []}, "must be a list of texts", id="no choice"),
        pytest.param({"json": "{"}, "is not JSON", id="no JSON"),
    ],
)
def test_shapes_that_cannot_be_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        shapes.from_vllm(given)


def test_an_answer_with_a_shape_is_cut_at_its_limit() -> None:
    shape = shapes.from_format({"type": "json_object"}, name="f")
    assert shape is not None
    assert shape.answer(Chance(1), bounds=Bounds(), most=2).finish_reason == "length"
    assert shape.answer(Chance(1), bounds=Bounds(), most=99).finish_reason == "stop"


NODE = {"type": "object", "properties": {"v": {"type": "integer"}}, "required": ["v"], "additionalProperties": False}
HARD: dict[str, dict[str, Any]] = {
    "two kinds, one without end": {
        "$defs": {
            "Sum": {"type": "object", "properties": {"l": {"$ref": "#/$defs/E"}, "r": {"$ref": "#/$defs/E"}},
                    "required": ["l", "r"], "additionalProperties": False},
            "E": {"oneOf": [{"$ref": "#/$defs/Sum"}, NODE]},
        },
        "$ref": "#/$defs/E",
    },
    "oneOf, one inside the other": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "oneOf of multiples": {"type": "integer", "oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]},
    "oneOf of required": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                          "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "anyOf beside properties": {"properties": {"k": {"type": "string"}}, "required": ["k"],
                                "anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                                          {"properties": {"b": {"const": 1}}, "required": ["b"]}]},
    "anyOf and oneOf": {"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 2}],
                        "oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]},
    "an alternative that cannot be met": {"anyOf": [{"type": "integer", "minimum": 5, "maximum": 1}, {"type": "null"}]},
    "allOf of bounds": {"allOf": [{"type": "integer", "maximum": 12}, {"minimum": 10}, {"minimum": 5}]},
    "allOf of a property": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}},
                                       "required": ["a"]}, {"properties": {"a": {"maximum": 4}}}]},
    "allOf of enums": {"allOf": [{"enum": ["a", "b", "c"]}, {"enum": ["c", "d"]}]},
    "allOf of types": {"allOf": [{"type": ["string", "integer"]}, {"type": ["number", "null"]}]},
    "not a constant": {"type": "integer", "minimum": 1, "maximum": 2, "not": {"const": 1}},
    "not of an enum": {"enum": ["a", "b", "c"], "not": {"enum": ["a", "b"]}},
    "not required": {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"],
                     "not": {"required": ["a"]}},
    "a property that must not be": {"type": "object", "properties": {"a": False, "b": {"type": "null"}}},
    "patterns of names": {"type": "object", "patternProperties": {"^S_": {"type": "string"}, "^I_": {"const": 1}},
                          "additionalProperties": False, "minProperties": 2},
    "a required name by its pattern": {"type": "object", "patternProperties": {"^I_": {"type": "integer"}},
                                       "required": ["I_a"], "additionalProperties": False},
    "an enum with a type": {"type": "string", "enum": [1, "a", None]},
    "an enum with bounds": {"enum": [1, 5, 9], "minimum": 4, "maximum": 6},
    "an enum with a pattern": {"enum": ["aa", "bb"], "pattern": "^b"},
    "different items": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 3, "uniqueItems": True},
    "as many as there are": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 10},
                             "minItems": 10, "uniqueItems": True},
    "no items beyond": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    "fewer than have a place": {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "maxItems": 1},
    "contains": {"type": "array", "items": {"type": "integer"}, "contains": {"const": 42}, "minItems": 3},
    "contains some": {"type": "array", "contains": {"type": "integer"}, "minContains": 2, "maxContains": 3},
    "multiples of a tenth": {"type": "number", "multipleOf": 0.1, "minimum": 0.25, "maximum": 0.95},
    "multiples beyond a bound": {"type": "number", "multipleOf": 5, "exclusiveMinimum": 5, "maximum": 10},
    "integers among fractions": {"type": "integer", "multipleOf": 1.5, "minimum": 1, "maximum": 5},
    "a pattern with a length": {"type": "string", "pattern": "^[a-z]+$", "minLength": 8, "maxLength": 9},
    "a pattern with a format": {"type": "string", "format": "date", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
    "a pattern that is found": {"type": "string", "pattern": "x", "minLength": 5},
    "two patterns": {"type": "string", "pattern": "^[a-z]{2,9}$", "allOf": [{"pattern": "^.{4}$"}]},
    "patterns of JavaScript": {"type": "string", "pattern": r"^(?<first>\p{Lu})\p{L}{3} [äöü]$"},
    "a short address": {"type": "string", "format": "email", "maxLength": 12},
    "a long address": {"type": "string", "format": "email", "minLength": 40},
    "other properties": {"type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 3,
                         "additionalProperties": {"type": "integer"}},
    "few properties": {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "maxProperties": 1},
    "names": {"type": "object", "propertyNames": {"pattern": "^[A-Z]{2}$"}, "minProperties": 2},
    "one wants another": {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
    "one wants more": {"type": "object", "properties": {"a": {}, "b": {"type": "string"}}, "required": ["a"],
                       "dependentSchemas": {"a": {"required": ["b"], "properties": {"b": {"minLength": 30}}}}},
    "if": {"type": "object", "properties": {"c": {"enum": ["US", "NL"]}, "zip": {"type": "string"}},
           "required": ["c", "zip"], "if": {"properties": {"c": {"const": "US"}}},
           "then": {"properties": {"zip": {"pattern": r"^\d{5}$"}}},
           "else": {"properties": {"zip": {"pattern": r"^\d{4} [A-Z]{2}$"}}}},
    "nothing that is not told": {"type": "object", "allOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}],
                                 "properties": {"b": {"type": "string"}}, "unevaluatedProperties": False},
    "odd references": {"$defs": {"a/b": {"const": 1}, "e f": True, "A": {"$anchor": "x", "type": "null"}},
                       "type": "object", "required": ["x", "y", "z"],
                       "properties": {"x": {"$ref": "#/$defs/a~1b"}, "y": {"$ref": "#/$defs/e%20f"},
                                      "z": {"$ref": "#x"}}},
    "an older draft": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["a"],
                       "properties": {"a": {"items": [{"type": "integer"}, {"type": "null"}], "minItems": 2,
                                            "additionalItems": False}, "b": {"type": "string"}},
                       "dependencies": {"a": ["b"]}},
}  # fmt: skip


@pytest.mark.parametrize("schema", [pytest.param(schema, id=name) for name, schema in HARD.items()])
def test_a_validator_takes_what_is_drawn(schema: dict[str, Any]) -> None:
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    check(schema, name="s")
    for seed in range(40):
        validator.validate(draw(schema, Chance(seed), bounds=Bounds(), name="s"))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        pytest.param({"not": {}}, "s fits its not", id="not"),
        pytest.param({"oneOf": [{"type": "null"}, {"type": "null"}]}, "s fits 2 of its oneOf", id="oneOf"),
        pytest.param({"type": "integer", "const": "x"}, "no value in its enum or const", id="const"),
        pytest.param({"properties": {"a": False}, "required": ["a"]}, "s.a allows nothing", id="false"),
        pytest.param(
            {"items": {"enum": [1, 2]}, "minItems": 3, "uniqueItems": True},
            "3 different items, and we find 2",
            id="set",
        ),
        pytest.param({"type": "integer", "multipleOf": 7, "minimum": 50, "maximum": 55}, "no multiple", id="multiple"),
        pytest.param({"type": "number", "multipleOf": 10, "minimum": 1, "maximum": 9}, "no multiple", id="number"),
        pytest.param({"type": "integer", "multipleOf": 0}, "not above zero", id="zero"),
        pytest.param({"pattern": "^[a-z]{3}$", "minLength": 8}, "no text that we can write", id="pattern"),
        pytest.param({"pattern": "a^b"}, "no text that we can write", id="never"),
        pytest.param({"required": ["a", "b"], "maxProperties": 1}, "requires 2 properties, at most 1", id="too many"),
        pytest.param({"format": "uuid", "maxLength": 5}, "format uuid with 0 to 5 letters", id="format"),
        pytest.param({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "is not met after", id="twice itself"),
    ],
)
def test_contradictions_are_refused_whoever_draws(schema: Any, reason: str) -> None:
    for seed in range(3):
        with pytest.raises(Refusal, match=reason):
            draw(schema, Chance(seed), bounds=Bounds(), name="s")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("^(a+)+$", "a" * 3000 + "b"), ("(x?){30}x{30}", "x" * 29), ("^(([a-z])+.)+[A-Z]$", "a" * 2000)],
)
def test_no_pattern_takes_long(pattern: str, text: str) -> None:
    with contextlib.suppress(ValueError):
        assert not patterns.matches(pattern, text)


@settings(max_examples=80)
@given(pattern=st.sampled_from([r"^a|b$", r"(ab){2,3}c?", r"\bx\w*", "[^0-9]{2}", r"^\d+(\.\d+)?$", "a{2,}b*?"]),
       text=st.text("abcx01. ", max_size=9))  # fmt: skip
def test_texts_match_as_python_says(pattern: str, text: str) -> None:
    assert patterns.matches(pattern, text) == bool(re.search(pattern, text))


def test_a_pattern_that_nothing_matches_is_refused() -> None:
    with pytest.raises(Refusal, match=r"structured_outputs\.regex: we find no text"):
        shapes.from_vllm({"regex": "a^b"})
