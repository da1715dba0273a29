"""YAML as the Kubernetes API server's own tools read it, bounded.

Owns what a scalar means: the rules are those of the YAML reader in kubectl and OLM (YAML 1.1 with dates as text), which
PyYAML's differ from: there a date becomes a date, `1:30` becomes 90 and `1e3` becomes text. Integers stay integers.
Works on libyaml's events: a third of the time of PyYAML's nodes, and every limit is checked while the text is read.

What costs more than it shows is refused: aliases that expand (a reference is free here, but whoever writes the document
out pays), nesting that a recursive reader does not survive, and files beyond a size. A key that stands twice is refused
too: one of its two values would be lost without a word.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from pointsman.core.errors import UserError

MAX_BYTES = 32 * 1024 * 1024
MAX_DEPTH = 200
MAX_EXPANSION = 4 * 1024 * 1024

_TAG = "tag:yaml.org,2002:"
_WORDS: dict[str, object] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_NUMERIC = re.compile(r"[-+.0-9]")
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_PAIR = re.compile(rb"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_MERGE = object()


def read_documents(text: bytes, *, name: str) -> list[Any]:
    """Return the documents of a file, empty ones left out.

    Raises UserError, naming file and line, for what is not YAML, cannot become JSON, or is too much.
    """
    if len(text) > MAX_BYTES:
        raise UserError(f"{name}: has {len(text)} bytes, more than the {MAX_BYTES} that a manifest may have")
    try:
        return [each for each in _Reader(name=name).documents(_events(text)) if each is not None]
    except yaml.MarkedYAMLError as error:
        if (joined := _with_pairs_joined(text)) != text:
            return read_documents(joined, name=name)
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise UserError(f"{where}: not valid YAML: {error.problem or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"{name}: not valid YAML: {error}") from None


def _with_pairs_joined(text: bytes) -> bytes:
    """Return JSON with characters that it escapes as two halves escaped whole: YAML's reader knows no halves."""
    return _PAIR.sub(_joined_pair, text) if text.lstrip()[:1] in {b"{", b"["} else text


