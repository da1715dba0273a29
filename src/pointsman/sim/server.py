"""Starting and stopping simulators: one listener and one engine per pod, all in one event loop.

SIGTERM finishes what is open (new generation requests get 503), then closes; a second signal, or the drain timeout,
ends at once. Ready means that all ports are bound.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from pointsman.core.http import Limits, Listener, Request, Response, Server
from pointsman.core.logs import get_logger
from pointsman.sim.failures import fault
from pointsman.sim.pod import Pod
from pointsman.sim.routes import Routes
from pointsman.sim.settings import Settings

_LOG = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """A pod and where it listens."""

    pod: Pod
    listener: Listener


def identity(settings: Settings, *, port: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers by which an answer tells who gave it."""
    name = environ.get("POD_NAME") if settings.pods == 1 else None
    headers = {"x-inference-pod": name or f"sim-{port}", "x-inference-port": str(port)}
    headers["x-inference-namespace"] = environ.get("POD_NAMESPACE") or "default"
    return headers


@contextlib.asynccontextmanager
async def serving(settings: Settings, *, environ: Mapping[str, str]) -> AsyncIterator[list[Served]]:
    """Serve all pods of the settings until the context ends."""
    limits = Limits(body_bytes=settings.max_request_body_size_mb << 20)
    async with Server() as server:
        served = []
        for number in range(settings.pods):
            port = settings.port + number if settings.port else 0
            served.append(await _serve(server, settings, port=port, limits=limits, environ=environ))
        yield served


async def _serve(
    server: Server, settings: Settings, *, port: int, limits: Limits, environ: Mapping[str, str]
) -> Served:
    listener = await server.listen(_not_yet, host=settings.host, port=port, limits=limits, fault=fault)
    pod = Pod(settings, port=listener.port)
    who = identity(settings, port=listener.port, environ=environ)
    listener.handler = Routes(pod, identity=who)
    return Served(pod, listener)


def _not_yet(_request: Request) -> Response:
    return fault(503, "The server is starting")


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is open."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serving(settings, environ=os.environ) as served:
        ports = [each.listener.port for each in served]
        _LOG.info("simulator ready", model=settings.model, ports=_span(ports), mode=settings.mode)
        await stop.wait()
        stop.clear()
        async with asyncio.TaskGroup() as group:
            hurry = group.create_task(stop.wait())
            await drain(served, seconds=settings.drain_timeout, hurry=hurry)
            hurry.cancel()


async def drain(served: list[Served], *, seconds: float, hurry: "asyncio.Task[bool] | None" = None) -> None:
    """Refuse new generation requests, wait for the open ones, stop listening."""
    for each in served:
        each.pod.stopping = True
    loop = asyncio.get_running_loop()
    limit = loop.time() + seconds
    while (  # noqa: ASYNC110 - a poll at shutdown needs no event in every job
        any(each.pod.jobs for each in served) and loop.time() < limit and not (hurry and hurry.done())
    ):
        await asyncio.sleep(0.01)
    for each in served:
        each.listener.stop_accepting()


def _span(ports: list[int]) -> str:
    return str(ports[0]) if len(ports) == 1 else f"{ports[0]}-{ports[-1]}"
