"""Numbers and texts within the bounds of a JSON schema."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor, gcd, lcm, nextafter
from typing import Any

from pointsman.core.lines import cut
from pointsman.core.numbers import SAFE
from pointsman.sim.engine.chance import Chance
from pointsman.sim.text import patterns
from pointsman.sim.text.references import refused

WORDS = ("signal", "platform", "junction", "carriage", "whistle", "timetable", "bridge", "tunnel", "lantern", "depot")
_MOST_TEXT = 4096  # letters of one text
_TRIES = 30


def _date(c: Chance) -> str:
    return f"20{c.between(10, 29)}-{c.between(1, 12):02d}-{c.between(1, 28):02d}"


def _time(c: Chance) -> str:
    return f"{c.below(24):02d}:{c.below(60):02d}:{c.below(60):02d}"


def _uuid(c: Chance) -> str:
    digits = f"{c.bits():016x}{c.bits():016x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"


def _email(c: Chance) -> str:
    return f"{c.choice(WORDS)}@example.com"


def _hostname(c: Chance) -> str:
    return f"{c.choice(WORDS)}.example.com"


def _uri(c: Chance) -> str:
    return f"https://example.com/{c.choice(WORDS)}"


_FORMATS: dict[str, Callable[[Chance], str]] = {
    "date-time": lambda c: f"{_date(c)}T{_time(c)}Z",
    "date": _date,
    "time": lambda c: f"{_time(c)}Z",
    "duration": lambda c: f"PT{c.between(1, 59)}M",
    "email": _email,
    "idn-email": _email,
    "hostname": _hostname,
    "idn-hostname": _hostname,
    "uri": _uri,
    "url": _uri,
    "iri": _uri,
    "uri-reference": lambda c: f"/{c.choice(WORDS)}",
    "iri-reference": lambda c: f"/{c.choice(WORDS)}",
    "uri-template": lambda c: f"/{c.choice(WORDS)}/{{id}}",
    "json-pointer": lambda c: f"/{c.choice(WORDS)}",
    "relative-json-pointer": lambda c: f"0/{c.choice(WORDS)}",
    "regex": lambda c: f"^{c.choice(WORDS)}$",
    "ipv4": lambda c: f"192.0.2.{c.between(1, 254)}",
    "ipv6": lambda c: f"2001:db8::{c.between(1, 9999):x}",
    "uuid": _uuid,
    "byte": lambda _c: "c2lnbmFs",
    "binary": lambda c: c.choice(WORDS),
}
_SHORT = {"email": "a@b.co", "idn-email": "a@b.co", "hostname": "a.co", "idn-hostname": "a.co", "duration": "P1D",
          "uri": "a:b", "url": "a:b", "iri": "a:b", "uri-reference": "/", "iri-reference": "/", "uri-template": "/",
          "json-pointer": "", "relative-json-pointer": "0", "regex": "a", "ipv4": "1.1.1.1", "ipv6": "::1",
          "byte": "", "binary": ""}  # fmt: skip
_LONGER = {"uri", "url", "iri", "uri-reference", "iri-reference", "uri-template", "json-pointer", "binary"}
_MOST_LOCAL = 64  # letters before the @ of an address


def integer(
    keys: Mapping[str, Any], steps: Sequence[Any], chance: Chance, *, usual: tuple[int, int], where: str
) -> int:
    """Return an integer; `usual` is where it comes from if nothing else is said.

    Raises Refusal 400 when there is none.
    """
    low, high = _range(keys, usual, where=where, whole=True)
    step = _step(steps, (low, high), where=where)
    if step is None:
        first, last = ceil(low), floor(high)
        if first > last:
            raise refused(where, "allows no integer")
        return chance.between(first, last)
    step = Fraction(step.numerator)  # the integers among the multiples of a fraction
    return int(_multiple(keys, step, (low, high), chance, kind="integer", where=where))


def number(
    keys: Mapping[str, Any], steps: Sequence[Any], chance: Chance, *, usual: tuple[float, float], where: str
) -> float:
    """Return a number; `usual` is where it comes from if nothing else is said.

    Raises Refusal 400 when there is none.
    """
    low, high = _range(keys, usual, where=where, whole=False)
    step = _step(steps, (low, high), where=where)
    if step is not None:
        whole = _multiple(keys, step, (low, high), chance, kind="number", where=where)
        return int(whole) if whole.denominator == 1 else float(whole)
    inside = 0.001 + 0.998 * chance.random()  # never a bound itself, which may be excluded
    drawn = low if low == high else low + (high - low) * inside
    for found in (drawn, high, low, nextafter(low, high)):
        if low <= found <= high and not _excluded(keys, found):
            return found
    raise refused(where, "allows no number")


def _multiple(
    keys: Mapping[str, Any], step: Fraction, span: tuple[float, float], chance: Chance, *, kind: str, where: str
) -> Fraction:
    low, high = (Fraction(bound if abs(bound) > SAFE else str(bound)) for bound in span)
    first, last = ceil(low / step), floor(high / step)
    first += _excluded(keys, first * step)
    last -= _excluded(keys, last * step)
    if first > last:
        raise refused(where, f"allows no {kind}: no multiple of its multipleOf is in its bounds")
    for _ in range(_TRIES):  # some multiples of 0.1 are none for those who divide: 0.3 / 0.1 is 2.9999999999999996
        found = chance.between(first, last) * step
        if step.denominator == 1 or (float(found) / float(step)).is_integer():
            return found
    return found


def _step(steps: Sequence[Any], span: tuple[float, float], *, where: str) -> Fraction | None:
    """Return the smallest number that is a multiple of all."""
    found: Fraction | None = None
    for each in steps:
        size = _number({"multipleOf": each}, "multipleOf", where=where)
        if size is None or size <= 0:
            raise refused(where, "has a multipleOf that is not above zero")
        part = Fraction(str(size))
        found = part if found is None else Fraction(
            lcm(found.numerator, part.numerator), gcd(found.denominator, part.denominator)
        )  # fmt: skip
    if found is not None and found.denominator > 1 and max(map(abs, span)) > SAFE * found:
        raise refused(where, "has a multipleOf that is too small for its range")  # nobody could tell multiples apart
    return found


def _excluded(keys: Mapping[str, Any], value: float | Fraction) -> bool:
    return value in {keys.get("exclusiveMinimum"), keys.get("exclusiveMaximum")} - {None}


def text(keys: Mapping[str, Any], wanted: Sequence[str], chance: Chance, *, where: str) -> str:
    """Return a text that all wanted patterns match.

    Raises Refusal 400 when there is none, or none that we can write.
    """
    least, most = count(keys, "minLength", 0, where=where), count(keys, "maxLength", _MOST_TEXT, where=where)
    if least > min(most, _MOST_TEXT):
        raise refused(where, f"wants a text of {least} letters, at most {min(most, _MOST_TEXT)}")
    name = str(keys.get("format", ""))
    if wanted:
        return _matching(wanted, name, chance, least=least, most=min(most, _MOST_TEXT), where=where)
    if name in _FORMATS:
        return _formatted(name, chance, least=least, most=most, where=where)
    found = chance.choice(WORDS)
    while len(found) < least:
        found += f" {chance.choice(WORDS)}"
    return found if len(found) <= most else found[: max(least, most)].rstrip() or found[:most]


def _matching(wanted: Sequence[str], name: str, chance: Chance, *, least: int, most: int, where: str) -> str:
    """Return a text for patterns: one of the format, where there is one that they match."""
    formatted = _TRIES if name in _FORMATS else 0
    try:
        for attempt in range(-formatted, _TRIES):
            if attempt < 0:
                found = _FORMATS[name](chance)
            else:
                found = patterns.draw(wanted[attempt % len(wanted)], chance, least=least, most=most)
            if least <= len(found) <= most and all(patterns.matches(each, found) for each in wanted):
                return found
    except ValueError as error:
        raise refused(where, f"has a pattern that cannot be drawn from: {error}") from None
    shown = " and ".join(repr(cut(each, most=80)) for each in wanted[:3])
    raise refused(where, f"allows no text that we can write: {least} to {most} letters that match {shown}")


def _formatted(name: str, chance: Chance, *, least: int, most: int, where: str) -> str:
    """Return a text of a format; shorter or longer than usual where its length is bounded."""
    found = _FORMATS[name](chance)
    if len(found) > most:
        found = _SHORT.get(name, found)
    short = least - len(found)
    if short > 0 and name in _LONGER:
        found += "a" * short
    elif short > 0 and name.endswith("email"):
        found = "a" * min(short, _MOST_LOCAL - found.index("@")) + found
    if least <= len(found) <= most:
        return found
    raise refused(where, f"wants a text of format {name} with {least} to {most} letters, which we cannot write")


def count(schema: Mapping[str, Any], key: str, default: Any, *, where: str) -> Any:
    """Return a keyword that counts something, or the default.

    Raises Refusal 400 when it is no count.
    """
    found = _number(schema, key, where=where)
    if found is None:
        return default
    if found < 0 or found != int(found):
        raise refused(where, f"has a {key} that is no count")
    return int(found)


def _number(schema: Mapping[str, Any], key: str, *, where: str) -> float | None:
    found = schema.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e300:
        raise refused(where, f"has a {key} that is no number")
    return found


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
