"""Log lines: an event as one of them, bounded, and written where lines go.

Whoever can make a server fail must not choose what its log costs or holds. Each value is cut, and a character that a
terminal would obey is written as its escape. A line that cannot be written, because the disk is full or nobody reads,
is lost; the next that can be says how many were.
"""

import json
from typing import Any, TextIO

Event = dict[str, Any]
"""What is written: `timestamp`, `level`, `event`, and then the values that belong to it."""
LEVELS = ("debug", "info", "warning", "error")

_COLOURS = dict(zip(LEVELS, ("\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m"), strict=True))
_PLAIN = "\x1b[0m"
_MOST_TEXT = 1000


class Bounded(str):
    """A text that its writer has cut already, to a length that is its own business."""

    __slots__ = ()


def as_json(event: Event) -> str:
    """Return an event as a machine reads it."""
    return json.dumps(event, default=repr)


def as_text(event: Event, *, coloured: bool = False) -> str:
    """Return an event as a person reads it: when, how bad, what, and then its values."""
    level = event["level"]
    shown = f"{_COLOURS[level]}{level:<7}{_PLAIN}" if coloured else f"{level:<7}"
    values = " ".join(f"{name}={_shown(value)}" for name, value in list(event.items())[3:])
    return f"{event['timestamp']} {shown} {event['event']} {values}"


def _shown(value: object) -> str:
    plain = isinstance(value, str) and value and not set(value) & set(" \t\r\n=\"'")
    return str(value) if plain else repr(value)


def cut_values(event: Event) -> None:
    """Bound every text of an event, and keep it from acting on a terminal."""
    for name, value in event.items():
        if (
            isinstance(value, str)
            and type(value) is not Bounded
            and (len(value) > _MOST_TEXT or not value.isprintable())
        ):
            event[name] = cut(value)


def cut(text: str, *, most: int = _MOST_TEXT) -> str:
    """Return a text of at most so many characters, with escapes for those that do not print."""
    more = f"… ({len(text)} characters)" if len(text) > most else ""
    text = text[:most]
    if not text.isprintable():
        text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    return text + more


class Lines:
    """Writes lines to a file, and goes on when that cannot be done."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self.lost = 0

    def add(self, text: str) -> None:
        """Write one line."""
        if self.lost:
            text = f"{text}\n{self.lost} log lines before this one could not be written"
        if self._file is None:  # the process has no stderr
            return
        try:
            self._file.write(text + "\n")
            self._file.flush()
            self.lost = 0
        except (OSError, ValueError):  # the latter when it is closed
            self.lost += 1
