"""Values that fit a JSON schema, drawn from it: for the arguments of tools and for structured output.

A value is drawn, not searched for: types, enums, constants, formats, patterns, bounds, required and optional
properties, `anyOf`, `oneOf`, `allOf` and local `$ref`s say what it is. What cannot be drawn (a type that does not
exist, bounds that exclude each other, a reference to nowhere or to itself without end) is refused with its place.
Keywords that we do not know allow what they allow. Work and size are bounded whatever the schema says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from pointsman.core.lines import cut
from pointsman.sim.engine.chance import Chance
from pointsman.sim.failures import Refusal
from pointsman.sim.settings import Settings
from pointsman.sim.text import patterns

WORDS = ("signal", "platform", "junction", "carriage", "whistle", "timetable", "bridge", "tunnel", "lantern", "depot")
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_DEEPEST = 24
_SHALLOW = 6  # deeper than this, nothing that may be left out is drawn
_MOST_VALUES = 1000  # in one document; beyond, nothing that may be left out is drawn
_MOST_TEXT = 4096  # letters of one text
_MOST_ITEMS = 100


def _date(c: Chance) -> str:
    return f"20{c.between(10, 29)}-{c.between(1, 12):02d}-{c.between(1, 28):02d}"


def _time(c: Chance) -> str:
    return f"{c.below(24):02d}:{c.below(60):02d}:{c.below(60):02d}"


def _uuid(c: Chance) -> str:
    digits = f"{c.bits():016x}{c.bits():016x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"


_FORMATS: dict[str, Callable[[Chance], str]] = {
    "date-time": lambda c: f"{_date(c)}T{_time(c)}Z",
    "date": _date,
    "time": lambda c: f"{_time(c)}Z",
    "duration": lambda c: f"PT{c.between(1, 59)}M",
    "email": lambda c: f"{c.choice(WORDS)}@example.com",
    "hostname": lambda c: f"{c.choice(WORDS)}.example.com",
    "uri": lambda c: f"https://example.com/{c.choice(WORDS)}",
    "url": lambda c: f"https://example.com/{c.choice(WORDS)}",
    "ipv4": lambda c: f"192.0.2.{c.between(1, 254)}",
    "ipv6": lambda c: f"2001:db8::{c.between(1, 9999):x}",
    "uuid": _uuid,
    "byte": lambda _c: "c2lnbmFs",
    "binary": lambda c: c.choice(WORDS),
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a value is drawn from where its schema leaves it open."""

    integers: tuple[int, int] = (0, 100)
    numbers: tuple[float, float] = (0.0, 100.0)
    items: tuple[int, int] = (1, 5)
    optional: int = 50  # chance of an optional property at the top
    optional_inside: int = 50


EVERYTHING = Bounds(optional=100, optional_inside=100)


def bounds_of(settings: Settings) -> Bounds:
    """Return the bounds that the flags of tool calls set."""
    return Bounds(
        (settings.min_tool_call_integer_param, settings.max_tool_call_integer_param),
        (settings.min_tool_call_number_param, settings.max_tool_call_number_param),
        (settings.min_tool_call_array_param_length, settings.max_tool_call_array_param_length),
        settings.tool_call_not_required_param_probability,
        settings.object_tool_call_not_required_field_probability,
    )


def draw(schema: Any, chance: Chance, *, bounds: Bounds, name: str) -> Any:
    """Return a value that fits the schema.

    Raises Refusal 400 naming the place in it that cannot be met, and why.
    """
    return _Drawer(schema, chance, bounds).value(schema, where=name, depth=0)


def refused(where: str, reason: str) -> Refusal:
    return Refusal(400, f"The schema cannot be met: {cut(where, most=200)} {reason}")


