"""Find a few metric lines in a Prometheus text page, by searching bytes instead of parsing the page.

A vLLM page has a few hundred lines and we want five of them, twenty times a second from every endpoint. So each family
is looked for where it stood in the page before; only when it is not there is the whole page searched. The text format
makes this sound: the lines of one family stand together, each begins at the start of a line, and a line break in a
label value is escaped. What is not a proper line of the family (a value that is no number, half a label set) is as if
it were not there: a page can lie, it cannot raise.

From page to page little changes but values, and not all of those. So the text of a family is remembered, from the line
before it to the first bytes behind it: where it stands again, to the byte, it says what it said; where the text around
the values stands again, only these are read; anything else is read anew.

Which series counts when there are several is llm-d's rule: the one with the latest timestamp, the first of equals. For
LoRA info the gauge's value is the time, so there the largest value wins.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pointsman.core.errors import UserError

_SPEC = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\}\s*)?", re.ASCII | re.DOTALL)
_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}\s]+))\s*(?:,|$)', re.ASCII)
_LABEL = re.compile(rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_AFTER_NAME = frozenset(b"{ \t")
# Up to the first brace that is not in quotes. No group is repeated possessively: Python before 3.11.5 gets that wrong.
_LABELS = rb'((?:[^"}\n]++|"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*")*)'
_REST = (
    rb"(?:[ \t]*+\{%b\}[ \t]*+|[ \t]++)([^\s]++)(?:[ \t]++([^\s]++))?[ \t\r]*+(?:\n|\Z)" % _LABELS
)  # of a line, after its name
_MOST_LABELS = 16_384  # bytes in one line's braces; what they mean is remembered, so a liar must not choose how much
_MOST_DIGITS = 20  # of a time in milliseconds
_BEFORE, _BEYOND = 256, 1024  # how far a family may have moved since the last page and still be found at once
_VALUE: Final = re.compile(rb"[0-9][0-9.e+-]*+(?=\n)").match  # as values nearly always are: no sign, no time, no blanks
_MOST_TEXT = 4096  # bytes of a family that are remembered


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric to look for: a name, and labels that a series must have."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


class Series:
    """One line of a family."""

    __slots__ = ("labels", "timestamp", "value")

    def __init__(self, labels: bytes, value: float, timestamp: int) -> None:
        self.labels = labels  # between the braces, as written
        self.value = value
        self.timestamp = timestamp


def parse_spec(text: str, *, where: str) -> Spec | None:
    """Return the spec of `name` or `name{label=value,…}`, quotes optional; None for an empty text.

    Raises UserError naming `where` when it is neither.
    """
    if not text.strip():
        return None
    match = _SPEC.fullmatch(text)
    if match is None:
        raise UserError(f"{where}: {text!r} is not a metric: write name or name{{label=value,…}}")
    labels, at, inside = [], 0, (match[2] or "").strip()
    while at < len(inside):
        label = _MATCHER.match(inside, at)
        if label is None:
            raise UserError(f"{where}: {inside[at:]!r} is not a label matcher: write label=value, commas between")
        labels.append((label[1], label[3] if label[2] is None else _unescape(label[2])))
        at = label.end()
    return Spec(match[1], tuple(sorted(dict(labels).items())))


class Finder:
    """Finds one family in the pages of one endpoint; remembers where it stood, and its text."""

    __slots__ = ("_at", "_found", "_from", "_labels", "_leads", "_line", "_name", "_needle", "_whole")

    def __init__(self, spec: Spec) -> None:
        self._name = spec.name.encode()
        self._needle = b"\n" + self._name
        self._labels = spec.labels
        self._line = re.compile(re.escape(self._name) + _REST)
        self._at = 0  # where its first line begins
        self._from = 0  # where the text begins that is remembered: with the line before
        self._whole = b""
        self._leads: list[bytes] = []  # the parts of that text before each value; none where values are not plain
        self._found: list[Series] = []

    def latest(self, page: bytes) -> Series | None:
        """Return the series with the latest timestamp among those that have the spec's labels."""
        best: Series | None = None
        for series in self.all(page):
            if best is None or series.timestamp > best.timestamp:
                best = series
        return best

    def largest(self, page: bytes) -> Series | None:
        """Return the series with the largest value among those that have the spec's labels."""
        best: Series | None = None
        for series in self.all(page):
            if best is None or series.value > best.value:
                best = series
        return best

    def all(self, page: bytes) -> list[Series]:
        """Return the series that have the spec's labels; what is returned must not be changed."""
        if not self._whole or not self._stands(page):
            self._whole = b""
            self._found = self._family(page)
        if not self._labels:
            return self._found
        return [one for one in self._found if _has(read_labels(one.labels), self._labels)]

    def _stands(self, page: bytes) -> bool:
        """Return whether the text stands in the page again, but for values at most; take these."""
        at = self._from
        if page.startswith(self._whole, at):
            return True
        if not self._leads:
            return False
        lead = self._leads[0]
        if not page.startswith(lead, at):
            at = page.find(lead, max(0, at - _BEFORE), at + _BEYOND + len(lead))
            if at < 0:
                return False
            self._at += at - self._from
            self._from = at
            if page.startswith(self._whole, at):
                return True
        return self._take_values(page)

    def _take_values(self, page: bytes) -> bool:
        """Read the values between the texts; return whether there is nothing else."""
        at, found = self._from, []
        for number, lead in enumerate(self._leads):
            value = _VALUE(page, at + len(lead)) if page.startswith(lead, at) else None
            if value is None:
                return False
            at = value.end()
            try:
                found.append(Series(self._found[number].labels, float(value[0]), 0))
            except ValueError:
                return False
        self._found = found
        self._whole = self._text(page, at + 1)
        return bool(self._whole)

    def _text(self, page: bytes, end: int) -> bytes:
        """Return what is to be remembered of a family that ends here: if it is there, with what shows that it ends."""
        beyond = end + len(self._name) + 1
        if beyond > len(page) or beyond - self._from > _MOST_TEXT or self._begins(page, end):
            return b""
        return page[self._from : beyond]

    def _family(self, page: bytes) -> list[Series]:
        """Return all series of the family, and note where it begins and what its lines look like."""
        at = self._locate(page)
        if at < 0:
            return []
        self._at = at
        found: list[Series] = []
        if _is_distribution(page, at):
            return found
        match, name, end = self._line.match, self._name, len(page)
        values: list[int] = []
        while True:
            line = match(page, at)
            if line is None:
                at = page.find(b"\n", at) + 1 or end
            else:
                at = line.end()
                series = _series(*line.groups(b""))
                if series is not None:
                    found.append(series)
                    values.append(line.start(2))
            if not page.startswith(name, at) or not self._begins(page, at):
                self._remember(page, values, at)
                return found

    def _remember(self, page: bytes, values: list[int], end: int) -> None:
        """Keep the text of the family that was just read, and the parts of it before each value."""
        self._from = page.rfind(b"\n", 0, max(0, self._at - 1))
        self._whole = self._text(page, end) if self._from >= 0 else b""
        self._leads = []
        if not self._whole:
            return
        at, leads = self._from, []
        for begins in values:
            value = _VALUE(page, begins)
            if value is None:
                return
            leads.append(page[at:begins])
            at = value.end()
        self._leads = leads

    def _locate(self, page: bytes) -> int:
        """Return where the family's first line begins, or -1."""
        at, needle = self._at, self._needle
        if at and page.startswith(needle, at - 1) and self._begins(page, at):
            return self._first(page, at)
        if at > _BEFORE:
            near = page.find(needle, at - _BEFORE, at + _BEYOND)
            while near >= 0:
                if self._begins(page, near + 1):
                    return self._first(page, near + 1)
                near = page.find(needle, near + 1, at + _BEYOND)
        if self._begins(page, 0):
            return 0
        far = page.find(needle)
        while far >= 0 and not self._begins(page, far + 1):
            far = page.find(needle, far + 1)
        return far + 1 if far >= 0 else -1

    def _first(self, page: bytes, at: int) -> int:
        """Return where the family begins that has a line at `at`."""
        while at > 0:
            before = page.rfind(b"\n", 0, at - 1) + 1
            if not self._begins(page, before):
                break
            at = before
        return at

    def _begins(self, page: bytes, at: int) -> bool:
        end = at + len(self._name)
        return page.startswith(self._name, at) and end < len(page) and page[end] in _AFTER_NAME


