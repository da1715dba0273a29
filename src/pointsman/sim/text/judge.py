"""Whether a value fits a JSON schema, and if not why: what is drawn is held to it before anybody gets it.

All keywords of draft 2020-12 that say what a value may be, but for `format`, which only says what it means. Patterns
are matched by `patterns`, never run. Work is bounded whatever the schema says.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pointsman.core.lines import cut
from pointsman.sim.text import patterns
from pointsman.sim.text.references import modern, refused, target

_MOST_WORK = 50_000  # schemas, values in enums and patterns of names looked at for one document
_DEEPEST = 100

_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "integer": lambda v: not isinstance(v, bool) and (isinstance(v, int) or (isinstance(v, float) and v.is_integer())),
}


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same in JSON, where 1 is 1.0 and not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


class Judge:
    """Holds values to the parts of one schema."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._left = _MOST_WORK

    def fault(self, schema: Any, value: Any, *, where: str, depth: int = 0) -> str | None:
        """Return what about the value does not fit, or None.

        Raises Refusal 400 when the schema itself cannot be read, or takes too long.
        """
        self._left -= 1 if isinstance(schema, bool) or not isinstance(schema, dict) else _size(schema, value)
        if self._left < 0 or depth > _DEEPEST:
            raise refused(where, "is too much to check, or refers to itself without end")
        if isinstance(schema, bool):
            return None if schema else f"{where} allows nothing"
        if not isinstance(schema, dict):
            raise refused(where, "is not a schema")
        schema = modern(schema)
        found = _plain(schema, value, where=where) or self._applied(schema, value, where=where, depth=depth)
        return found or self._own(schema, value, where=where, depth=depth)

    def _own(self, schema: Mapping[str, Any], value: Any, *, where: str, depth: int) -> str | None:
        """Hold a value to what is about values of its type."""
        match value:
            case str():
                return _text(schema, value, where=where)
            case dict():
                return self._members(schema, value, where=where, depth=depth)
            case list():
                return self._items(schema, value, where=where, depth=depth)
            case None | bool():
                return None
        return _number(schema, value, where=where)

    def fits(self, schema: Any, value: Any, *, where: str, depth: int) -> bool:
        return self.fault(schema, value, where=where, depth=depth + 1) is None

    def _applied(self, schema: Mapping[str, Any], value: Any, *, where: str, depth: int) -> str | None:
        """Hold a value to schemas that are about all of it."""
        if "$ref" in schema:
            found = self.fault(target(self.root, schema["$ref"], where=where), value, where=where, depth=depth + 1)
            if found is not None:
                return found
        for each in _list(schema, "allOf"):
            if (found := self.fault(each, value, where=where, depth=depth + 1)) is not None:
                return found
        for key, most in (("anyOf", None), ("oneOf", 1)):
            if schema.get(key):
                count = sum(self.fits(each, value, where=where, depth=depth) for each in _list(schema, key))
                if not count or (most and count > most):
                    return f"{where} fits {count} of its {key}"
        if "not" in schema and self.fits(schema["not"], value, where=where, depth=depth):
            return f"{where} fits its not"
        if "if" in schema:
            branch = "then" if self.fits(schema["if"], value, where=where, depth=depth) else "else"
            return self.fault(schema.get(branch, True), value, where=where, depth=depth + 1)
        return None

    def _items(self, schema: Mapping[str, Any], value: list[Any], *, where: str, depth: int) -> str | None:
        if not _within(schema, "Items", len(value)):
            return f"{where} has {len(value)} items"
        if schema.get("uniqueItems") is True and repeats(value):
            return f"{where} has an item twice"
        fixed = _list(schema, "prefixItems")
        for number, each in enumerate(value):
            kind = fixed[number] if number < len(fixed) else self._rest(schema)
            if (found := self.fault(kind, each, where=f"{where}[{number}]", depth=depth + 1)) is not None:
                return found
        return self._contained(schema, value, where=where, depth=depth)

    def _rest(self, schema: Mapping[str, Any]) -> Any:
        return schema.get("items", schema.get("unevaluatedItems", True))

    def _contained(self, schema: Mapping[str, Any], value: list[Any], *, where: str, depth: int) -> str | None:
        if "contains" not in schema:
            return None
        count = sum(self.fits(schema["contains"], each, where=where, depth=depth) for each in value)
        if _within({"minContains": 1, **schema}, "Contains", count):
            return None
        return f"{where} has {count} items that it shall contain"

    def _members(self, schema: Mapping[str, Any], value: dict[str, Any], *, where: str, depth: int) -> str | None:
        if not _within(schema, "Properties", len(value)):
            return f"{where} has {len(value)} properties"
        needed = [*_list(schema, "required")]
        for name, others in _mapping(schema, "dependentRequired").items():
            needed += others if name in value and isinstance(others, list) else []
        for name in needed:
            if name not in value:
                return f"{where} lacks {cut(str(name), most=50)!r}"
        for name, other in _mapping(schema, "dependentSchemas").items():
            if name in value and (found := self.fault(other, value, where=where, depth=depth + 1)) is not None:
                return found
        return self._each_member(schema, value, where=where, depth=depth)

    def _each_member(self, schema: Mapping[str, Any], value: dict[str, Any], *, where: str, depth: int) -> str | None:
        for name, each in value.items():
            if "propertyNames" in schema and not self.fits(schema["propertyNames"], name, where=where, depth=depth):
                return f"{where} has {cut(name, most=50)!r}, which its propertyNames do not allow"
            kinds = named(schema, name, where=where)
            if not kinds and "additionalProperties" in schema:
                kinds = [schema["additionalProperties"]]
            elif not kinds and "unevaluatedProperties" in schema and not self._known(schema, name, value, depth=depth):
                kinds = [schema["unevaluatedProperties"]]
            for kind in kinds:
                found = self.fault(kind, each, where=f"{where}.{name}", depth=depth + 1)
                if found is not None:
                    return found
        return None

    def _known(self, schema: Any, name: str, value: dict[str, Any], *, depth: int) -> bool:
        """Tell whether a part of the schema that applies to all of the value speaks of the property."""
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return False
        if named(schema, name, where=name) or "additionalProperties" in schema:
            return True
        parts = [each for key in ("allOf", "anyOf", "oneOf") for each in _list(schema, key)]
        parts += [each for key, each in _mapping(schema, "dependentSchemas").items() if key in value]
        if "$ref" in schema:
            parts.append(target(self.root, schema["$ref"], where=name))
        if "if" in schema:
            fits = self.fits(schema["if"], value, where=name, depth=depth)
            parts += [schema["if"], schema.get("then")] if fits else [schema.get("else")]
        return any(
            self.fits(each, value, where=name, depth=depth) and self._known(each, name, value, depth=depth + 1)
            for each in parts
            if isinstance(each, dict)
        )


