"""Numbers in text that others wrote: bounded before they are converted.

Python refuses to convert more than 4300 digits (with a ValueError that holds them), takes a time that grows with their
square below that, and counts `²` among the digits. So whoever expects a number says how large it may be, and a text
that is longer than that number, or has anything but ASCII digits in it, is none.
"""

import math
from typing import TypeGuard

_MOST_DIGITS = 100
SAFE = (1 << 53) - 1
"""The largest whole number that JSON, and every engine's counters, carry without loss."""


def whole(text: str | bytes, *, most: int) -> int | None:
    """Return a whole number from zero up to `most`; None for any other text."""
    if not text or len(text) > len(str(most)) or not text.isascii() or not text.isdigit():
        return None
    number = int(text)
    return number if number <= most else None


def is_count(value: object, *, most: int = SAFE) -> TypeGuard[int]:
    """Tell whether a value that someone else decoded is a whole number from zero up to `most`; a truth is none."""
    return type(value) is int and 0 <= value <= most


def bounded_int(text: str) -> int | float:
    """Return a number of JSON as it is when any counter could hold it, otherwise infinity, which nobody takes for one.

    For `json.loads(…, parse_int=bounded_int)`.
    """
    if len(text) <= 20:
        return int(text)
    return -math.inf if text.startswith("-") else math.inf


def real(text: str | bytes) -> float | None:
    """Return a finite number; None for any other text, and for one that is longer than any number needs to be."""
    if len(text) > _MOST_DIGITS or not text.isascii():
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
