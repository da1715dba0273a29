"""Go's duration strings (`1h30m`, `1.5s`, `250us`), which every flag and file of llm-d uses, as seconds."""

import math
import re
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token

from pointsman.core.errors import UserError

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return seconds.

    Raises UserError when the text is not a Go duration; a bare `0` is one, as in Go.
    """
    body = text.strip().lstrip("+-")
    sign = -1.0 if text.strip().startswith("-") else 1.0
    if body == "0":
        return 0.0
    parts = _PART.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise UserError(f"{text!r} is not a duration: write a number with a unit, such as 30s, 1.5s or 250ms")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not math.isfinite(seconds):
        raise UserError("a duration of so many digits is longer than anything lasts: write less")
    return sign * seconds


def format_duration(seconds: float) -> str:
    """Return the shortest Go duration that reads back to the same number of microseconds."""
    for unit, size in (("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size or unit == "us":
            count = seconds / size
            if unit in {"h", "m"} and count != int(count):
                continue
            return f"{count:.6f}".rstrip("0").rstrip(".") + unit if seconds else "0s"
    raise AssertionError


def _convert(_type: Any, tokens: Sequence[Token]) -> float:
    try:
        return parse_duration(tokens[0].value)
    except UserError as error:
        raise ValueError(str(error)) from None


Duration = Annotated[float, Parameter(converter=_convert)]
"""A command-line value in Go's syntax, in seconds."""
