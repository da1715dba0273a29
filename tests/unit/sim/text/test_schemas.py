"""Values drawn from schemas: they fit, they repeat, they end; what cannot be met is refused with its place."""

import contextlib
import re
from datetime import date, datetime
from enum import Enum
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from pointsman.sim.engine.chance import Chance
from pointsman.sim.failures import Refusal
from pointsman.sim.text import patterns, shapes
from pointsman.sim.text.schemas import Bounds, draw


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