class _Drawer:
    """Draws the parts of one document."""

    def __init__(self, root: Any, chance: Chance, bounds: Bounds) -> None:
        self.root = root
        self.chance = chance
        self.bounds = bounds
        self._left = _MOST_VALUES

    def value(self, schema: Any, *, where: str, depth: int) -> Any:
        schema = self._resolved(schema, where=where, depth=depth)
        self._left -= 1
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            options = schema["enum"]
            if not isinstance(options, list) or not options:
                raise refused(where, "has an enum without values")
            return self.chance.choice(options)
        kind = self._kind(schema, where=where, depth=depth)
        draw: Callable[..., Any] = getattr(self, f"_{kind}")
        return draw(schema, where=where, depth=depth)

    def _resolved(self, schema: Any, *, where: str, depth: int) -> Mapping[str, Any]:
        """Return a schema without references and choices: followed, merged, one chosen."""
        if schema is True:
            return {"type": "string"}
        if not isinstance(schema, Mapping):
            raise refused(where, "is not a schema")
        if depth > _DEEPEST:
            raise refused(where, "goes too deep, or refers to itself without end")
        found: Mapping[str, Any] = schema
        for _ in range(_DEEPEST):
            if "$ref" in found:
                rest = {key: value for key, value in found.items() if key != "$ref"}
                found = {**self._target(found["$ref"], where=where), **rest}
            elif found.get("allOf"):
                found = self._merged(found, where=where)
            elif isinstance(chosen := found.get("anyOf") or found.get("oneOf"), list):
                rest = {key: value for key, value in found.items() if key not in {"anyOf", "oneOf"}}
                found = {**rest, **self._chosen(chosen, where=where, depth=depth)}
            else:
                return found
        raise refused(where, "refers to itself without end")

    def _target(self, reference: Any, *, where: str) -> Mapping[str, Any]:
        found: Any = self.root
        if not isinstance(reference, str) or not reference.startswith("#"):
            shown = cut(str(reference), most=100)
            raise refused(where, f"refers to {shown!r}: only references into itself are followed")
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            raise refused(where, f"refers to {cut(reference, most=100)!r}, which is not there")
        return found

    def _merged(self, schema: Mapping[str, Any], *, where: str) -> Mapping[str, Any]:
        parts = schema["allOf"] if isinstance(schema["allOf"], list) else []
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in parts:
            if not isinstance(part, Mapping):
                raise refused(where, "has an allOf with something that is not a schema")
            if "$ref" in part:
                part = {**self._target(part["$ref"], where=where), **{k: v for k, v in part.items() if k != "$ref"}}
            pairs = [(side.get("properties") or {}, side.get("required") or []) for side in (merged, part)]
            if not all(isinstance(p, Mapping) and isinstance(r, list) for p, r in pairs):
                raise refused(where, "has an allOf whose properties or required cannot be read")
            (ours, needed), (theirs, more) = pairs
            both: dict[str, Any] = {"properties": {**ours, **theirs}, "required": [*needed, *more]}
            if part.get("type") and merged.get("type") and part["type"] != merged["type"]:
                raise refused(where, "has an allOf of different types")
            merged = {**merged, **part, **{key: value for key, value in both.items() if value}}
        return merged

    def _chosen(self, options: list[Any], *, where: str, depth: int) -> Mapping[str, Any]:
        """Return one alternative; deep inside, one that ends."""
        known = [each for each in options if isinstance(each, Mapping)]
        if not known:
            raise refused(where, "has alternatives without a schema")
        if self._sparing(depth):
            return min(known, key=_length)
        return self.chance.choice(known)

    def _sparing(self, depth: int) -> bool:
        return depth > _SHALLOW or self._left <= 0

    def _kind(self, schema: Mapping[str, Any], *, where: str, depth: int) -> str:
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            kind = "null" if "null" in kind and self._sparing(depth) else self.chance.choice(kind)
        if kind is None:
            kind = next((name for key, name in _TELLING.items() if key in schema), "string" if depth else "object")
        if kind not in _TYPES:
            raise refused(where, f"has type {cut(str(kind), most=50)!r}: use JSON's types")
        return str(kind)

    def _null(self, _schema: Mapping[str, Any], **_place: Any) -> None:
        return None

    def _boolean(self, _schema: Mapping[str, Any], **_place: Any) -> bool:
        return self.chance.happens(50)

    def _integer(self, schema: Mapping[str, Any], *, where: str, depth: int) -> int:  # noqa: ARG002 - as all others
        low, high = _range(schema, self.bounds.integers, where=where, whole=True)
        step = _number(schema, "multipleOf", where=where)
        first, last = ceil(low), floor(high)
        if step:
            first, last = ceil(low / step), floor(high / step)
        if first > last:
            raise refused(where, "allows no integer")
        drawn = self.chance.between(first, last)
        return int(drawn * step) if step else drawn

    def _number(self, schema: Mapping[str, Any], *, where: str, depth: int) -> float:  # noqa: ARG002 - as all others
        low, high = _range(schema, self.bounds.numbers, where=where, whole=False)
        step = _number(schema, "multipleOf", where=where)
        if step:
            return ceil(low / step) * step
        inside = 0.001 + 0.998 * self.chance.random()  # never a bound itself, which may be excluded
        return low if low == high else low + (high - low) * inside

    def _string(self, schema: Mapping[str, Any], *, where: str, depth: int) -> str:  # noqa: ARG002 - as all others
        if isinstance(schema.get("pattern"), str):
            try:
                return patterns.draw(schema["pattern"], self.chance)
            except ValueError as error:
                raise refused(where, f"has a pattern that cannot be drawn from: {error}") from None
        made = _FORMATS.get(str(schema.get("format", "")))
        if made is not None:
            return made(self.chance)
        least, most = _count(schema, "minLength", 0, where=where), _count(schema, "maxLength", _MOST_TEXT, where=where)
        if least > min(most, _MOST_TEXT):
            raise refused(where, f"wants a text of {least} letters, at most {min(most, _MOST_TEXT)}")
        text = self.chance.choice(WORDS)
        while len(text) < least:
            text += f" {self.chance.choice(WORDS)}"
        return text if len(text) <= most else text[: max(least, most)].rstrip() or text[:most]

    def _array(self, schema: Mapping[str, Any], *, where: str, depth: int) -> list[Any]:
        low, high = self.bounds.items
        least = _count(schema, "minItems", None, where=where)
        most = _count(schema, "maxItems", None, where=where)
        fixed = schema.get("prefixItems") if isinstance(schema.get("prefixItems"), list) else []
        low = max(low if least is None else least, 0)
        high = min(max(high, low) if most is None else most, max(low, _MOST_ITEMS))
        low = low if least is not None else min(low, high)
        if low > high or low > _MOST_ITEMS:
            raise refused(where, f"wants {low} items, at most {min(high, _MOST_ITEMS)}")
        if self._sparing(depth):
            high = low = least or 0
        if self._left < -_MOST_VALUES:
            raise refused(where, f"wants more than {_MOST_VALUES} values")
        count = max(self.chance.between(low, high), len(fixed or ()))
        items = schema.get("items", {"type": "string"})
        kinds = [*(fixed or ()), *([items] * (count - len(fixed or ())))]
        return [self.value(kind, where=f"{where}[{i}]", depth=depth + 1) for i, kind in enumerate(kinds)]

    def _object(self, schema: Mapping[str, Any], *, where: str, depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties") or {}, schema.get("required") or []
        if not isinstance(properties, Mapping):
            raise refused(where, "has properties that are no mapping")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise refused(where, "has a required that is no list of names")
        share = self.bounds.optional_inside if depth else self.bounds.optional
        wanted = [
            name for name in properties if name in required or (not self._sparing(depth) and self.chance.happens(share))
        ]
        found = {name: self.value(properties[name], where=f"{where}.{name}", depth=depth + 1) for name in wanted}
        unnamed = schema.get("additionalProperties", True)
        for name in required:
            if name not in found:
                if unnamed is False:
                    raise refused(where, f"requires {cut(name, most=50)!r}, which is no property of it")
                found[name] = self.value(unnamed, where=f"{where}.{name}", depth=depth + 1)
        if not properties and isinstance(unnamed, Mapping) and not found and not self._sparing(depth):
            found[self.chance.choice(WORDS)] = self.value(unnamed, where=f"{where}.*", depth=depth + 1)
        return found


_TELLING = {
    "properties": "object",
    "additionalProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minimum": "number",
    "maximum": "number",
}


def _length(schema: Mapping[str, Any]) -> int:
    """Return how much an alternative asks for, at a glance: nothing, a plain value, a structure, or a reference."""
    if schema.get("type") == "null":
        return 0
    if "$ref" in schema:
        return 3
    return 1 if schema.get("type") in {"string", "integer", "number", "boolean"} or "enum" in schema else 2


def _number(schema: Mapping[str, Any], key: str, *, where: str) -> float | None:
    found = schema.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e300:
        raise refused(where, f"has a {key} that is no number")
    return found


def _count(schema: Mapping[str, Any], key: str, default: Any, *, where: str) -> Any:
    found = _number(schema, key, where=where)
    if found is None:
        return default
    if found < 0 or found != int(found):
        raise refused(where, f"has a {key} that is no count")
    return int(found)


def _range(schema: Mapping[str, Any], usual: tuple[float, float], *, where: str, whole: bool) -> tuple[float, float]:
    low, high = _number(schema, "minimum", where=where), _number(schema, "maximum", where=where)
    above, below = _number(schema, "exclusiveMinimum", where=where), _number(schema, "exclusiveMaximum", where=where)
    if above is not None:
        least = floor(above) + 1 if whole else above
        low = least if low is None else max(low, least)
    if below is not None:
        most = ceil(below) - 1 if whole else below
        high = most if high is None else min(high, most)
    if low is None:
        low = usual[0] if high is None or usual[0] <= high else high - (usual[1] - usual[0])
    if high is None:
        high = usual[1] if low <= usual[1] else low + (usual[1] - usual[0]) + 1
    if low > high or (low == high and low in {above, below}):
        raise refused(where, f"allows nothing: its minimum {low} is above its maximum {high}")
    return low, high
