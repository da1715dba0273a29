"""How our servers run: the fastest event loop there is, and a garbage collector that leaves what is loaded alone.

Requests leave no cycles behind, so the collector finds nothing; looking at everything again and again only costs time
(about a tenth of the picker's). It stays on, for what plugins may leave, but looks less often.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine


def serve(main: Coroutine[object, object, None]) -> None:
    """Run a server's main coroutine to its end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        runner.run(main)


def new_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's loop where it is installed, which is everywhere but on Windows."""
    try:
        import uvloop
    except ImportError:  # pragma: no cover
        return asyncio.new_event_loop
    return uvloop.new_event_loop
