"""What several JSON schemas say together: the parts of one that all hold for the same value, as one to draw from.

A `Wanted` is a schema without references and `allOf`. What only has to be met one way or another (`anyOf`, `oneOf`,
`if`) stays open in it as lists to choose from. It need not say everything: what is drawn is judged by the schemas
themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pointsman.sim.text.judge import named, same
from pointsman.sim.text.references import modern, refused, target

TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_MOST_JOINED = 200  # schemas for one value
_MOST_COMPARED = 100_000  # pairs of values


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """All that is wanted of one value."""

    types: tuple[str, ...] | None = None  # None: any
    enum: list[Any] | None = None
    keys: Mapping[str, Any]  # all other keywords
    choices: tuple[list[Any], ...] = ()  # of each, one must hold
    nots: tuple[Any, ...] = ()
    patterns: tuple[str, ...] = ()
    steps: tuple[Any, ...] = ()  # multipleOf
    contained: tuple[Mapping[str, Any], ...] = ()


def read(schema: Any, *, root: Any, where: str) -> Wanted:
    """Return what a schema wants of a value.

    Raises Refusal 400 naming what in it is no schema, or contradicts itself.
    """
    found = Wanted(keys={})
    left, count = [schema], 0
    while left:
        each = left.pop(0)
        count += 1
        if count > _MOST_JOINED:
            raise refused(where, "refers to itself without end")
        if each is True:
            continue
        if each is False:
            raise refused(where, "allows nothing")
        if not isinstance(each, dict):
            raise refused(where, "is not a schema")
        if "$ref" in each:
            left.append(target(root, each["$ref"], where=where))
        if each.get("allOf"):
            left += _parts(each["allOf"], where=where)
        own = _own(modern(each), where=where)
        found = own if count == 1 else both(found, own, where=where)
    return found


def _parts(given: Any, *, where: str) -> list[Any]:
    if not isinstance(given, list) or not all(isinstance(each, dict | bool) for each in given):
        raise refused(where, "has an allOf with something that is not a schema")
    return given


_APART = ("$ref", "allOf", "anyOf", "oneOf", "if", "then", "else", "not", "pattern", "multipleOf", "contains",
          "minContains", "maxContains", "type", "enum", "const")  # fmt: skip


def _own(schema: Mapping[str, Any], *, where: str) -> Wanted:
    """Return what a schema says itself."""
    contained = {key: schema[key] for key in ("contains", "minContains", "maxContains") if key in schema}
    return Wanted(
        types=_types(schema.get("type"), where=where),
        enum=_enum(schema, where=where),
        keys=_checked({key: value for key, value in schema.items() if key not in _APART}, where=where),
        choices=tuple(_choices(schema, where=where)),
        nots=(schema["not"],) if "not" in schema else (),
        patterns=(schema["pattern"],) if isinstance(schema.get("pattern"), str) else (),
        steps=(schema["multipleOf"],) if schema.get("multipleOf") is not None else (),
        contained=(contained,) if "contains" in contained else (),
    )


def _types(given: Any, *, where: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    found = given if isinstance(given, list) and given else [given]
    for each in found:
        if each not in TYPES:
            raise refused(where, f"has type {str(each)[:50]!r}: use JSON's types")
    return tuple(found)


def _enum(schema: Mapping[str, Any], *, where: str) -> list[Any] | None:
    found = schema.get("enum")
    if "enum" in schema and (not isinstance(found, list) or not found):
        raise refused(where, "has an enum without values")
    if "const" in schema:
        return [schema["const"]] if found is None else [each for each in found if same(each, schema["const"])]
    return found


def _checked(keys: dict[str, Any], *, where: str) -> dict[str, Any]:
    """Refuse keywords of objects that cannot be read."""
    for key in ("properties", "patternProperties", "dependentRequired", "dependentSchemas"):
        if not isinstance(keys.get(key) or {}, dict):
            raise refused(where, f"has {key} that are no mapping")
    required = keys.get("required") or []
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise refused(where, "has a required that is no list of names")
    return keys


def _choices(schema: Mapping[str, Any], *, where: str) -> list[list[Any]]:
    found: list[list[Any]] = []
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if options is None:
            continue
        known = [each for each in options if isinstance(each, dict | bool)] if isinstance(options, list) else []
        if not known:
            raise refused(where, "has alternatives without a schema")
        found.append(known)
    if "if" in schema:
        met = {"allOf": [schema["if"], schema.get("then", True)]}
        found.append([met, {"allOf": [{"not": schema["if"]}, schema.get("else", True)]}])
    return found


def both(one: Wanted, other: Wanted, *, where: str) -> Wanted:
    """Return what two want together.

    Raises Refusal 400 when they exclude each other.
    """
    return Wanted(
        types=_common(one.types, other.types, where=where),
        enum=_shared(one.enum, other.enum),
        keys=_keys(one.keys, other.keys, where=where),
        choices=one.choices + other.choices,
        nots=one.nots + other.nots,
        patterns=one.patterns + other.patterns,
        steps=one.steps + other.steps,
        contained=one.contained + other.contained,
    )


def _common(one: tuple[str, ...] | None, other: tuple[str, ...] | None, *, where: str) -> tuple[str, ...] | None:
    if one is None or other is None:
        return one if other is None else other
    found = [each for each in one if each in other or (each == "integer" and "number" in other)]
    if "number" in one and "integer" in other and "integer" not in found:
        found.append("integer")
    if not found:
        raise refused(where, "has an allOf of different types: nothing is of both")
    return tuple(found)


def _shared(one: list[Any] | None, other: list[Any] | None) -> list[Any] | None:
    if one is None or other is None:
        return one if other is None else other
    if len(one) * len(other) > _MOST_COMPARED:
        return one  # what is drawn is judged anyway
    return [each for each in one if any(same(each, match) for match in other)]


def _keys(one: Mapping[str, Any], other: Mapping[str, Any], *, where: str) -> Mapping[str, Any]:
    if not one or not other:
        return one or other
    found = {**one, **other}
    for key in one.keys() & other.keys():
        rule = _RULES.get(key)
        if rule is not None and None not in (one[key], other[key]):
            found[key] = rule(one[key], other[key])
    names = [*(one.get("properties") or ()), *(other.get("properties") or ())]
    if names:
        found["properties"] = {name: _member(one, other, name, where=where) for name in dict.fromkeys(names)}
    if "prefixItems" in found:
        found["prefixItems"] = _prefix(one, other)
    return found


def _member(one: Mapping[str, Any], other: Mapping[str, Any], name: str, *, where: str) -> Any:
    """Return what both want of a property: by its name, by a pattern, or as one that is not named."""
    found: list[Any] = []
    for side in (one, other):
        found += named(side, name, where=where) or [side.get("additionalProperties", True)]
    found = [each for each in found if each is not True]
    return {"allOf": found} if len(found) > 1 else found[0] if found else True


def _prefix(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Any]:
    sides = [(side.get("prefixItems") or [], side.get("items", True)) for side in (one, other)]
    longest = max(len(fixed) for fixed, _ in sides)
    return [{"allOf": [fixed[i] if i < len(fixed) else rest for fixed, rest in sides]} for i in range(longest)]


def _larger(one: Any, other: Any) -> Any:
    return max(one, other) if _comparable(one, other) else other


def _smaller(one: Any, other: Any) -> Any:
    return min(one, other) if _comparable(one, other) else other


def _comparable(one: Any, other: Any) -> bool:
    return isinstance(one, int | float) and isinstance(other, int | float)


def _together(one: Any, other: Any) -> Any:
    return {"allOf": [one, other]}


def _listed(one: Any, other: Any) -> Any:
    return [*one, *other]


def _either_way(one: Any, other: Any) -> Any:
    return one is True or other is True


def _names(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**one, **{key: [*one.get(key, []), *names] for key, names in other.items()}}


def _by_name(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**one, **{key: _together(one[key], each) if key in one else each for key, each in other.items()}}


_RULES: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), _larger),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), _smaller),
    **dict.fromkeys(
        ("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames"), _together
    ),
    "required": _listed,
    "uniqueItems": _either_way,
    "dependentRequired": _names,
    "dependentSchemas": _by_name,
    "patternProperties": _by_name,
}


def without_choice(wanted: Wanted) -> tuple[Sequence[Any], Wanted]:
    """Return the first list to choose from, and all else."""
    return wanted.choices[0], replace(wanted, choices=wanted.choices[1:])
