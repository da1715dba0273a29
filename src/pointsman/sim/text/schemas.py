"""Values that fit a JSON schema, drawn from it: for the arguments of tools and for structured output.

What a schema wants of a value, through references and all that holds together, is put into one (`joined`); the value is
drawn from that, alternative by alternative, and judged by the schema itself (`judge`) wherever a draw may miss, with
some tries. So a value that is given out fits; what cannot be met (bounds that exclude each other, a reference to
nowhere or to itself without end), or what we do not find, is refused with its place. Keywords that nobody knows allow
what they allow. Work and size are bounded whatever the schema says.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from pointsman.core.lines import cut
from pointsman.sim.engine.chance import Chance
from pointsman.sim.failures import Refusal
from pointsman.sim.settings import Settings
from pointsman.sim.text import patterns, scalars
from pointsman.sim.text.heights import Heights
from pointsman.sim.text.joined import TYPES, Wanted, both, read, without_choice
from pointsman.sim.text.judge import Judge, named, same
from pointsman.sim.text.references import refused
from pointsman.sim.text.scalars import WORDS

_DEEPEST = 24
_SHALLOW = 6  # deeper than this, nothing that may be left out is drawn
_MOST_VALUES = 1000  # in one document, if it wants so many
_MOST_WORK = 4_000  # values drawn for one document, those that are drawn again included
_MOST_ITEMS = 100
_TRIES = 30
_TRIES_TO_DIFFER = 200


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a value is drawn from where its schema leaves it open."""

    integers: tuple[int, int] = (0, 100)
    numbers: tuple[float, float] = (0.0, 100.0)
    items: tuple[int, int] = (1, 5)
    optional: int = 50  # chance of an optional property at the top
    optional_inside: int = 50
    plenty: int = 60  # values in a document; beyond, nothing that may be left out is drawn


_EVERYTHING = Bounds(optional=100, optional_inside=100, plenty=200)
BARE = Bounds(items=(0, 0), optional=0, optional_inside=0, plenty=0)


def bounds_of(settings: Settings) -> Bounds:
    """Return the bounds that the flags of tool calls set."""
    return Bounds(
        (settings.min_tool_call_integer_param, settings.max_tool_call_integer_param),
        (settings.min_tool_call_number_param, settings.max_tool_call_number_param),
        (settings.min_tool_call_array_param_length, settings.max_tool_call_array_param_length),
        settings.tool_call_not_required_param_probability,
        settings.object_tool_call_not_required_field_probability,
    )


def check(schema: Any, *, name: str) -> Any:
    """Draw once, always the same, with all that may be left out, so that a refusal never depends on luck.

    Raises Refusal 400 naming the place in the schema that cannot be met, and why.
    """
    return _Drawer(schema, Chance("schemas"), _EVERYTHING).document(name)


def draw(schema: Any, chance: Chance, *, bounds: Bounds, name: str) -> Any:
    """Return a value that fits the schema; one that `check` accepts always gives one.

    Raises Refusal 400 naming the place in it that cannot be met, and why.
    """
    try:
        return _Drawer(schema, chance, bounds).document(name)
    except Refusal:
        return check(schema, name=name)


class _SpentError(Refusal):
    """Too much was tried: no other alternative is worth it."""


