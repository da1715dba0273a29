"""Semantic versions, and which of two is newer. Build metadata does not count."""

import re
from dataclasses import dataclass
from functools import total_ordering

_NUMBER = r"(0|[1-9]\d{0,17})"
_VERSION = re.compile(rf"v?{_NUMBER}\.{_NUMBER}(?:\.{_NUMBER})?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII)
_LONGEST = 256


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


def find_version(text: str) -> Version | None:
    """Return the version that a text is, `v1.2` for `1.2.0` included; None when it is none."""
    match = _VERSION.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        return None
    major, minor, patch, pre = match.groups()
    return Version((int(major), int(minor), int(patch or 0)), tuple(pre.split(".")) if pre else ())
