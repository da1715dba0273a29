"""Structured logs: one line per event, JSON where a machine reads, key=value where a person does.

Level numbers are klog's, as every llm-d component takes them (`-v 2` default, 3 verbose, 4 debug, 5 trace). Nothing
in a request's path logs at level 2; a log call that is filtered out costs one comparison.

An exception becomes its type and the last places that it came through (`faults`), on the same line; what a line may
hold, and what happens when it cannot be written, is in `lines`.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal

from pointsman.core.faults import Faults
from pointsman.core.lines import LEVELS, Event, Lines, as_json, as_text, cut_values

Encoding = Literal["json", "console"]

_DEBUG, _INFO, _WARNING, _ERROR = range(4)


class Log:
    """Writes events under its module's name, each with values that belong to it."""

    __slots__ = ("_module",)

    def __init__(self, module: str) -> None:
        self._module = module

    def debug(self, event: str, **values: Any) -> None:
        """Write what helps to follow a fault."""
        if _journal.least <= _DEBUG:
            _journal.take(_DEBUG, event, self._module, values)

    def info(self, event: str, **values: Any) -> None:
        """Write what someone may want to know afterwards."""
        if _journal.least <= _INFO:
            _journal.take(_INFO, event, self._module, values)

    def warning(self, event: str, **values: Any) -> None:
        """Write what someone should look at."""
        _journal.take(_WARNING, event, self._module, values)

    def error(self, event: str, **values: Any) -> None:
        """Write what did not work."""
        _journal.take(_ERROR, event, self._module, values)

    def exception(self, event: str, **values: Any) -> None:
        """Write what did not work, because of the exception that is being handled."""
        _journal.take(_ERROR, event, self._module, {**values, "exc_info": sys.exception()})


def get_logger(name: str) -> Log:
    """Return a logger that carries its module's name."""
    return Log(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Which events are written, and how: from the least level on, each by `write` once it is bounded."""

    least: int
    faults: Faults
    write: Callable[[Event], object]
    now: Callable[[], float] = time.time

    def take(self, level: int, event: str, module: str, values: Mapping[str, Any]) -> None:
        """Write one event, with what its task is at; a fault that was told often enough is only counted."""
        stamp = datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        said = {"timestamp": stamp, "level": LEVELS[level], "event": event, "module": module}
        whole = {**said, **_TASK.get(), **values}
        if self.faults.tell(whole):
            cut_values(whole)
            self.write(whole)


_TASK: ContextVar[Mapping[str, Any]] = ContextVar("what this task is at", default=MappingProxyType({}))


@contextmanager
def at_work(**values: Any) -> Iterator[None]:
    """Add values to every event of this task until the block ends."""
    token = _TASK.set({**_TASK.get(), **values})
    try:
        yield
    finally:
        _TASK.reset(token)


def configure_logs(*, verbosity: int = 2, encoding: Encoding = "console") -> None:
    """Set up the logs of the process; called once by a command before it starts anything."""
    keep_by(made(verbosity=verbosity, encoding=encoding))


def keep_by(journal: Journal) -> Journal:
    """Let this journal take every event from now on, and return the one that did before."""
    global _journal
    before, _journal = _journal, journal
    return before


def made(*, verbosity: int = 2, encoding: Encoding = "console") -> Journal:
    """Return the journal of a verbosity, as lines on stderr, if there is one."""
    least = _WARNING if verbosity < 1 else _INFO if verbosity < 4 else _DEBUG
    lines = Lines(sys.stderr)
    coloured = sys.stderr is not None and sys.stderr.isatty()

    def write(event: Event) -> None:
        lines.add(as_json(event) if encoding == "json" else as_text(event, coloured=coloured))

    return Journal(least=least, faults=Faults(clock=time.monotonic, messages=verbosity >= 4), write=write)


_journal = made()
