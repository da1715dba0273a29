"""Versions and the ranges of `skipRange`, as OLM compares them.

A range is alternatives (`||`) of comparisons that all hold: `>=1.0.0 <1.2.0`; `1.2.x` stands for all of 1.2.
"""

import operator
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from pointsman.core.errors import UserError
from pointsman.core.versions import Version, find_version

_WHOLE = re.compile(r"v?\d+\.\d+\.\d")
_COMPARISON = re.compile(r"(>=|<=|!=|>|<|==|=|!)?\s*([^\s<>=!]+)")
_WILD = re.compile(r"v?(\d{1,9})(?:\.(\d{1,9}))?\.x(?:\.x)?")
_OPERATORS: dict[str, Callable[[Version, Version], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    **dict.fromkeys(("!=", "!"), operator.ne),
    **dict.fromkeys(("", "=", "=="), operator.eq),
}


@lru_cache(maxsize=4096)
def parse_version(text: str) -> Version:
    """Return a version with all three numbers; raises UserError for what is none."""
    found = find_version(text)
    if found is None or not _WHOLE.match(text.strip()):
        raise UserError(f"{text[:80]!r} is no version: it must be MAJOR.MINOR.PATCH")
    return found


def in_range(version: Version, text: str) -> bool:
    """Say whether a version lies in a range; raises UserError for a range that cannot be read."""
    return any(all(_OPERATORS[sign](version, bound) for sign, bound in part) for part in _range(text))


# A channel has as many entries as versions, and each may have a range that all others are compared with.
@lru_cache(maxsize=4096)
def _range(text: str) -> tuple[tuple[tuple[str, Version], ...], ...]:
    return tuple(tuple(_comparisons(part.strip())) for part in text.split("||"))


def _comparisons(text: str) -> Iterator[tuple[str, Version]]:
    found = _COMPARISON.findall(text)
    if not found or _COMPARISON.sub("", text).strip():
        raise UserError(f"{text[:80]!r} is no range of versions: write it as '>=1.0.0 <1.2.0'")
    for sign, bound in found:
        if (wild := _WILD.fullmatch(bound)) is None:
            yield sign, parse_version(bound)
        else:
            yield from _wild(sign, int(wild[1]), wild[2])


def _wild(sign: str, major: int, minor: str | None) -> Iterator[tuple[str, Version]]:
    """Yield what `1.2.x` or `1.x` means behind a sign."""
    low = Version((major, int(minor or 0), 0))
    high = Version((major, int(minor) + 1, 0) if minor else (major + 1, 0, 0))
    if sign in {"!=", "!"}:
        raise UserError(f"{sign}{major}.x excludes a whole range: write what is in it")
    if sign in {"", "=", "==", ">=", ">"}:
        yield ">=", high if sign == ">" else low
    if sign in {"", "=", "==", "<=", "<"}:
        yield "<", low if sign == "<" else high
