"""The picker as a process: ports, certificates, discovery, and a quiet end.

Order of a start: discovery first, then ports, then health says SERVING, so nobody is sent here before an answer is
known. Order of an end (SIGTERM): health says no at once, everything is served on for `--drain-timeout` or until all
peers have left, then peers are asked to go and open streams get a last moment.
"""

import asyncio
import random
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from pointsman.core import loop
from pointsman.core.errors import UserError
from pointsman.core.http import Limits as HttpLimits
from pointsman.core.http import Server as HttpServer
from pointsman.core.logs import get_logger
from pointsman.epp.admin import Admin
from pointsman.epp.assembly import LEAST_INTERVAL, Assembly
from pointsman.epp.certificates import follow_certificate, metrics_context, serving_context
from pointsman.epp.config.build import Built
from pointsman.epp.discovery import Discovery
from pointsman.epp.extproc.health import EXT_PROC
from pointsman.epp.extproc.metrics import StreamMetrics
from pointsman.epp.extproc.stream import Exchange
from pointsman.epp.families import every_family
from pointsman.epp.page.page import Page
from pointsman.epp.settings import Settings
from pointsman.wire.grpc import Call, Method, Push, Router
from pointsman.wire.limits import Limits
from pointsman.wire.listener import Listener

if TYPE_CHECKING:  # imported where a cluster is used: elsewhere it would only cost time at the start
    from pointsman.kube.client import Client
    from pointsman.kube.guard import Guard

log = get_logger(__name__)

_LAST_MOMENT = 5.0
# Prometheus, probes and people come here: few, with small questions.
_METRICS_LIMITS = HttpLimits(body_bytes=64 << 10, connections=256, idle_seconds=300.0)


class PickerServer:
    """One running picker."""

    def __init__(self, settings: Settings, *, rng: random.Random) -> None:
        settings.check()
        self._settings = settings
        self.parts = Assembly(settings, rng=rng)
        self.discovery = Discovery(self.parts)
        if settings.ha_enable_leader_election and not self.discovery.in_cluster:
            raise UserError(
                "--ha-enable-leader-election needs a cluster, and the configuration reads endpoints from a file: "
                "remove the flag, or dataLayer.discovery"
            )
        self.page = Page(self.parts)
        self.metrics_port = 0  # once it is bound
        self._stop = asyncio.Event()
        self._max_body = settings.body_bytes
        self._limits = Limits(message_bytes=settings.message_bytes)
        self._streams = StreamMetrics(clock=self.parts.clock) if settings.enable_grpc_stream_metrics else None
        methods: dict[str, Method] = {
            f"/{EXT_PROC}/Process": self._open if self._streams is not None else self._exchange
        }
        health = self.parts.health.methods()
        both = {**methods, **health} if settings.health_checking else methods
        self.listener = self._listener(both)
        self.health_listener = self._listener(health)

    def _listener(self, methods: Mapping[str, Method]) -> Listener:
        return Listener(Router(methods, limits=self._limits), limits=self._limits, budget=self.parts.budget)

    def _open(self, push: Push) -> Call:
        assert self._streams is not None
        return self._streams.open(self._exchange(push))

    def _exchange(self, push: Push) -> Exchange:
        parts = self.parts
        return Exchange(
            push,
            director=parts.director,
            ask=parts.tokenizer.ask,
            predictor=parts.predictor,
            fresh_id=parts.fresh_id,
            max_body=self._max_body,
            budget=parts.budget,
            deadlines=parts.deadlines,
        )

    def stop(self) -> None:
        """Begin to drain."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until stopped."""
        async with AsyncExitStack() as stack:
            client, guard = await self._connect(stack) if self.discovery.in_cluster else (None, None)
            await self._serve(client=client, guard=guard)

    async def _connect(self, stack: AsyncExitStack) -> "tuple[Client, Guard | None]":
        from pointsman.kube.guard import connect_guarded  # only where there is a cluster: it takes long to import

        return await connect_guarded(stack, guarded=self._settings.metrics_endpoint_auth, clock=self.parts.clock)

    async def _serve(self, *, client: "Client | None", guard: "Guard | None") -> None:
        parts = self.parts
        parts.sources.use(parts.configuration.current.plan)
        source = self.discovery.source(client)
        await source.start()
        tls = serving_context(self._settings)
        async with HttpServer(budget=parts.budget) as http, asyncio.TaskGroup() as tasks:
            parts.tokenizer.begin(tasks)
            parts.predictor.begin(tasks)
            await self._bind(http, tls=tls, guard=guard)
            followers = [tasks.create_task(source.run()), *self._follow(tasks, tls=tls, client=client)]
            loop.on_signals(self.stop)
            self.discovery.watch()
            parts.health.set(serving=True)
            log.info(
                "picker: ready",
                grpc_port=self.listener.port,
                health_port=self.health_listener.port,
                metrics_port=self.metrics_port,
                tls=self._settings.secure_serving,
                endpoints=len(parts.pool.members),
            )
            await self._stop.wait()
            await self._drain()
            for follower in followers:
                follower.cancel()

    def _follow(
        self, tasks: asyncio.TaskGroup, *, tls: ssl.SSLContext, client: "Client | None"
    ) -> list[asyncio.Task[None]]:
        """Begin what goes on beside the requests."""
        parts, settings = self.parts, self._settings
        followers = [
            parts.sources.run(),
            self._keep_time(),
            parts.configuration.follow(self._use_configuration),
            parts.trainer.run(),
            self.page.run(),
        ]
        if settings.ha_enable_leader_election:
            assert client is not None
            followers.append(self.discovery.stand_for_election(client))
        if parts.tracer is not None:
            followers.append(parts.tracer.run())
        if settings.enable_cert_reload:
            followers.append(follow_certificate(settings, tls, failed=parts.count_bad_file))
        return [tasks.create_task(follower) for follower in followers]

    async def _bind(self, http: HttpServer, *, tls: ssl.SSLContext, guard: "Guard | None") -> None:
        settings, parts = self._settings, self.parts
        self.show_metrics()
        admin = Admin(
            director=parts.director,
            health=parts.health,
            metrics=parts.metrics,
            clock=parts.clock,
            page=self.page.routes,
            guard=guard,
        )
        await self.listener.bind(
            host=settings.host,
            port=settings.grpc_port,
            flag="--grpc-port",
            tls=tls if settings.secure_serving else None,
            spawn=http.spawn,
        )
        await self.health_listener.bind(
            host=settings.host, port=settings.grpc_health_port, flag="--grpc-health-port", spawn=http.spawn
        )
        metrics = await http.listen(
            admin,
            host=settings.host,
            port=settings.metrics_port,
            flag="--metrics-port",
            tls=metrics_context(settings),
            limits=_METRICS_LIMITS,
        )
        self.metrics_port = metrics.port

    def show_metrics(self) -> None:
        """Add what is read rather than counted."""
        streams = self._streams.families() if self._streams is not None else ()
        self.parts.metrics.add(*every_family(self.parts, listener=self.listener), *streams, *self.page.families())

    def _use_configuration(self, built: Built) -> None:
        self.parts.use(built)
        self.discovery.check_protocol()

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(LEAST_INTERVAL)
            self.parts.sweep()

    async def _drain(self) -> None:
        self.parts.health.note("drain", obstacle="it is draining")
        log.info("picker: draining", seconds=self._settings.drain_timeout, streams=self.listener.open_streams)
        await loop.wait_while(lambda: self.listener.peers, seconds=self._settings.drain_timeout)
        await self.listener.drain(seconds=_LAST_MOMENT)
        await self.health_listener.drain(seconds=0.1)
        log.info("picker: stopped")
