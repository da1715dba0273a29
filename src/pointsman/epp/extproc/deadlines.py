"""Requests that must be complete in time: a body that never ends would hold its memory for ever.

All have the same time, so they end in the order in which they began, and nobody needs a timer of its own.
"""

from collections.abc import Callable
from typing import Protocol


class Late(Protocol):
    """A request under way."""

    def expire(self) -> None:
        """Answer it: its time is over."""


class Deadlines:
    """The requests that are not complete."""

    def __init__(self, *, seconds: float, clock: Callable[[], float]) -> None:
        self.seconds = seconds
        self._clock = clock
        self._open: dict[Late, float] = {}

    def begin(self, request: Late) -> None:
        """Watch a request."""
        self._open[request] = self._clock()

    def end(self, request: Late) -> None:
        """Let it be: it is complete, or gone."""
        self._open.pop(request, None)

    def sweep(self) -> None:
        """End what is late."""
        since = self._clock() - self.seconds
        late = []
        for request, began in self._open.items():
            if began > since:
                break
            late.append(request)
        for request in late:
            self.end(request)
            request.expire()