def _series(labels: bytes, value: bytes, timestamp: bytes) -> Series | None:
    """Return the series of a line's parts; None when a number is none (Python would take underscores)."""
    if b"_" in value or b"_" in timestamp or len(labels) > _MOST_LABELS or len(timestamp) > _MOST_DIGITS:
        return None
    try:
        return Series(labels, float(value), int(timestamp) if timestamp else 0)
    except ValueError:
        return None


def _is_distribution(page: bytes, at: int) -> bool:
    """Return whether the line before says that this family is neither gauge nor counter."""
    before = page[page.rfind(b"\n", 0, max(0, at - 1)) + 1 : at]
    return before.startswith(b"# TYPE ") and before.rstrip().endswith((b" histogram", b" summary"))


@lru_cache(maxsize=512)
def read_labels(text: bytes) -> Mapping[str, str]:
    """Return the labels between two braces; none when the text is not a proper label set."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        label = _LABEL.match(text, at)
        if label is None:
            return labels if not text[at:].strip() else {}
        labels[label[1].decode()] = _unescape(label[2].decode("utf-8", "replace"))
        at = label.end()
    return labels


def _has(labels: Mapping[str, str], wanted: Iterable[tuple[str, str]]) -> bool:
    return all(labels.get(name) == value for name, value in wanted)


def _unescape(value: str) -> str:
    """Return a label value with its escapes resolved: line break, backslash, quote; others stay as they are."""
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda m: {"n": "\n", "\\": "\\", '"': '"'}.get(m[1], m[0]), value)
