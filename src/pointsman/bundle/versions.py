"""Semantic versions and the ranges of `skipRange`, as OLM compares them.

A range is alternatives (`||`) of comparisons that all hold: `>=1.0.0 <1.2.0`. Build metadata does not count.
"""

import re
from dataclasses import dataclass
from functools import total_ordering

from pointsman.core.errors import UserError

_VERSION = re.compile(
    r"v?(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)
_COMPARISON = re.compile(r"(>=|<=|!=|>|<|==|=|!)?\s*([^\s<>=!]+)")


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A version that compares as semantic versions do: a pre-release comes before its release."""

    numbers: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    def __lt__(self, other: "Version") -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
        parts = tuple((not each.isdecimal(), int(each) if each.isdecimal() else 0, each) for each in self.pre)
        return self.numbers, not self.pre, parts


def parse_version(text: str) -> Version:
    """Return a version; raises UserError for what is none."""
    match = _VERSION.fullmatch(text.strip())
    if match is None or len(text) > 256:
        raise UserError(f"{text[:80]!r} is no version: it must be MAJOR.MINOR.PATCH")
    major, minor, patch, pre = match.groups()
    return Version((int(major), int(minor), int(patch)), tuple(pre.split(".")) if pre else ())


def in_range(version: Version, text: str) -> bool:
    """Say whether a version lies in a range; raises UserError for a range that cannot be read."""
    return any(_all_hold(version, part) for part in text.split("||"))


def _all_hold(version: Version, text: str) -> bool:
    comparisons = _COMPARISON.findall(text.strip())
    if not comparisons:
        raise UserError(f"{text[:80]!r} is no range of versions")
    return all(_holds(version, operator, parse_version(bound)) for operator, bound in comparisons)


def _holds(version: Version, operator: str, bound: Version) -> bool:
    return {
        ">=": version >= bound,
        "<=": version <= bound,
        ">": version > bound,
        "<": version < bound,
        "!=": version != bound,
        "!": version != bound,
    }.get(operator, version == bound)
