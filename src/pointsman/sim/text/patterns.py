"""Texts that match a regular expression, written from its parts, and whether a text matches one.

Clients choose patterns, so `re` never runs them: a text is written part by part, within the length that is asked for,
and matched by following all places at once that each part can end at, with a bound on the work. What a drawn text may
hold is narrower than what a validator would take (word characters are ASCII, for one), so that every dialect takes it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

from pointsman.sim.engine.chance import Chance

_MOST = 4096  # letters
_MOST_WORK = 200_000  # places looked at for one match
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORD = frozenset(f"{_LETTERS}{_LETTERS.upper()}0123456789_")
_USUAL = f"a0 -_Zz.{_LETTERS}123456789{_LETTERS.upper()}!\"#$%&'()*+,/:;<=>?@[\\]^`{{|}}~\u4e00\u00e9\u0416"
_CATEGORIES = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_WORD": "abcdefghijklmnopqrstuvwxyz0123456789_",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": "abc",
    "CATEGORY_NOT_WORD": " -.",
    "CATEGORY_NOT_SPACE": "abc012",
}
_PROPERTIES = {
    "L": "a-zA-Z\u00e0-\u00f6\u4e00-\u4e20", "Letter": "a-zA-Z\u00e0-\u00f6\u4e00-\u4e20", "Lu": "A-Z\u00c0-\u00d6",
    "Ll": "a-z\u00e0-\u00f6", "N": "0-9", "Nd": "0-9",
}  # fmt: skip


_PIECE = re.compile(r"\\p\{(\w{1,40})\}|\\.|\(\?<(?![=!])|.", re.DOTALL)


def draw(pattern: str, chance: Chance, *, least: int = 0, most: int = _MOST) -> str:
    """Return a text that the pattern matches, as far as it can of a length in between.

    Raises ValueError when it is no regular expression, or one that we cannot write from.
    """
    parts = parsed(pattern)
    try:
        text = _Writer(chance).text(parts, least=least, most=min(most, _MOST))
    except RecursionError as error:
        raise ValueError(str(error)) from None
    short = least - len(text)
    if short <= 0 or not parts:
        return text + "a" * max(short, 0)
    if str(parts[-1][0]) != "AT":
        return text + "a" * short
    return text if str(parts[0][0]) == "AT" else "a" * short + text


def matches(pattern: str, text: str) -> bool:
    """Tell whether the pattern is found in the text.

    Raises ValueError when it is no regular expression, has parts that we do not follow, or takes too long.
    """
    try:
        return bool(_Reader(text).ends(parsed(pattern), frozenset(range(len(text) + 1))))
    except RecursionError as error:
        raise ValueError(str(error)) from None


@lru_cache(maxsize=512)
def parsed(pattern: str) -> Any:
    """Return the parts of a pattern; JSON schema's are JavaScript's, of which what is common is put into Python's.

    Raises ValueError when it is no regular expression.
    """
    if len(pattern) > _MOST:
        raise ValueError(f"it has more than {_MOST} letters")
    parser = import_module("re._parser")  # the parser of `re`, which has no public name
    try:
        return parser.parse(_in_python(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _in_python(pattern: str) -> str:
    """Spell named groups and some classes of Unicode as Python does."""
    found: list[str] = []
    inside = False
    for piece in _PIECE.finditer(pattern):
        text = piece[0]
        if piece[1]:
            letters = _PROPERTIES.get(piece[1])
            if letters is None:
                raise ValueError(f"{text} is not supported")
            text = letters if inside else f"[{letters}]"
        elif text == "(?<" and not inside:
            text = "(?P<"
        else:
            inside = text != "]" if inside else text == "["
        found.append(text)
    return "".join(found)


class _Writer:
    """Writes texts from parsed regular expressions: the least that each part allows, or what the length asks for."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self._left = _MOST

    def text(self, parts: Any, *, least: int, most: int) -> str:
        """Write the parts in order; each leaves the others what they need, and gives what they cannot."""
        widths = [_width(part) for part in parts]
        low, high = sum(low for low, _ in widths), sum(high for _, high in widths)
        written: list[str] = []
        for (kind, value), (fewest, widest) in zip(parts, widths, strict=True):
            low, high = low - fewest, high - widest
            room = max(most - low, fewest)
            piece = self._part(str(kind), value, least=min(max(least - high, fewest), widest, room), most=room)
            written.append(piece)
            least, most = least - len(piece), most - len(piece)
        return "".join(written)

    def _part(self, kind: str, value: Any, *, least: int, most: int) -> str:
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
                return self._repeated(value, least=least, most=most)
            case "SUBPATTERN" | "ATOMIC_GROUP":
                return self.text(value[-1] if kind == "SUBPATTERN" else value, least=least, most=most)
            case "BRANCH":
                return self._branch(value[1], least=least, most=most)
            case "AT":
                return ""
        raise ValueError(f"{kind.lower()} is not supported")

    def _repeated(self, value: Any, *, least: int, most: int) -> str:
        fewest, limit, inner = value
        if fewest > _MOST:
            raise ValueError(f"it wants {fewest} letters")
        low, high = _clipped(inner.getwidth())
        count = max(int(fewest), min(1, int(limit)))
        if high and count * high < least:
            count = min(-(-least // high), int(limit))
        if low and count * low > most:
            count = max(most // low, int(fewest))
        written: list[str] = []
        for left in range(count - 1, -1, -1):
            written.append(self.text(inner, least=least - left * high, most=max(most - left * low, low)))
            least, most = least - len(written[-1]), most - len(written[-1])
        return "".join(written)

    def _branch(self, options: Sequence[Any], *, least: int, most: int) -> str:
        widths = [_clipped(each.getwidth()) for each in options]
        fitting = [each for each, (low, high) in zip(options, widths, strict=True) if low <= most and high >= least]
        return self.text(self.chance.choice(fitting or options), least=least, most=most)

    def _letter(self, letter: str) -> str:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it wants more than {_MOST} letters")
        return letter

    def _among(self, items: list[tuple[Any, Any]]) -> str:
        if str(items[0][0]) == "NEGATE":
            free = next((letter for letter in _USUAL if _takes(items, letter)), None)
            if free is None:
                raise ValueError("it allows no letter that we know")
            return free
        return self.chance.choice(sorted(_members(items)))


def _width(part: tuple[Any, Any]) -> tuple[int, int]:
    """Return the fewest and the most letters of a part."""
    kind, value = part
    match str(kind):
        case "AT":
            return 0, 0
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            low, high = value[2].getwidth()
            return _clipped((low * int(value[0]), high * int(value[1])))
        case "SUBPATTERN":
            return _clipped(value[-1].getwidth())
        case "ATOMIC_GROUP":
            return _clipped(value.getwidth())
        case "BRANCH":
            widths = [each.getwidth() for each in value[1]]
            return _clipped((min(low for low, _ in widths), max(high for _, high in widths)))
    return 1, 1


def _clipped(width: tuple[int, int]) -> tuple[int, int]:
    return min(width[0], _MOST + 1), min(width[1], _MOST + 1)


def _members(items: Iterable[tuple[Any, Any]]) -> set[str]:
    found: set[str] = set()
    for kind, value in items:
        match str(kind):
            case "LITERAL":
                found.add(chr(value))
            case "RANGE":
                found.update(map(chr, range(value[0], min(value[1], value[0] + 200) + 1)))
            case "CATEGORY":
                found.update(_CATEGORIES.get(str(value), ""))
    found = {letter for letter in found if not "\ud800" <= letter <= "\udfff"}  # no JSON text can hold half a pair
    if not found:
        raise ValueError("it allows no letter that we know")
    return found


def _takes(items: Sequence[tuple[Any, Any]], letter: str) -> bool:
    """Tell whether a class of letters has this one."""
    negated = str(items[0][0]) == "NEGATE"
    for kind, value in items[negated:]:
        match str(kind):
            case "LITERAL":
                found = value == ord(letter)
            case "RANGE":
                found = value[0] <= ord(letter) <= value[1]
            case _:
                found = _in_category(str(value), letter, loosely=negated)
        if found:
            return not negated
    return negated


def _in_category(name: str, letter: str, *, loosely: bool) -> bool:
    """Tell whether a letter is in a category for every dialect; `loosely`, for any of them."""
    if name.startswith("CATEGORY_NOT_"):
        return not _in_category(name.replace("NOT_", ""), letter, loosely=not loosely)
    if name == "CATEGORY_DIGIT":
        return letter.isdecimal() if loosely else letter in "0123456789"
    if name == "CATEGORY_WORD":
        return letter in _WORD or (loosely and letter.isalnum())
    return letter.isspace()


class _Reader:
    """Follows a parsed pattern through a text: from all places where it may begin to all where it may end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._left = _MOST_WORK
        self._known: dict[int, frozenset[str]] = {}  # by classes of the pattern, which outlives this

    def ends(self, parts: Any, starts: frozenset[int]) -> frozenset[int]:
        for kind, value in parts:
            self._left -= len(starts) + 1
            if self._left < 0:
                raise ValueError("it takes too long to match")
            starts = self._part(str(kind), value, starts)
            if not starts:
                break
        return starts

    def _part(self, kind: str, value: Any, starts: frozenset[int]) -> frozenset[int]:
        match kind:
            case "LITERAL" | "NOT_LITERAL":
                return self._step(starts, lambda letter: (ord(letter) == value) == (kind == "LITERAL"))
            case "ANY":
                return self._step(starts, lambda letter: letter != "\n")
            case "IN":
                return self._step(starts, self._letters(value).__contains__)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._repeated(value, starts)
            case "SUBPATTERN" | "ATOMIC_GROUP":
                return self.ends(value[-1] if kind == "SUBPATTERN" else value, starts)
            case "BRANCH":
                return frozenset().union(*(self.ends(each, starts) for each in value[1]))
            case "AT":
                return frozenset(at for at in starts if self._at(str(value), at))
        raise ValueError(f"{kind.lower()} is not supported")

    def _letters(self, items: list[tuple[Any, Any]]) -> frozenset[str]:
        """Return the letters of the text that a class has."""
        if id(items) not in self._known:
            self._known[id(items)] = frozenset(letter for letter in set(self.text) if _takes(items, letter))
        return self._known[id(items)]

    def _step(self, starts: frozenset[int], takes: Callable[[str], bool]) -> frozenset[int]:
        text = self.text
        return frozenset(at + 1 for at in starts if at < len(text) and takes(text[at]))

    def _repeated(self, value: Any, starts: frozenset[int]) -> frozenset[int]:
        fewest, limit, inner = value
        for _ in range(
            min(int(fewest), len(self.text) + 1)
        ):  # more often only with what is empty, which changes nothing
            starts = self.ends(inner, starts)
        found = fresh = starts
        for _ in range(min(int(limit) - int(fewest), len(self.text) + 1)):
            fresh = self.ends(inner, fresh) - found
            if not fresh:
                break
            found |= fresh
        return found

    def _at(self, where: str, at: int) -> bool:
        match where:
            case "AT_BEGINNING" | "AT_BEGINNING_STRING":
                return at == 0
            case "AT_END" | "AT_END_STRING":
                return at == len(self.text)
        before, after = (at > 0 and self.text[at - 1] in _WORD), (at < len(self.text) and self.text[at] in _WORD)
        return (before != after) == (where == "AT_BOUNDARY")
