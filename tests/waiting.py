"""Waiting until something is so: bounded, and the failure says what was seen last, or went wrong last.

`until` waits for a true value in an event loop, `wait_until` without one. `eventually` waits until an attempt raises
nothing, whatever it returns. All of them are for another task, thread or process to get somewhere; none is a proof that
something does not happen.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
Errors = tuple[type[Exception], ...]

PATIENCE = 20.0
"""Seconds: a busy machine is slow."""
NOT_YET: Errors = (AssertionError, LookupError, OSError)


async def until(
    condition: Callable[[], object], *, within: float = PATIENCE, every: float = 0.02, despite: Errors = ()
) -> Any:
    """Return the first true value of a condition, plain or a coroutine; `despite` has the errors to wait out."""
    deadline = time.monotonic() + within
    while True:
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
        await asyncio.sleep(every)


def wait_until(
    condition: Callable[[], T], *, within: float = 60.0, every: float = 0.05, despite: Errors = NOT_YET
) -> T:
    """Return the first true value of a condition, which asks another process and may fail until that is ready."""
    deadline = time.monotonic() + within
    while True:
        problem: Exception | None = None
        seen: object = None
        try:
            if seen := (value := condition()):
                return value
        except despite as error:
            problem = error
        if time.monotonic() > deadline:
            raise _late(seen, problem, within) from problem
        time.sleep(every)


async def eventually(attempt: Callable[[], Awaitable[T]], *, within: float = 30.0, every: float = 0.05) -> T:
    """Return what the attempt returns once it raises nothing; its last error after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        try:
            return await attempt()
        except Exception:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(every)


def _late(seen: object, problem: Exception | None, within: float) -> AssertionError:
    return AssertionError(f"still {seen!r} after {within:g} s" if problem is None else f"{problem!r} for {within:g} s")
