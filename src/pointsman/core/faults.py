"""What may be told of an unexpected exception: its type, and the places that it came through.

Not the values of variables, and not its message where that may repeat what somebody sent: `int` quotes the digits that
it could not read, a missing key is part of a body, a validation quotes its input. The types below speak of code. And
the same fault again is counted, not told (`Faults`): who can cause it must not choose what that costs.
"""

import traceback
from collections.abc import Callable, Iterator
from typing import Any

_FRAMES = 8
_AT_FIRST = 3
_INTERVAL = 10.0
_MOST_PLACES = 256
_MOST_MESSAGE = 200
_ABOUT_CODE = (AttributeError, NameError, ImportError, IndexError, RecursionError, ZeroDivisionError, MemoryError)


def describe(error: BaseException, *, message: bool = False) -> dict[str, Any]:
    """Return what to write of an exception; with its message, whatever it holds, where someone asked for that."""
    error = innermost(error)
    said = str(error) if message else _said(error)
    told: dict[str, Any] = {"error": f"{_name(error)}: {said[:_MOST_MESSAGE]}" if said else _name(error)}
    if error.__cause__ is not None:
        told["because"] = _name(error.__cause__)
    told["at"] = " < ".join(_places(error)) or "nowhere"
    return told


def sentence(error: BaseException) -> str:
    """Return the same for a person."""
    return ", ".join(f"{name} {value}" if name != "error" else value for name, value in describe(error).items())


def place(error: BaseException) -> str:
    """Return what is the same for exceptions that are alike."""
    error = innermost(error)
    return f"{_name(error)} {next(_places(error), '')}"


def innermost(error: BaseException) -> BaseException:
    """Return the first exception that is no group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _said(error: BaseException) -> str:
    if isinstance(error, OSError):
        return error.strerror or ""
    return str(error) if isinstance(error, _ABOUT_CODE) else ""


def _places(error: BaseException) -> Iterator[str]:
    """Yield the last places, the innermost first. Source lines are not read: that would touch the disk."""
    frames = list(traceback.walk_tb(error.__traceback__))
    for frame, line in reversed(frames[-_FRAMES:]):
        code = frame.f_code
        yield f"{'/'.join(code.co_filename.split('/')[-2:])}:{line} {code.co_name}"


class Faults:
    """Writes what an exception was, and where; of many alike the first few of an interval, then their number."""

    def __init__(self, *, clock: Callable[[], float], messages: bool = False) -> None:
        self._clock = clock
        self._messages = messages
        self._seen: dict[str, tuple[float, int]] = {}  # since when, and how many

    def tell(self, event: dict[str, Any]) -> bool:
        """Replace `exc_info` by what it was; False for one too many."""
        error = event.pop("exc_info", None)
        if error is None:
            return True
        left_out = self._left_out(f"{event['event']} {place(error)}")
        if left_out is None:
            return False
        if left_out:
            event["left_out"] = left_out
        event.update(describe(error, message=self._messages))
        return True

    def _left_out(self, where: str) -> int | None:
        """Return how many of the last interval were not written; None when this one is not either."""
        now = self._clock()
        since, count = self._seen.get(where, (now, 0))
        left_out = 0
        if now - since >= _INTERVAL:
            left_out = max(0, count - _AT_FIRST)
            since, count = now, 0
        if where not in self._seen and len(self._seen) >= _MOST_PLACES:
            self._seen.clear()
        self._seen[where] = since, count + 1
        return None if count >= _AT_FIRST else left_out
