"""`pointsman epp`: run the endpoint picker."""

import asyncio
import random

from pointsman.core.logs import configure_logs, get_logger
from pointsman.epp.server import Picker
from pointsman.epp.settings import Settings


def epp(settings: Settings | None = None) -> None:
    """Run the endpoint picker that Envoy's ext_proc filter asks, with the flags of the Go picker."""
    settings = settings or Settings()
    configure_logs(verbosity=settings.verbosity, encoding=settings.zap_encoder)
    for flag in settings.without_effect():
        get_logger(__name__).warning("epp: flag has no effect in this version", flag=flag)
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    await Picker(settings, rng=random.Random()).run()  # noqa: S311 - spreads load, guards nothing


def _fast_loop() -> "type[asyncio.AbstractEventLoop] | None":
    """Return uvloop where it is there, else asyncio's own loop."""
    try:
        import uvloop
    except ImportError:  # pragma: no cover - Windows
        return None
    return uvloop.Loop