def named(schema: Mapping[str, Any], name: str, *, where: str) -> list[Any]:
    """Return the schemas of a property by its name, and by patterns of names."""
    own = _mapping(schema, "properties")
    found = [own[name]] if name in own else []
    found += [
        each for pattern, each in _mapping(schema, "patternProperties").items() if _matches(pattern, name, where=where)
    ]
    return found


def repeats(items: Sequence[Any]) -> bool:
    """Tell whether an item is there twice."""
    return any(same(one, other) for number, one in enumerate(items) for other in items[:number])


def _number(schema: Mapping[str, Any], value: float, *, where: str) -> str | None:
    for key, bad in _BOUNDS.items():
        if _is_number(schema.get(key)) and bad(value, schema[key]):
            return f"{where} is {value!r}, beyond its {key}"
    if _is_number(schema.get("multipleOf")) and not _multiple(value, schema["multipleOf"]):
        return f"{where} is {value!r}, no multiple of {schema['multipleOf']!r}"
    return None


def _text(schema: Mapping[str, Any], value: str, *, where: str) -> str | None:
    if not _within(schema, "Length", len(value)):
        return f"{where} has {len(value)} letters"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value, where=where):
        return f"{where} does not match {cut(pattern, most=100)!r}"
    return None


def _plain(schema: Mapping[str, Any], value: Any, *, where: str) -> str | None:
    kinds = schema.get("type")
    if kinds is not None:
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if not any(isinstance(kind, str) and kind in _TYPES and _TYPES[kind](value) for kind in kinds):
            return f"{where} is not of its type"
    if "const" in schema and not same(schema["const"], value):
        return f"{where} is not its const"
    if "enum" in schema and not any(same(each, value) for each in _list(schema, "enum")):
        return f"{where} is not in its enum"
    return None


_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "minimum": lambda v, bound: v < bound,
    "maximum": lambda v, bound: v > bound,
    "exclusiveMinimum": lambda v, bound: v <= bound,
    "exclusiveMaximum": lambda v, bound: v >= bound,
}


def _size(schema: Mapping[str, Any], value: Any) -> int:
    """Return how many things there are to compare."""
    names = len(_mapping(schema, "patternProperties")) * len(value) if isinstance(value, dict) else 0
    return 1 + len(_list(schema, "enum")) // 8 + names


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _multiple(value: float, step: float) -> bool:
    """Tell whether a value is a multiple, exactly and also for validators that divide floating-point numbers."""
    if step <= 0:
        return False
    exact = (Fraction(str(value)) / Fraction(str(step))).denominator == 1
    return exact and (isinstance(step, int) or abs(value) > 1e15 * step or (value / step).is_integer())


def _within(schema: Mapping[str, Any], what: str, count: int) -> bool:
    least, most = f"min{what}", f"max{what}"
    if _is_number(schema.get(least)) and count < schema[least]:
        return False
    return not (_is_number(schema.get(most)) and count > schema[most])


def _matches(pattern: str, text: str, *, where: str) -> bool:
    try:
        return patterns.matches(pattern, text)
    except ValueError as error:
        raise refused(where, f"has a pattern that cannot be drawn from: {error}") from None


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    found = schema.get(key)
    return found if isinstance(found, list) else []


def _mapping(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = schema.get(key)
    return found if isinstance(found, dict) else {}
