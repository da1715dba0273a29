"""Waiting until something is so: bounded, and the failure says what was seen last, or went wrong last.

`until` waits for a true value in an event loop, `wait_until` without one. `eventually` waits until an attempt raises
nothing, whatever it returns. All of them are for another task, thread or process to get somewhere; none is a proof that
something does not happen. Who waits leaves the cores to what it waits for: a question that takes long is asked less
often.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
Errors = tuple[type[Exception], ...]

PATIENCE = 90.0
"""Seconds: a busy machine is slow, and who is not late does not wait for it."""
_REST = 3
"""How many times as long as a question took the next one is put off at least, up to `_LONGEST` seconds."""
_LONGEST = 1.0
NOT_YET: Errors = (AssertionError, LookupError, OSError)


async def until(
    condition: Callable[[], object], *, within: float = PATIENCE, every: float = 0.02, despite: Errors = ()
) -> Any:
    """Return the first true value of a condition, plain or a coroutine; `despite` has the errors to wait out."""
    deadline = time.monotonic() + within
    while True:
        asked = time.monotonic()
        problem: Exception | None = None
        seen: object = None
        try:
            seen = condition()
            if inspect.isawaitable(seen):
                seen = await seen
        except despite as error:
            problem = error
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise _late(seen, problem, within) from problem
        await asyncio.sleep(_pause(asked, every))


def wait_until(
    condition: Callable[[], T], *, within: float = 60.0, every: float = 0.05, despite: Errors = NOT_YET
) -> T:
    """Return the first true value of a condition, which asks another process and may fail until that is ready."""
    deadline = time.monotonic() + within
    while True:
        asked = time.monotonic()
        problem: Exception | None = None
        seen: object = None
        try:
            if seen := (value := condition()):
                return value
        except despite as error:
            problem = error
        if time.monotonic() > deadline:
            raise _late(seen, problem, within) from problem
        time.sleep(_pause(asked, every))


async def eventually(attempt: Callable[[], Awaitable[T]], *, within: float = PATIENCE, every: float = 0.05) -> T:
    """Return what the attempt returns once it raises nothing; its last error after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        asked = time.monotonic()
        try:
            return await attempt()
        except Exception:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_pause(asked, every))


def _pause(asked: float, every: float) -> float:
    return max(every, min(_REST * (time.monotonic() - asked), _LONGEST))


def _late(seen: object, problem: Exception | None, within: float) -> AssertionError:
    return AssertionError(f"still {seen!r} after {within:g} s" if problem is None else f"{problem!r} for {within:g} s")
