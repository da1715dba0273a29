"""Tool calls: what is refused, and that arguments fit their schema."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.sim.engine.chance import Chance
from pointsman.sim.failures import Refusal
from pointsman.sim.settings import Settings
from pointsman.sim.text import tools

plain = st.sampled_from(
    [{"type": t} for t in ("string", "integer", "number", "boolean", "null")] + [{"type": "string", "enum": ["x", "y"]}]
)
schemas = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.builds(lambda i: {"type": "array", "items": i}, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda p: {"type": "object", "properties": p, "required": list(p)[:1]}
        ),
    ),
    max_leaves=6,
)
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,),
    "object": (dict,), "null": (type(None),),
}  # fmt: skip


NAMED = {"name": "f", "description": "d"}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """A checker of our own, for the keywords in use."""
    if not isinstance(value, TYPES[schema["type"]]) or ("enum" in schema and value not in schema["enum"]):
        return False
    if isinstance(value, list):
        return all(fits(item, schema["items"]) for item in value)
    if isinstance(value, dict):
        known = schema["properties"]
        return set(schema["required"]) <= set(value) and all(fits(v, known[k]) for k, v in value.items())
    return True


@settings(max_examples=80)
@given(schema=st.dictionaries(st.sampled_from("abcd"), schemas, max_size=4), seed=st.integers(0, 99))
def test_arguments_fit_their_schema(schema: dict[str, Any], seed: int) -> None:
    parameters = {"type": "object", "properties": schema, "required": list(schema)[:2]}
    offered = [{"type": "function", "function": {"name": "f", "description": "", "parameters": parameters}}]
    tools.check(offered)
    made = tools.calls(offered, choice="required", style="chat", chance=Chance(seed), settings=Settings(model="m"))
    for call in made:
        assert fits(json.loads(call.arguments), parameters)
    spoken = list(tools.call_tokens(made))
    assert "".join(piece or "" for _, piece, _ in spoken) == "".join(call.arguments for call in made)
    assert sum(opening for _, _, opening in spoken) == len(made)


@pytest.mark.parametrize(
    ("tool", "complaint"),
    [
        pytest.param({}, "needs a function with a name", id="no name"),
        pytest.param({"name": "f", "description": 5, "parameters": {}}, "is no text", id="odd description"),
        pytest.param({**NAMED, "parameters": {"$ref": "#"}}, "refers to itself without end", id="reference"),
        pytest.param({**NAMED, "parameters": {"type": "text"}}, "f has type 'text'", id="type"),
        pytest.param({**NAMED, "parameters": {"properties": {"a": 5}}}, "f.a is not a schema", id="no schema"),
        pytest.param({**NAMED, "parameters": {"enum": []}}, "enum without values", id="empty enum"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(tool: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Refusal, match=complaint):
        tools.check([{"type": "function", "function": tool}])


def test_a_tool_needs_no_description_and_no_parameters() -> None:
    tools.check([{"name": "f", "input_schema": {"type": "object"}}])
    offered = [{"type": "function", "function": {"name": "f"}}]
    tools.check(offered)
    (call,) = tools.calls(offered, choice="required", style="chat", chance=Chance(1), settings=Settings(model="m"))
    assert call.arguments == "{}"


@pytest.mark.parametrize(
    ("choice", "least", "most"),
    [
        pytest.param("none", 0, 0, id="none"),
        pytest.param(None, 0, 2, id="auto"),
        pytest.param("required", 1, 2, id="required"),
        pytest.param({"type": "function", "function": {"name": "b"}}, 1, 1, id="forced"),
        pytest.param({"type": "any"}, 1, 2, id="anthropic any"),
        pytest.param({"type": "tool", "name": "a"}, 1, 1, id="anthropic tool"),
        pytest.param({"type": "allowed_tools", "mode": "required", "tools": [{"name": "a"}]}, 1, 1, id="some"),
        pytest.param({"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "a"}]}}, 0, 1, id="some nested"),
    ],
)
def test_the_choice_bounds_the_number_of_calls(choice: Any, least: int, most: int) -> None:
    offered = [{"name": "a"}, {"name": "b"}]
    counts = [
        len(tools.calls(offered, choice=choice, style="anthropic", chance=Chance(n), settings=Settings(model="m")))
        for n in range(100)
    ]
    assert (min(counts), max(counts)) == (least, most)


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        pytest.param({"type": "function", "name": "z"}, "not among the tools", id="another name"),
        pytest.param({"name": "a"}, "tool_choice is 'None'", id="no type"),
        pytest.param({"type": "custom", "name": "a"}, "tool_choice is 'custom'", id="another type"),
        pytest.param("sometimes", "tool_choice is 'sometimes'", id="another word"),
        pytest.param({"type": "allowed_tools"}, "needs tools", id="some of none"),
    ],
)
def test_a_choice_that_we_do_not_know_is_refused(choice: Any, complaint: str) -> None:
    with pytest.raises(Refusal, match=complaint):
        tools.calls([{"name": "a"}], choice=choice, style="chat", chance=Chance(1), settings=Settings(model="m"))


@pytest.mark.parametrize("choice", ["required", {"type": "any"}, {"type": "function", "function": {"name": "a"}}])
def test_a_call_that_is_asked_for_needs_tools(choice: Any) -> None:
    def calls(wanted: Any) -> list[Any]:
        return tools.calls([], choice=wanted, style="chat", chance=Chance(1), settings=Settings(model="m"))

    with pytest.raises(Refusal, match="tool"):
        calls(choice)
    assert calls("auto") == calls("none") == []


def test_arrays_of_arrays_do_not_grow_by_powers() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(12):
        schema = {"type": "array", "items": schema, "minItems": 50}
    offered = [{"name": "f", "parameters": {"type": "object", "properties": {"a": schema}, "required": ["a"]}}]
    with pytest.raises(Refusal, match="more than 1000 values"):
        tools.check(offered)


def test_an_unchecked_schema_that_cannot_be_met_is_refused() -> None:
    offered = [{"name": "f", "parameters": {"properties": [1, 2]}}]
    with pytest.raises(Refusal, match="cannot be met: f has properties that are no mapping"):
        tools.calls(offered, choice="required", style="chat", chance=Chance(1), settings=Settings(model="m"))
