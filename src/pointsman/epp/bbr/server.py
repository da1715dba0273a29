"""The body-based router as a process: ports, health, adapters from ConfigMaps, and a quiet end.

On a cluster it follows ConfigMaps that say which adapter belongs to which base model; elsewhere there are none, and
only the model's own name becomes a header.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from pointsman.core import loop
from pointsman.core.budget import Budget
from pointsman.core.http import Limits as HttpLimits
from pointsman.core.http import Server as HttpServer
from pointsman.core.logs import get_logger
from pointsman.core.tls import load_folder, load_self_signed, server_context
from pointsman.core.watch import read_all
from pointsman.epp.bbr.adapters import Adapters
from pointsman.epp.bbr.collector import Collector
from pointsman.epp.bbr.config import read_program
from pointsman.epp.bbr.follow import follow_adapters, follow_models, take_models
from pointsman.epp.bbr.kinds import Surroundings
from pointsman.epp.bbr.pages import answer, families
from pointsman.epp.bbr.processors import Tally
from pointsman.epp.bbr.settings import BbrSettings
from pointsman.epp.bbr.stream import RoutedRequest, Routing
from pointsman.epp.extproc.deadlines import Deadlines
from pointsman.epp.extproc.health import EXT_PROC, Health
from pointsman.wire.grpc import Method, Router
from pointsman.wire.limits import Limits
from pointsman.wire.listener import Listener

if TYPE_CHECKING:  # imported where a cluster is used
    from pointsman.kube.client import Client
    from pointsman.kube.guard import Guard

log = get_logger(__name__)

_CLUSTER = ("KUBERNETES_SERVICE_HOST", "KUBECONFIG")  # either says that there is one
_SWEEP_SECONDS = 0.25
_HELD_BYTES = 384 << 20
_METRICS_LIMITS = HttpLimits(body_bytes=64 << 10, connections=256, idle_seconds=300.0)


class BbrServer:
    """One running router."""

    def __init__(
        self,
        settings: BbrSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        settings.check()
        self._settings = settings
        self._clock = clock
        self._stop = asyncio.Event()
        self.adapters = Adapters()
        self.tally = Tally()
        rng = rng or random.Random()  # noqa: S311 - a choice between models, not a secret
        around = Surroundings(base_of=self.adapters.base_of, tally=self.tally, rng=rng, clock=clock)
        self.program = read_program(settings, around=around)
        self.collector: Collector | None = None
        if (wanted := self.program.collector) is not None:
            self.collector = Collector(wanted, models=self.program.models, clock=clock)
        if (path := self.program.models_path) is not None:
            take_models(read_all([path])[0], models=self.program.models, path=path)
        self.health = Health()
        self.deadlines = Deadlines(seconds=settings.body_timeout, clock=clock)
        self.budget = Budget(limit=_HELD_BYTES)
        self.routing = Routing(
            self.program,
            tally=self.tally,
            budget=self.budget,
            deadlines=self.deadlines,
            streaming=settings.streaming,
            clock=clock,
        )
        limits = Limits()
        process: Method = partial(RoutedRequest, routing=self.routing)
        methods = {f"/{EXT_PROC}/Process": process, **self.health.methods()}
        self.listener = Listener(Router(methods, limits=limits), limits=limits, budget=self.budget)
        self.health_listener = Listener(Router(self.health.methods(), limits=limits), limits=limits, budget=self.budget)
        self.metrics_port = 0  # once it is bound

    def stop(self) -> None:
        """Begin to drain."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until stopped."""
        async with AsyncExitStack() as stack:
            client, guard = None, None
            if any(os.environ.get(name) for name in _CLUSTER):
                client, guard = await self._connect(stack)
            await self._serve(client=client, guard=guard)

    async def _connect(self, stack: AsyncExitStack) -> "tuple[Client, Guard | None]":
        from pointsman.kube.guard import connect_guarded  # only where there is a cluster: it takes long to import

        return await connect_guarded(stack, guarded=self._settings.metrics_endpoint_auth, clock=self._clock)

    async def _serve(self, *, client: "Client | None", guard: "Guard | None") -> None:
        async with HttpServer(budget=self.budget) as http, asyncio.TaskGroup() as tasks:
            await self._bind(http, guard=guard)
            for warning in self.program.warnings:
                log.warning("configuration: to be changed", what=warning)
            followers = [tasks.create_task(self._keep_time())]
            if self.program.models_path is not None:
                followers.append(tasks.create_task(follow_models(self.program.models, path=self.program.models_path)))
            if self.collector is not None:
                followers.append(tasks.create_task(self.collector.run()))
            if client is not None:
                self.health.note("adapters", obstacle="it has not read the ConfigMaps yet")
                followers.append(tasks.create_task(follow_adapters(client, adapters=self.adapters, health=self.health)))
            loop.on_signals(self.stop)
            self.health.set(serving=True)
            log.info("bbr: ready", grpc_port=self.listener.port, health_port=self.health_listener.port)
            await self._stop.wait()
            self.health.note("drain", obstacle="it is draining")
            await loop.wait_while(lambda: self.listener.peers, seconds=self._settings.drain_timeout)
            await self.listener.drain(seconds=1.0)
            await self.health_listener.drain(seconds=0.1)
            for follower in followers:
                follower.cancel()

    async def _bind(self, http: HttpServer, *, guard: "Guard | None") -> None:
        settings = self._settings
        tls = server_context(min_version="", cipher_suites="") if settings.secure_serving else None
        if tls is not None:
            if settings.cert_path is None:
                load_self_signed(tls)
            else:
                load_folder(tls, settings.cert_path)
        await self.listener.bind(
            host=settings.host, port=settings.grpc_port, flag="--grpc-port", tls=tls, spawn=http.spawn
        )
        await self.health_listener.bind(
            host=settings.host, port=settings.grpc_health_port, flag="--grpc-health-port", spawn=http.spawn
        )
        shown = partial(families, tally=self.tally, program=self.program, collector=self.collector)
        page = partial(answer, shown=shown, guard=guard)
        metrics = await http.listen(
            page, host=settings.host, port=settings.metrics_port, flag="--metrics-port", limits=_METRICS_LIMITS
        )
        self.metrics_port = metrics.port

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.deadlines.sweep()
