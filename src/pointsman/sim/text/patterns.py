"""Texts that match a regular expression, written from its parts. The pattern itself is never run: clients choose it."""

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from pointsman.sim.engine.chance import Chance

_MOST = 4096  # letters
_USUAL = "a0 -_Zz.\u4e00"
_CATEGORIES = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_WORD": "abcdefghijklmnopqrstuvwxyz0123456789_",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": "abc",
    "CATEGORY_NOT_WORD": " -.",
    "CATEGORY_NOT_SPACE": "abc012",
}


def draw(pattern: str, chance: Chance) -> str:
    """Return a text that matches the pattern.

    Raises ValueError when it is no regular expression, or one that we cannot write from.
    """
    parser = import_module("re._parser")  # the parser of `re`, which has no public name
    try:
        return _Writer(chance).text(parser.parse(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


class _Writer:
    """Writes texts from parsed regular expressions: the least that each part allows."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self._left = _MOST

    def text(self, parts: Sequence[tuple[Any, Any]]) -> str:
        return "".join(self._part(str(kind), value) for kind, value in parts)

    def _part(self, kind: str, value: Any) -> str:
        match kind:
            case "LITERAL":
                return self._letter(chr(value))
            case "ANY":
                return self._letter("a")
            case "NOT_LITERAL":
                return self._letter("b" if value == ord("a") else "a")
            case "IN":
                return self._letter(self._among(value))
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = value
                if least > _MOST:
                    raise ValueError(f"it wants {least} letters")
                count = max(int(least), min(1, int(most)))
                return "".join(self.text(inner) for _ in range(count))
            case "SUBPATTERN" | "ATOMIC_GROUP":
                return self.text(value[-1] if kind == "SUBPATTERN" else value)
            case "BRANCH":
                return self.text(self.chance.choice(value[1]))
            case "AT":
                return ""
        raise ValueError(f"{kind.lower()} is not supported")

    def _letter(self, letter: str) -> str:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it wants more than {_MOST} letters")
        return letter

    def _among(self, items: list[tuple[Any, Any]]) -> str:
        if str(items[0][0]) == "NEGATE":
            shut = self._members(items[1:])
            free = [each for each in _USUAL if each not in shut]
            if not free:
                raise ValueError("it allows no letter that we know")
            return free[0]
        return self.chance.choice(sorted(self._members(items)))

    def _members(self, items: list[tuple[Any, Any]]) -> set[str]:
        found: set[str] = set()
        for kind, value in items:
            match str(kind):
                case "LITERAL":
                    found.add(chr(value))
                case "RANGE":
                    found.update(map(chr, range(value[0], min(value[1], value[0] + 200) + 1)))
                case "CATEGORY":
                    found.update(_CATEGORIES.get(str(value), ""))
        if not found:
            raise ValueError("it allows no letter that we know")
        return found