def _joined_pair(match: re.Match[bytes]) -> bytes:
    high, low = int(match[2], 16), int(match[3], 16)
    return match[1] + b"\\U%08x" % (0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def scalar(text: str) -> Any:
    """Return what unquoted text means.

    Raises ValueError for infinity and not-a-number, which JSON cannot carry.
    """
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMERIC.match(text):
        return text
    plain = text.replace("_", "")
    if _INTEGER.fullmatch(plain):
        return _integer(plain)
    if _FLOAT.fullmatch(plain):
        return float(plain)
    if _NOT_JSON.fullmatch(text):
        raise ValueError(f"{text} cannot stand in a Kubernetes object")
    return text


def _integer(plain: str) -> int:
    """Return an integer in Go's notation, where a leading zero means octal."""
    sign, digits = (-1, plain[1:]) if plain[0] == "-" else (1, plain.removeprefix("+"))
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _events(text: bytes) -> Iterator[Event]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        while not isinstance(event := loader.get_event(), StreamEndEvent):
            yield event
    finally:
        loader.dispose()


@dataclass
class _Frame:
    """A mapping or list that is being read."""

    value: Any
    anchor: str | None
    start: int
    key: Any = None
    has_key: bool = False
    merged: list[Any] = field(default_factory=list)


class _Reader:
    """Builds objects from events, with a stack of its own so that depth is a number and not a crash."""

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._texts: dict[str, Any] = {}
        self._reset()

    def _reset(self) -> None:
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._weight = 0
        self._expanded = 0
        self._root: Any = None

    def documents(self, events: Iterator[Event]) -> Iterator[Any]:
        for event in events:
            kind = event.__class__
            if kind is ScalarEvent:
                self._scalar(event)
            elif kind is MappingStartEvent:
                self._open(event, {})
            elif kind is SequenceStartEvent:
                self._open(event, [])
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                self._close(event)
            elif kind is AliasEvent:
                self._alias(event)
            elif kind is DocumentStartEvent:
                self._reset()
            elif kind is DocumentEndEvent:
                yield self._root

    def _scalar(self, event: Any) -> None:
        text = event.value
        self._weight += 1 + len(text)
        frame = self._stack[-1] if self._stack else None
        is_key = frame is not None and frame.value.__class__ is dict and not frame.has_key
        if event.tag is None and event.implicit[0]:
            if is_key:
                # A key is a name: `y:` in a schema's properties is the letter, whatever YAML 1.1 makes of it.
                value = _MERGE if text == "<<" else self._texts.setdefault(text, text)
            else:
                value = self._plain(text, event)
        else:
            value = self._tagged(text, event)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1 + len(text))
        self._put(value, event)

    def _plain(self, text: str, event: Any) -> Any:
        try:
            value = scalar(text)
        except ValueError as error:
            raise self._refused(event, str(error)) from None
        return self._texts.setdefault(text, text) if value.__class__ is str else value

    def _tagged(self, text: str, event: Any) -> Any:
        if event.tag in {None, "!", f"{_TAG}str"}:
            return self._texts.setdefault(text, text)
        if event.tag in {f"{_TAG}{name}" for name in ("int", "float", "bool", "null")}:
            return self._plain(text, event)
        raise self._refused(event, f"tag {event.tag} has no meaning in a Kubernetes object: remove it")

    def _open(self, event: Any, value: Any) -> None:
        if event.tag not in {None, "!", f"{_TAG}map", f"{_TAG}seq"}:
            raise self._refused(event, f"tag {event.tag} has no meaning in a Kubernetes object: remove it")
        if len(self._stack) >= MAX_DEPTH:
            raise self._refused(event, f"nested deeper than {MAX_DEPTH} levels")
        self._weight += 1
        self._stack.append(_Frame(value, event.anchor, self._weight))

    def _close(self, event: Any) -> None:
        frame = self._stack.pop()
        for base in frame.merged:
            for key, value in base.items():
                frame.value.setdefault(key, value)
        if frame.anchor:
            self._anchors[frame.anchor] = (frame.value, self._weight - frame.start + 1)
        self._put(frame.value, event)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise self._refused(event, f"*{event.anchor} refers to nothing that stands before it")
        value, weight = self._anchors[event.anchor]
        self._weight += weight
        self._expanded += weight
        if self._expanded > MAX_EXPANSION:
            raise self._refused(event, f"aliases expand to more than {MAX_EXPANSION} bytes")
        self._put(value, event)

    def _put(self, value: Any, event: Any) -> None:
        if not self._stack:
            self._root = value
            return
        frame = self._stack[-1]
        if frame.value.__class__ is list:
            frame.value.append(value)
        elif not frame.has_key:
            self._key(frame, value, event)
        elif frame.key is _MERGE:
            self._merge(frame, value, event)
            frame.has_key = False
        else:
            frame.value[frame.key] = value
            frame.has_key = False

    def _key(self, frame: _Frame, key: Any, event: Any) -> None:
        if key is not _MERGE and not isinstance(key, str):
            raise self._refused(event, "a key must be text")
        if key in frame.value:
            raise self._refused(event, f"key {key!r} stands twice in one mapping: remove one of them")
        frame.key, frame.has_key = key, True

    def _merge(self, frame: _Frame, value: Any, event: Any) -> None:
        bases = value if isinstance(value, list) else [value]
        if not all(isinstance(base, dict) for base in bases):
            raise self._refused(event, "<< takes a mapping or a list of mappings")
        frame.merged.extend(bases)

    def _refused(self, event: Any, why: str) -> UserError:
        mark = event.start_mark
        return UserError(f"{self._name}:{mark.line + 1}:{mark.column + 1}: {why}")
