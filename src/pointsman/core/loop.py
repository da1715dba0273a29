"""How our servers run and end: the fastest event loop there is, and a memory that is not tidied all the time.

Requests leave no cycles behind, so the collector finds nothing; looking at everything again and again only costs time
(about a tenth of the picker's). It stays on, for what plugins may leave, but looks less often.

Bodies of some 100 KB come and go, each copied a few times. glibc gives blocks of that size back to the kernel at once,
and the kernel clears their pages for the next (about a twentieth of the picker's time at 220 KB). So it is told to keep
more.
"""

import asyncio
import ctypes
import gc
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pointsman.core.logs import get_logger

log = get_logger(__name__)

# Names and numbers of glibc's malloc.h; where there is no such function, memory is as it is.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
ENDING = (signal.SIGTERM, signal.SIGINT)
_KEPT = {_M_MMAP_THRESHOLD: 4 << 20, _M_TRIM_THRESHOLD: 64 << 20, _M_TOP_PAD: 1 << 20}


def serve(main: Coroutine[object, object, None]) -> None:
    """Run a server's main coroutine to its end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    _keep_memory()
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        runner.get_loop().set_exception_handler(_report)
        runner.run(main)


def on_signals(stop: Callable[[], object], *, numbers: Sequence[signal.Signals] = ENDING) -> None:
    """Call `stop` when the process is told to end; it is what ends us as process 1 of a container."""
    running = asyncio.get_running_loop()
    for number in numbers:
        running.add_signal_handler(number, stop)


async def run_until_told(main: Coroutine[object, object, None]) -> None:
    """Run a coroutine until SIGTERM or SIGINT, then cancel it and wait for its end."""
    told = asyncio.Event()
    on_signals(told.set)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(main)
        await told.wait()
        log.info("told to end")
        task.cancel()


async def wait_while(busy: Callable[[], object], *, seconds: float, poll: float = 0.02) -> None:
    """Wait while something is busy, so long at most; for the end of a process, where a poll needs no event."""
    running = asyncio.get_running_loop()
    end = running.time() + seconds
    while busy() and running.time() < end:  # noqa: ASYNC110 - what is waited for has no event, and should not need one
        await asyncio.sleep(poll)


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what nobody waited for. The loop's own words may quote what a callback was given."""
    error = context.get("exception")
    log.error("loop: a callback failed", exc_info=error, **({} if error else {"what": context.get("message")}))


def _keep_memory() -> None:
    try:
        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # pragma: no cover - not glibc
        return
    for name, size in _KEPT.items():
        tell(name, size)


def new_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's loop where it is installed, which is everywhere but on Windows."""
    try:
        import uvloop
    except ImportError:  # pragma: no cover
        return asyncio.new_event_loop
    return uvloop.new_event_loop
