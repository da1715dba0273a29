"""What may be told of an unexpected exception: its type, and the places that it came through.

Not the values of variables, and not its message where that may repeat what somebody sent: `int` quotes the digits that
it could not read, a missing key is part of a body, a validation quotes its input. The types below speak of code.
"""

import traceback
from collections.abc import Iterator
from typing import Any

_FRAMES = 8
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
