"""Versions and the ranges of `skipRange`, as OLM compares them.

A range is alternatives (`||`) of comparisons that all hold: `>=1.0.0 <1.2.0`.
"""

import re

from pointsman.core.errors import UserError
from pointsman.core.versions import Version, find_version

_WHOLE = re.compile(r"v?\d+\.\d+\.\d")
_COMPARISON = re.compile(r"(>=|<=|!=|>|<|==|=|!)?\s*([^\s<>=!]+)")


def parse_version(text: str) -> Version:
    """Return a version with all three numbers; raises UserError for what is none."""
    found = find_version(text)
    if found is None or not _WHOLE.match(text.strip()):
        raise UserError(f"{text[:80]!r} is no version: it must be MAJOR.MINOR.PATCH")
    return found


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
