"""The shape that a client wants an answer to have: a schema, any object, one of some texts, a pattern.

OpenAI asks for it in `response_format` and in `text.format`, vLLM in `structured_outputs` and, before, in `guided_*`.
What is asked for is read and checked when a request comes; the text is drawn from it by the request's own chance.
"""

import json
from typing import Any

import msgspec
from msgspec import Struct

from pointsman.sim.engine.chance import Chance
from pointsman.sim.failures import Refusal
from pointsman.sim.text import patterns, schemas, tokens
from pointsman.sim.text.answers import Answer

_ANY_OBJECT = {"type": "object", "additionalProperties": {"type": "string"}}
_TRIES = 30


class Shape(Struct, frozen=True):
    """One of these is set."""

    schema: Any = None
    choice: tuple[str, ...] = ()
    pattern: str | None = None

    def text(self, chance: Chance, *, bounds: schemas.Bounds) -> str:
        """Return a text of this shape."""
        if self.choice:
            return chance.choice(self.choice)
        if self.pattern is not None:
            return _written(self.pattern, chance)
        return json.dumps(schemas.draw(self.schema, chance, bounds=bounds, name="schema"), ensure_ascii=False)

    def answer(self, chance: Chance, *, bounds: schemas.Bounds, most: int, limited: bool = True) -> Answer:
        """Return an answer of this shape; cut where it is longer than allowed, as an engine would.

        Where nobody `limited` it but the model's window, one without all that may be left out is tried before.
        """
        pieces = tokens.pieces(self.text(chance, bounds=bounds))
        if len(pieces) > most and not limited:
            pieces = tokens.pieces(self.text(chance, bounds=schemas.BARE))
        return Answer(pieces, "stop") if len(pieces) <= most else Answer(pieces[:most], "length")


def from_format(given: Any, *, name: str) -> Shape | None:
    """Read `response_format` or `text.format`; None where plain text is wanted.

    Raises Refusal 400 naming what is wrong with it.
    """
    if given is None:
        return None
    kind = given.get("type") if isinstance(given, dict) else None
    match kind:
        case "text":
            return None
        case "json_object":
            return Shape(_ANY_OBJECT)
        case "json_schema":
            inner = given.get("json_schema", given)
            schema = inner.get("schema") if isinstance(inner, dict) else None
            if not isinstance(schema, dict) or not isinstance(inner.get("name"), str):
                raise Refusal(400, f"{name} of type json_schema needs a name and a schema", param=name)
            return _checked(Shape(schema), name=name)
    raise Refusal(400, f"{name} must have one of the types text, json_object, json_schema", param=name)


def from_vllm(given: Any, *, name: str = "structured_outputs") -> Shape | None:
    """Read `structured_outputs`, or the `guided_*` fields under the same keys.

    Raises Refusal 400 naming what is wrong with it.
    """
    asked = {key: value for key, value in (given or {}).items() if value not in (None, False)} if given else {}
    known = [key for key in ("json", "choice", "regex", "json_object") if key in asked]
    unknown = [key for key in ("grammar", "structural_tag") if key in asked]
    if unknown:
        raise Refusal(400, f"{name}.{unknown[0]} is not simulated: use json, choice or regex", param=name)
    if len(known) > 1:
        raise Refusal(400, f"{name} holds {' and '.join(known)}: choose one", param=name)
    if not known:
        return None
    value = asked[known[0]]
    match known[0]:
        case "json":
            return _checked(Shape(_decoded(value, name=f"{name}.json")), name=f"{name}.json")
        case "choice":
            if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
                raise Refusal(400, f"{name}.choice must be a list of texts", param=name)
            return Shape(choice=tuple(value))
        case "regex":
            return _checked(Shape(pattern=str(value)), name=f"{name}.regex")
    return Shape(_ANY_OBJECT)


def _decoded(value: Any, *, name: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal(400, f"{name} is not JSON: {error}", param=name) from None


def _written(pattern: str, chance: Chance) -> str:
    """Return a text that matches the pattern.

    Raises ValueError when we find none.
    """
    for _ in range(_TRIES):
        if patterns.matches(pattern, found := patterns.draw(pattern, chance)):
            return found
    raise ValueError("we find no text that matches it")


def _checked(shape: Shape, *, name: str) -> Shape:
    """Draw once, always the same, so that a shape that cannot be met never depends on luck."""
    try:
        if shape.pattern is not None:
            _written(shape.pattern, Chance("shapes"))
        else:
            schemas.check(shape.schema, name="schema")
    except (Refusal, ValueError) as error:
        raise Refusal(400, f"{name}: {error}", param=name) from None
    return shape