class _Drawer:
    """Draws the parts of one document."""

    def __init__(self, root: Any, chance: Chance, bounds: Bounds) -> None:
        self.root = root
        self.chance = chance
        self.bounds = bounds
        self.judge = Judge(root)
        self.heights = Heights(root)
        self._left = bounds.plenty
        self._work = _MOST_WORK
        self._again = 0  # values above that are being drawn again: what may be left out is then left to chance

    def document(self, name: str) -> Any:
        """Return a value for the whole schema."""
        try:
            for _ in range(_TRIES):
                value = self.value(self.root, where=name, depth=0)
                fault = self.judge.fault(self.root, value, where=name)
                if fault is None:
                    return value
                self._again = 1
        except RecursionError:
            raise refused(name, "goes too deep") from None
        raise refused(name, f"asks for what we do not find: {fault}")

    def value(self, schema: Any, *, where: str, depth: int) -> Any:
        """Return a value for a part of it."""
        if depth > _DEEPEST:
            raise refused(where, "goes too deep, or refers to itself without end")
        self._left -= 1
        self._spend(where)
        wanted = read(schema, root=self.root, where=where)
        if not _may_miss(wanted):
            return self._drawn(wanted, schema, where=where, depth=depth)
        return self._tried(wanted, schema, where=where, depth=depth)

    def _spend(self, where: str) -> None:
        self._work -= 1
        if self._work < 0:
            raise _SpentError(400, str(refused(where, f"is not met after {_MOST_WORK} tries")))

    def _tried(self, wanted: Wanted, schema: Any, *, where: str, depth: int) -> Any:
        """Draw until the schema itself says that it fits."""
        before = self._again
        try:
            for _ in range(_TRIES):
                value = self._met(wanted, schema, where=where, depth=depth, turn=0)
                fault = self.judge.fault(schema, value, where=where)
                if fault is None:
                    return value
                self._again = before + 1
        finally:
            self._again = before
        raise refused(where, f"asks for what we do not find: {fault}")

    def _met(self, wanted: Wanted, schema: Any, *, where: str, depth: int, turn: int) -> Any:
        """Choose what there is to choose, one after the other; where an alternative cannot be met, take another."""
        if not wanted.choices:
            return self._drawn(wanted, schema, where=where, depth=depth)
        if turn > _DEEPEST:
            raise refused(where, "refers to itself without end")
        options, rest = without_choice(wanted)
        refusal: Refusal | None = None
        for option in self._order(options, depth):
            self._spend(where)
            try:
                chosen = both(rest, read(option, root=self.root, where=where), where=where)
                return self._met(chosen, schema, where=where, depth=depth, turn=turn + 1)
            except _SpentError:
                raise
            except Refusal as error:
                refusal = refusal or error
        raise refusal or refused(where, "refers to itself without end")

    def _order(self, options: Sequence[Any], depth: int) -> Iterator[Any]:
        """Return alternatives, one by chance first; deep inside, those first that end soonest."""
        if self._sparing(depth):
            yield from sorted((each for each in options if self.heights.of(each) < inf), key=self.heights.of)
            return
        first = self.chance.below(len(options))
        yield options[first]
        yield from (each for number, each in enumerate(options) if number != first)

    def _sparing(self, depth: int) -> bool:
        return depth > _SHALLOW or self._left <= 0

    def _drawn(self, wanted: Wanted, schema: Any, *, where: str, depth: int) -> Any:
        if wanted.enum is not None:
            return self._listed(wanted, schema, where=where)
        match self._kind(wanted, where=where, depth=depth):
            case "null":
                return None
            case "boolean":
                return self.chance.happens(50)
            case "integer":
                return scalars.integer(wanted.keys, wanted.steps, self.chance, usual=self.bounds.integers, where=where)
            case "number":
                return scalars.number(wanted.keys, wanted.steps, self.chance, usual=self.bounds.numbers, where=where)
            case "string":
                return scalars.text(wanted.keys, wanted.patterns, self.chance, where=where)
            case "array":
                return self._array(wanted, where=where, depth=depth)
        return self._object(wanted, where=where, depth=depth)

    def _listed(self, wanted: Wanted, schema: Any, *, where: str) -> Any:
        """Return one of the values that are listed, of those that all else allows."""
        options = wanted.enum or []
        first = self.chance.below(len(options)) if options else 0
        for each in (*options[first:], *options[:first]):
            if self.judge.fault(schema, each, where=where) is None:
                return each
        raise refused(where, "has no value in its enum or const that all else in it allows")

    def _kind(self, wanted: Wanted, *, where: str, depth: int) -> str:
        shut = {each["type"] for each in wanted.nots if isinstance(each, dict) and [*each] == ["type"]
                if isinstance(each["type"], str)}  # fmt: skip
        if wanted.types is None and (shut or self._again):
            told = _told(wanted)
            known = list(TYPES) if told is None else [told]
        else:
            known = list(wanted.types or [_told(wanted) or ("string" if depth else "object")])
        known = [each for each in known if each not in shut]
        if not known:
            raise refused(where, "allows no type that its not leaves")
        if "null" in known and self._sparing(depth):
            return "null"
        return known[0] if len(known) == 1 else self.chance.choice(known)

    # lists

    def _array(self, wanted: Wanted, *, where: str, depth: int) -> list[Any]:
        fixed, rest = wanted.keys.get("prefixItems") or [], _rest(wanted.keys)
        kinds = self._contents(wanted, where=where)
        low, high = self._size(wanted, len(fixed), len(kinds), where=where, depth=depth)
        size = self.chance.between(low, high)
        kinds = [*fixed[: size - len(kinds)], *kinds]
        kinds += [_unlike(rest, wanted.contained)] * (size - len(kinds))
        if wanted.keys.get("uniqueItems") is True:
            return self._unique(kinds, low, where=where, depth=depth)
        return [self.value(kind, where=f"{where}[{i}]", depth=depth + 1) for i, kind in enumerate(kinds)]

    def _contents(self, wanted: Wanted, *, where: str) -> list[Any]:
        """Return the schemas of items that must be there besides those with a place of their own."""
        rest = wanted.keys.get("items", True)
        found: list[Any] = []
        for each in wanted.contained:
            least = scalars.count(each, "minContains", 1, where=where)
            if least > _MOST_ITEMS:
                raise refused(where, f"wants {least} items, at most {_MOST_ITEMS}")
            found += [{"allOf": [rest, each["contains"]]}] * least
        return found

    def _size(self, wanted: Wanted, fixed: int, inside: int, *, where: str, depth: int) -> tuple[int, int]:
        """Return the fewest and the most items to draw."""
        low, high = self.bounds.items
        least = scalars.count(wanted.keys, "minItems", None, where=where)
        most = scalars.count(wanted.keys, "maxItems", None, where=where)
        needed = max(least or 0, inside)
        low = needed if least is not None else max(low, inside, 0)
        high = max(high, low, fixed + inside) if most is None else most
        high = min(high, fixed + inside) if _rest(wanted.keys) is False else high
        high = min(high, max(needed, _MOST_ITEMS))
        if needed > min(high, _MOST_ITEMS):
            raise refused(where, f"wants {needed} items, at most {min(high, _MOST_ITEMS)}")
        if self.bounds.plenty - self._left > _MOST_VALUES:
            raise refused(where, f"wants more than {_MOST_VALUES} values")
        if self._sparing(depth):
            return needed, needed
        low = min(max(low, fixed + inside), high)
        return low, max(low, high)

    def _unique(self, kinds: Sequence[Any], least: int, *, where: str, depth: int) -> list[Any]:
        """Draw items until each is another one; fewer, where no more are found and none are missed."""
        found: list[Any] = []
        for number, kind in enumerate(kinds):
            for _ in range(_TRIES_TO_DIFFER):
                each = self.value(kind, where=f"{where}[{number}]", depth=depth + 1)
                if not any(same(each, other) for other in found):
                    found.append(each)
                    break
            else:
                if number < least:
                    raise refused(where, f"wants {least} different items, and we find {number}")
                break
        return found

    # objects

    def _object(self, wanted: Wanted, *, where: str, depth: int) -> dict[str, Any]:
        names = self._names(wanted, where=where, depth=depth)
        for name, schema in (wanted.keys.get("dependentSchemas") or {}).items():
            if name in names:
                return self._depending(wanted, name, schema, where=where, depth=depth)
        return {
            name: self.value(self._member(wanted, name, where=where), where=f"{where}.{name}", depth=depth + 1)
            for name in names
        }

    def _depending(self, wanted: Wanted, name: str, schema: Any, *, where: str, depth: int) -> dict[str, Any]:
        """Draw an object that has the property, with what it then wants."""
        others = {key: each for key, each in wanted.keys["dependentSchemas"].items() if key != name}
        needed = [*(wanted.keys.get("required") or []), name]
        wanted = replace(wanted, keys={**wanted.keys, "dependentSchemas": others, "required": needed})
        more = both(wanted, read(schema, root=self.root, where=where), where=where)
        found = self._met(more, schema, where=where, depth=depth, turn=0)
        return found if isinstance(found, dict) else {}

    def _member(self, wanted: Wanted, name: str, *, where: str) -> Any:
        found = named(wanted.keys, name, where=where) or [_unnamed(wanted.keys)]
        if found[0] is False and len(found) == 1 and name not in (wanted.keys.get("properties") or {}):
            raise refused(where, f"requires {cut(name, most=50)!r}, which is no property of it")
        return found[0] if len(found) == 1 else {"allOf": found}

    def _names(self, wanted: Wanted, *, where: str, depth: int) -> list[str]:
        """Return the properties that an object gets: what it must have, what it may, and more where too few."""
        keys = wanted.keys
        properties, required = keys.get("properties") or {}, list(dict.fromkeys(keys.get("required") or []))
        share = 50 if self._again else self.bounds.optional_inside if depth else self.bounds.optional
        shut = _shut(wanted, required)
        may = [name for name, each in properties.items() if name not in required and name not in shut and _open(each)]
        least, most = (scalars.count(keys, key, None, where=where) for key in ("minProperties", "maxProperties"))
        chosen = {name for name in may if not self._sparing(depth) and self.chance.happens(share)}
        needed = _completed(dict.fromkeys(required), keys)
        if most is not None and len(needed) > most:
            raise refused(where, f"requires {len(needed)} properties, at most {most}")
        for name in may:
            more = _completed({**needed, name: None}, keys)
            if (name in chosen or len(needed) < (least or 0)) and (most is None or len(more) <= most):
                needed = more
        order = [name for name in properties if name in needed] + [name for name in needed if name not in properties]
        return order + self._more_names(wanted, order, least or 0, where=where, depth=depth)

    def _more_names(self, wanted: Wanted, names: list[str], least: int, *, where: str, depth: int) -> list[str]:
        """Return names that the schema does not tell, as many as are missing."""
        keys = wanted.keys
        if least > _MOST_VALUES:
            raise refused(where, f"wants {least} properties, at most {_MOST_VALUES}")
        told = isinstance(keys.get("additionalProperties"), dict) or keys.get("patternProperties")
        if not names and not least and told and not keys.get("properties") and not self._sparing(depth):
            least = 1 if scalars.count(keys, "maxProperties", 1, where=where) else 0
        found: list[str] = []
        for number in range(_TRIES + 2 * least):
            if len(names) + len(found) >= least:
                return found
            name = self._new_name(keys, number, where=where)
            if name not in names and name not in found and name not in (keys.get("properties") or {}):
                found.append(name)
        if least > len(names) + len(found) and least > 1:
            raise refused(where, f"wants {least} properties, and we find {len(names) + len(found)}")
        return found

    def _new_name(self, keys: Mapping[str, Any], number: int, *, where: str) -> str:
        by_pattern = [key for key, each in (keys.get("patternProperties") or {}).items() if each is not False]
        if by_pattern:
            try:
                return patterns.draw(self.chance.choice(by_pattern), self.chance, least=number // 10)
            except ValueError as error:
                raise refused(where, f"has a pattern that cannot be drawn from: {error}") from None
        if _unnamed(keys) is False:
            raise refused(where, "wants more properties than it allows")
        if "propertyNames" in keys:
            found = self.value({"allOf": [{"type": "string"}, keys["propertyNames"]]}, where=where, depth=_SHALLOW)
            return str(found)
        word = self.chance.choice(WORDS)
        return word if number < len(WORDS) else f"{word}{number}"


_HARD = {"dependentRequired", "dependentSchemas", "propertyNames", "patternProperties", "unevaluatedProperties"}


def _may_miss(wanted: Wanted) -> bool:
    """Tell whether a draw may miss what is wanted, so that it is to be judged."""
    return bool(wanted.choices or wanted.nots or wanted.contained or not _HARD.isdisjoint(wanted.keys))


_TELLING = {
    **dict.fromkeys(("properties", "additionalProperties", "required", "patternProperties", "minProperties",
                     "maxProperties", "propertyNames", "dependentRequired", "dependentSchemas"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems", "uniqueItems"), "array"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "format"), "string"),
}  # fmt: skip


def _told(wanted: Wanted) -> str | None:
    """Return the type that keywords are about, where none is named."""
    if wanted.patterns:
        return "string"
    if wanted.contained:
        return "array"
    found = next((kind for key, kind in _TELLING.items() if key in wanted.keys), None)
    return found or ("number" if wanted.steps else None)


def _rest(keys: Mapping[str, Any]) -> Any:
    """Return the schema of items that have no place of their own."""
    return keys.get("items", keys.get("unevaluatedItems", {"type": "string"}))


def _unlike(rest: Any, contained: Sequence[Mapping[str, Any]]) -> Any:
    """Return the schema of the other items: where what is contained has a limit, they are something else."""
    shut = [{"not": each["contains"]} for each in contained if "maxContains" in each]
    return {"allOf": [rest, *shut]} if shut else rest


def _unnamed(keys: Mapping[str, Any]) -> Any:
    return keys.get("additionalProperties", keys.get("unevaluatedProperties", True))


def _open(schema: Any) -> bool:
    """Tell whether a property may be there: `false`, or `not` of everything, says that it must not."""
    return schema is not False and not (isinstance(schema, dict) and schema.get("not") in ({}, True))


def _shut(wanted: Wanted, required: Sequence[str]) -> set[str]:
    """Return properties to leave out, because they must not all be there: of each such list one that may go."""
    found: set[str] = set()
    for each in wanted.nots:
        names = each.get("required") if isinstance(each, dict) and [*each] == ["required"] else None
        free = [name for name in names if name not in required] if isinstance(names, list) else []
        found.update(free[:1])
    return found


def _completed(names: dict[str, None], keys: Mapping[str, Any]) -> dict[str, None]:
    """Return the names with those that they want beside them."""
    depending = keys.get("dependentRequired") or {}
    found = dict(names)
    left = list(names)
    while left:
        wanted = depending.get(left.pop())
        for each in wanted if isinstance(wanted, list) else ():
            if isinstance(each, str) and each not in found:
                found[each] = None
                left.append(each)
    return found
