"""What answers under a path of the picker's HTTP port, and to whom."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pointsman.core.http import Request, Response

Answer = Response | Awaitable[Response | None] | None
"""What a route returns; None when it streams."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """One path."""

    answer: Callable[[Request], Answer]
    method: str = "GET"  # and HEAD, where it is GET
    open: bool = False  # for everybody: it tells nothing about this picker
