"""Tool calls: checking the tools that a request offers, and making up calls of them.

Arguments are drawn from the tool's schema, so they fit it. A call's tokens are three for its frame and one per token of
its arguments, as llm-d-inference-sim counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pointsman.core.lines import cut
from pointsman.sim.engine.chance import Chance
from pointsman.sim.failures import Refusal
from pointsman.sim.settings import Settings
from pointsman.sim.text import schemas, tokens

_PREFIXES = {"chat": "chatcmpl-tool-", "anthropic": "toolu_", "responses": "fc_"}
FRAME = 3  # tokens around the arguments


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


def check(offered: Sequence[Mapping[str, Any]]) -> None:
    """Raise Refusal 400 if a tool has no name, or a schema that cannot be met."""
    for tool in offered:
        function = function_of(tool)
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise Refusal(400, "Tool validation failed: every tool needs a function with a name")
        if not isinstance(function.get("description") or "", str):
            raise Refusal(400, f"Tool validation failed: the description of {name} is no text")
        _arguments(function)


def _arguments(
    function: Mapping[str, Any], chance: Chance | None = None, *, bounds: schemas.Bounds | None = None
) -> Any:
    """Return arguments for a function, without a chance always the same; one without parameters takes none."""
    given = function.get("parameters")
    if given is None:
        return {}
    name = str(function.get("name", ""))
    try:
        if chance is None or bounds is None:
            return schemas.check(given, name=name)
        return schemas.draw(given, chance, bounds=bounds, name=name)
    except Refusal as refusal:
        raise Refusal(400, f"Tool validation failed: {refusal}", param="tools") from None


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
    if least and not functions:
        raise Refusal(400, "tool_choice asks for a call, and there are no tools: add them", param="tool_choice")
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
        if kind == "allowed_tools":
            return _among(offered, choice)
        if kind not in {"function", "tool"}:
            raise Refusal(400, _unknown(kind), param="tool_choice")
        wanted = function_of(choice).get("name")
        named = [function for function in functions if function.get("name") == wanted]
        if not named:
            raise Refusal(400, f"tool_choice names {wanted!r}, which is not among the tools", param="tool_choice")
        return named, 1
    if choice not in {None, "none", "auto", "required"}:
        raise Refusal(400, _unknown(choice), param="tool_choice")
    return ([], 0) if choice == "none" else (functions, int(choice == "required"))


def _unknown(kind: object) -> str:
    return f"tool_choice is {cut(str(kind), most=50)!r}: write auto, none, required, or name a function among the tools"


def _among(offered: Sequence[Mapping[str, Any]], choice: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], int]:
    """Read a choice that allows some of the tools, nested as chats write it or flat as Responses do."""
    nested = choice.get("allowed_tools")
    inner = nested if isinstance(nested, Mapping) else choice
    listed = inner.get("tools")
    names = {function_of(tool).get("name") for tool in listed if isinstance(tool, Mapping)} if listed else set()
    mode = inner.get("mode", "auto")
    if mode not in {"auto", "required"} or not names:
        raise Refusal(
            400, "tool_choice of type allowed_tools needs tools, and a mode: auto or required", param="tool_choice"
        )
    return _allowed([tool for tool in offered if function_of(tool).get("name") in names], str(mode))


def _call(index: int, function: Mapping[str, Any], *, style: str, chance: Chance, settings: Settings) -> Call:
    arguments = _arguments(function, chance, bounds=schemas.bounds_of(settings))
    number = f"{chance.below(10**10):010d}"
    text = msgspec.json.encode(arguments).decode()
    return Call(index, _PREFIXES[style] + number, str(function.get("name", "")), text)


def call_tokens(made: Sequence[Call]) -> Iterator[Token]:
    """Return the calls token by token."""
    for call in made:
        for _ in range(FRAME):
            yield call, None, False
        for number, piece in enumerate(tokens.pieces(call.arguments)):
            yield call, piece, number == 0
