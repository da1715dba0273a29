"""Input in turns: a burst of requests must not keep the loop from what is due.

An event loop handles all input that it finds in one go, and only then runs its timers and flushes its output. A
thousand requests at once would hold up every open stream for as long as they take. So input may be handled for one
slice of time per round; what is left waits, in order, for the rounds after.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

SLICE = 0.001  # seconds of input per round, where streams are paced by the millisecond


class Inbox:
    """The input of one server."""

    def __init__(self, *, seconds: float = SLICE, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._until: float | None = None  # end of the slice, None before the first input of a round

    def open(self) -> bool:
        """Whether input may be handled at once; otherwise `put` it."""
        if self._until is None:
            self._begin_round()
            return True
        return not self._waiting and self._clock() < self._until

    def put(self, handle: Callable[[], None]) -> None:
        """Call this when its turn has come, also where no input has begun a round: a peer may just have read again."""
        self._waiting.append(handle)
        if self._until is None:
            self._begin_round()

    def _begin_round(self) -> None:
        self._until = self._clock() + self._seconds
        asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        self._until = until = self._clock() + self._seconds
        try:
            while self._waiting:
                self._waiting.popleft()()
                if self._clock() >= until:
                    break
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next_round)
            else:
                self._until = None
