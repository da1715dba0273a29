"""Tool calls: checking the tools that a request offers, and making up calls of them.

Arguments are drawn from the tool's schema, so they always fit it as far as types, enums and required fields go. A
call's tokens are three for its frame and one per token of its arguments, as llm-d-inference-sim counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pointsman.sim.engine.chance import Chance
from pointsman.sim.failures import Refusal
from pointsman.sim.settings import Settings
from pointsman.sim.text import tokens

WORDS = ("signal", "platform", "junction", "carriage", "whistle", "timetable", "bridge", "tunnel", "lantern", "depot")
_KEYWORDS = frozenset(
    (
        "type", "description", "enum", "properties", "items", "required", "additionalProperties", "minItems",
        "maxItems", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
        "pattern", "format", "title", "$schema", "strict",
    )
)  # fmt: skip
_TYPES = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))
_PREFIXES = {"chat": "chatcmpl-tool-", "anthropic": "toolu_", "responses": "fc_"}
FRAME = 3  # tokens around the arguments
_DEEPEST = 16
_MOST_VALUES = 1000  # in one call's arguments; beyond, arrays stay empty


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one tool."""

    index: int
    id: str
    name: str
    arguments: str

    def document(self) -> dict[str, Any]:
        """Return the call as chat completions show it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "index": self.index, "function": function}


Token = tuple[Call, str | None, bool]
"""A call, a piece of its arguments (None for its frame), and whether that piece opens the call."""


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the function of a tool in any of the three layouts: nested, flat, or Anthropic's."""
    nested = tool.get("function")
    found = nested if isinstance(nested, Mapping) else tool
    if "input_schema" in found:
        return {**found, "parameters": found["input_schema"]}
    return found


def check(offered: Sequence[Mapping[str, Any]], *, style: str) -> None:
    """Raise Refusal 400 if a tool is not described in full, or its schema goes beyond what we can draw from."""
    for tool in offered:
        function = function_of(tool)
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise Refusal(400, "Tool validation failed: every tool needs a function with a name")
        # Anthropic's API lets a tool go without a description; the Go simulator insists on one elsewhere.
        for key in ("parameters",) if style == "anthropic" else ("description", "parameters"):
            if key not in function:
                raise Refusal(400, f"Tool validation failed: {name} has no {key}")
        if not isinstance(function.get("description", ""), str):
            raise Refusal(400, f"Tool validation failed: the description of {name} is no text")
        _check_schema(function["parameters"], where=name, depth=0)


def _check_schema(schema: Any, *, where: str, depth: int) -> None:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        raise Refusal(400, f"Tool validation failed: {where} is not a schema that we can follow")
    for key in schema:
        if key not in _KEYWORDS:
            raise Refusal(400, f"Tool validation failed: {where} uses {key!r}, which is not supported")
    kind = schema.get("type", "object")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise Refusal(400, f"Tool validation failed: {where} has type {kind!r}: use one JSON type")
    options = schema.get("enum", ["any"])
    if not isinstance(options, list) or not options:
        raise Refusal(400, f"Tool validation failed: {where} has an enum without values")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(item, str) for item in required):
        raise Refusal(400, f"Tool validation failed: {where} has a required that is no list of names")
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise Refusal(400, f"Tool validation failed: {where} has properties that are no mapping")
    for name, inner in properties.items():
        _check_schema(inner, where=f"{where}.{name}", depth=depth + 1)
    if "items" in schema:
        _check_schema(schema["items"], where=f"{where}[]", depth=depth + 1)


def calls(
    offered: Sequence[Mapping[str, Any]],
    *,
    choice: str | Mapping[str, Any] | None,
    style: str,
    chance: Chance,
    settings: Settings,
) -> list[Call]:
    """Return the calls of an answer; none where the answer shall be text."""
    functions, least = _allowed(offered, choice)
    if not functions:
        return []
    count = max(least, 1 if style == "responses" else 0)
    extra = settings.tool_call_extra_call_probability if style != "responses" else 0
    while count < len(functions) and chance.happens(extra):
        count += 1
    return [_call(i, chance.choice(functions), style=style, chance=chance, settings=settings) for i in range(count)]


def _allowed(
    offered: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any] | None
) -> tuple[list[Mapping[str, Any]], int]:
    functions = [function_of(tool) for tool in offered]
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        if kind in {"auto", "none", "any", "required"}:
            return _allowed(offered, "required" if kind == "any" else str(kind))
        wanted = function_of(choice).get("name")
        named = [function for function in functions if function.get("name") == wanted]
        if not named:
            raise Refusal(400, f"tool_choice names {wanted!r}, which is not among the tools", param="tool_choice")
        return named, 1
    if choice == "none":
        return [], 0
    return functions, 1 if choice == "required" else 0


def _call(index: int, function: Mapping[str, Any], *, style: str, chance: Chance, settings: Settings) -> Call:
    drawer = _Drawer(chance, settings)
    schema = function.get("parameters") or {}
    try:
        arguments = drawer.object(schema, optional=settings.tool_call_not_required_param_probability, depth=0)
    except (AttributeError, TypeError, ValueError, RecursionError):  # only where nobody checked the schema before
        raise Refusal(
            400, f"Tool validation failed: the schema of {function.get('name')!r} cannot be followed"
        ) from None
    number = f"{chance.below(10**10):010d}"
    text = msgspec.json.encode(arguments).decode()
    return Call(index, _PREFIXES[style] + number, str(function.get("name", "")), text)


class _Drawer:
    """Draws values that fit a schema."""

    def __init__(self, chance: Chance, settings: Settings) -> None:
        self.chance = chance
        self.settings = settings
        self._left = _MOST_VALUES

    def object(self, schema: Mapping[str, Any], *, optional: int, depth: int) -> dict[str, Any]:
        required = schema.get("required") or ()
        properties = schema.get("properties") or {}
        return {
            name: self.value(inner, depth=depth + 1)
            for name, inner in properties.items()
            if name in required or self.chance.happens(optional)
        }

    def value(self, schema: Mapping[str, Any], *, depth: int) -> Any:
        s, chance = self.settings, self.chance
        self._left -= 1
        if schema.get("enum"):
            return chance.choice(schema["enum"])
        match schema.get("type", "string" if depth else "object"):
            case "integer":
                return chance.between(s.min_tool_call_integer_param, s.max_tool_call_integer_param)
            case "number":
                low, high = s.min_tool_call_number_param, s.max_tool_call_number_param
                return low + (high - low) * chance.random()
            case "boolean":
                return chance.happens(50)
            case "array":
                return self._array(schema, depth=depth)
            case "object":
                return self.object(schema, optional=s.object_tool_call_not_required_field_probability, depth=depth)
            case "null":
                return None
        return chance.choice(WORDS)

    def _array(self, schema: Mapping[str, Any], *, depth: int) -> list[Any]:
        low = schema.get("minItems", self.settings.min_tool_call_array_param_length)
        high = schema.get("maxItems", self.settings.max_tool_call_array_param_length)
        low = low if isinstance(low, int) and 0 <= low <= 100 else 0
        high = min(high, 100) if isinstance(high, int) and high >= low else low
        if self._left <= 0:  # arrays of arrays grow by powers
            return []
        items = schema.get("items") or {"type": "string"}
        return [self.value(items, depth=depth + 1) for _ in range(self.chance.between(low, high))]


def call_tokens(made: Sequence[Call]) -> Iterator[Token]:
    """Return the calls token by token."""
    for call in made:
        for _ in range(FRAME):
            yield call, None, False
        for number, piece in enumerate(tokens.pieces(call.arguments)):
            yield call, piece, number == 0
