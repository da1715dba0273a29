"""Structured logs: one line per event, JSON where a machine reads, key=value where a person does.

Level numbers are klog's, as every llm-d component takes them (`-v 2` default, 3 verbose, 4 debug, 5 trace). Nothing
in a request's path logs at level 2; a log call that is filtered out costs one comparison.

Whoever can make a server fail must not choose what its log costs or holds. So an exception becomes its type and the
last places that it came through (`faults`), on the same line; the same one again is counted, not written. Each value is
cut, and a character that a terminal would obey is written as its escape. A line that cannot be written, because the
disk is full or nobody reads, is lost; the next that can be says how many were.
"""

import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Literal, TextIO

import structlog

from pointsman.core.faults import describe, place

Encoding = Literal["json", "console"]
Event = MutableMapping[str, Any]

_MOST_TEXT = 1000
_AT_FIRST = 3
_INTERVAL = 10.0
_MOST_PLACES = 256


class Bounded(str):
    """A text that its writer has cut already, to a length that is its own business."""

    __slots__ = ()


def configure_logs(*, verbosity: int = 2, encoding: Encoding = "console") -> None:
    """Set up structlog for the process; called once by a command before it starts anything."""
    level = logging.WARNING if verbosity < 1 else logging.INFO if verbosity < 4 else logging.DEBUG
    last: Any = (
        structlog.processors.JSONRenderer()
        if encoding == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            Faults(clock=time.monotonic, messages=verbosity >= 4),
            cut_values,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: Lines(sys.stderr),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> Any:
    """Return a logger that carries its module's name."""
    return structlog.get_logger(module=name)


class Faults:
    """Writes what an exception was, and where; of many alike the first few of an interval, then their number."""

    def __init__(self, *, clock: Callable[[], float], messages: bool = False) -> None:
        self._clock = clock
        self._messages = messages
        self._seen: dict[str, tuple[float, int]] = {}  # since when, and how many

    def __call__(self, _logger: Any, _method: str, event: Event) -> Event:
        """Replace `exc_info`; raises DropEvent for one too many."""
        error = event.pop("exc_info", None)
        if error is True:
            error = sys.exc_info()[1]
        elif isinstance(error, tuple):
            error = error[1]
        if not isinstance(error, BaseException):
            return event
        if left_out := self._count(f"{event.get('event')} {place(error)}"):
            event["left_out"] = left_out
        event.update(describe(error, message=self._messages))
        return event

    def _count(self, where: str) -> int:
        """Return how many of the last interval were not written; raises DropEvent when this one is not either."""
        now = self._clock()
        since, count = self._seen.get(where, (now, 0))
        left_out = 0
        if now - since >= _INTERVAL:
            left_out = max(0, count - _AT_FIRST)
            since, count = now, 0
        if where not in self._seen and len(self._seen) >= _MOST_PLACES:
            self._seen.clear()
        self._seen[where] = since, count + 1
        if count >= _AT_FIRST:
            raise structlog.DropEvent
        return left_out


def cut_values(_logger: Any, _method: str, event: Event) -> Event:
    """Bound every text of an event, and keep it from acting on a terminal."""
    for name, value in event.items():
        if (
            isinstance(value, str)
            and type(value) is not Bounded
            and (len(value) > _MOST_TEXT or not value.isprintable())
        ):
            event[name] = cut(value)
    return event


def cut(text: str, *, most: int = _MOST_TEXT) -> str:
    """Return a text of at most so many characters, with escapes for those that do not print."""
    more = f"… ({len(text)} characters)" if len(text) > most else ""
    text = text[:most]
    if not text.isprintable():
        text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    return text + more


class Lines:
    """Writes lines to a file, and goes on when that cannot be done."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.lost = 0

    def msg(self, text: str) -> None:
        """Write one line."""
        if self.lost:
            text = f"{text}\n{self.lost} log lines before this one could not be written"
        try:
            self._file.write(text + "\n")
            self._file.flush()
            self.lost = 0
        except (OSError, ValueError):  # the latter when it is closed
            self.lost += 1

    log = debug = info = warning = error = critical = fatal = failure = exception = msg
