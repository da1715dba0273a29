"""The work of one controller: keys, each at most once in the line and at most once in work.

Owns the order and the timing; knows nothing of clusters. The clock is the event loop's, so tests run in
virtual time.

A key is in one or more of four places: `waiting` (in line), `working` (a worker has it), `dirty` (changed
while in work, goes back in line when done) and `later` (a timer). Invariants:
- one worker per key: a key in `working` never enters the line;
- nothing is lost: a change during work leads to one more run after it;
- a change goes first: it cancels the key's timer, so back-off delays retries, never news; the count of
  failures stays, so a key that changes and fails in turn still slows down.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from pointsman.kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)


class Queue(Generic[K]):
    """A keyed, deduplicating work queue."""

    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        rng: random.Random | None = None,
        on_add: Callable[[], None] | None = None,
    ) -> None:
        self._backoff = backoff or Backoff(first=0.05, cap=300.0)
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._on_add = on_add
        self._line: deque[K] = deque()
        self._since: dict[K, float] = {}
        self._working: dict[K, float] = {}
        self._dirty: set[K] = set()
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._ready = asyncio.Semaphore(0)

    def __len__(self) -> int:
        return len(self._line)

    @property
    def working(self) -> dict[K, float]:
        """Return the keys in work, with the time at which each was taken."""
        return dict(self._working)

    @property
    def idle(self) -> bool:
        """Tell whether nothing is in line, in work or on a timer."""
        return not (self._line or self._working or self._later)

    def add(self, key: K) -> None:
        """Put a key in line now; a timer that it has is superseded."""
        self._cancel(key)
        if key in self._working:
            self._dirty.add(key)
        elif key not in self._since:
            self._enter(key)

    def add_later(self, key: K, *, delay: float) -> None:
        """Put a key in line after a delay, unless it gets there sooner; of two timers the earlier counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + delay
        running = self._later.get(key)
        if key in self._since or (running is not None and running.when() <= due):
            return
        self._cancel(key)
        self._later[key] = loop.call_at(due, self._due, key)

    def retry(self, key: K) -> float:
        """Count a failure and put the key in line after its back-off; returns the delay."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(self._failures[key], rng=self._rng)
        self.add_later(key, delay=delay)
        return delay

    def failures(self, key: K) -> int:
        """Return how often the key failed in a row."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Forget the key's failures."""
        self._failures.pop(key, None)

    async def take(self) -> tuple[K, float]:
        """Wait for a key and mark it as in work; returns it with the seconds that it stood in line."""
        await self._ready.acquire()
        key = self._line.popleft()
        now = asyncio.get_running_loop().time()
        self._working[key] = now
        return key, now - self._since.pop(key)

    def done(self, key: K) -> None:
        """Say that work on the key ended; if it changed meanwhile it is in line again."""
        del self._working[key]
        if key in self._dirty:
            self._dirty.discard(key)
            self._cancel(key)
            self._enter(key)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()

    def _due(self, key: K) -> None:
        del self._later[key]
        self.add(key)

    def _cancel(self, key: K) -> None:
        timer = self._later.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _enter(self, key: K) -> None:
        self._line.append(key)
        self._since[key] = asyncio.get_running_loop().time()
        self._ready.release()
        if self._on_add is not None:
            self._on_add()
