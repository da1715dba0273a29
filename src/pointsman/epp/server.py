"""The picker as a process: ports, certificates, discovery, and a quiet end.

Order of a start: discovery first, then ports, then health says SERVING, so nobody is sent here before an answer is
known. Order of an end (SIGTERM): health says no at once, everything is served on for `--drain-timeout` or until all
peers have left, then peers are asked to go and open streams get a last moment.
"""

import asyncio
import os
import random
import signal
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.core.budget import Budget
from pointsman.core.errors import UserError
from pointsman.core.http import Limits as HttpLimits
from pointsman.core.http import Server as HttpServer
from pointsman.core.logs import get_logger
from pointsman.core.tls import load_folder, load_self_signed, server_context
from pointsman.core.watch import watch_files
from pointsman.epp.admin import Admin
from pointsman.epp.body.parsers import contradiction
from pointsman.epp.body.tokenizer import Tokenizer
from pointsman.epp.config.build import Builder, Built
from pointsman.epp.config.follow import ConfigFollower
from pointsman.epp.extproc.deadlines import Deadlines
from pointsman.epp.extproc.health import EXT_PROC, Health
from pointsman.epp.extproc.metrics import StreamMetrics
from pointsman.epp.extproc.stream import Exchange
from pointsman.epp.families import (
    configuration_family,
    memory_families,
    picker_families,
    plugin_families,
    span_family,
    token_family,
)
from pointsman.epp.metrics.picker import Metrics
from pointsman.epp.metrics.pool import pool_families, source_families
from pointsman.epp.metrics.request import Bookkeeper
from pointsman.epp.metrics.tracing import Tracer, exporter_of
from pointsman.epp.plugins.declared import FileDiscoveryParameters
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Pool
from pointsman.epp.request.objectives import Objectives
from pointsman.epp.request.rewrites import Rewrites
from pointsman.epp.schedule.director import Director, Options
from pointsman.epp.schedule.explain_log import Recorder
from pointsman.epp.schedule.records import Records
from pointsman.epp.settings import Settings
from pointsman.epp.sources.file import FileSource, Listing
from pointsman.epp.sources.planned import Sources
from pointsman.epp.sources.pool import Cluster
from pointsman.wire.grpc import Call, Method, Push, Router
from pointsman.wire.limits import Limits
from pointsman.wire.listener import Listener

if TYPE_CHECKING:  # imported where a cluster is used: elsewhere it would only cost time at the start
    from pointsman.epp.sources.kube import ClusterSource
    from pointsman.kube.client import Client
    from pointsman.kube.guard import Guard

log = get_logger(__name__)

_LAST_MOMENT = 5.0
_LEAST_INTERVAL = 0.05
# Prometheus, probes and people come here: few, with small questions.
_METRICS_LIMITS = HttpLimits(body_bytes=64 << 10, connections=256, idle_seconds=300.0)


class Picker:
    """One running picker."""

    def __init__(self, settings: Settings, *, rng: random.Random) -> None:
        settings.check()
        self._settings = settings
        self._rng = rng
        self._bad_files = 0
        self.metrics_port = 0  # once it is bound
        self._client: Client | None = None  # of the cluster, where there is one
        self._guard: Guard | None = None  # of the metrics port there
        self._protocol = ""  # the pool's appProtocol, where there is a pool that has one
        self._stop = asyncio.Event()
        self._max_body = settings.body_bytes
        self._limits = Limits(message_bytes=settings.message_bytes)
        self._clock = time.monotonic
        self.budget = Budget(limit=settings.held_bytes)
        self._deadlines = Deadlines(seconds=settings.body_timeout, clock=self._clock)
        self.pool = Pool(clock=self._clock, staleness=settings.metrics_staleness_threshold)
        self.objectives = Objectives()
        self.rewrites = Rewrites()
        self.polls = Polls()
        tick = max(_LEAST_INTERVAL, settings.refresh_metrics_interval)
        self.sources = Sources(pool=self.pool, tally=self.polls, clock=self._clock, tick=tick)
        self.tokenizer = Tokenizer()
        self.metrics = Metrics()
        exporter = exporter_of(os.environ) if settings.tracing else None
        self.tracer = Tracer(exporter, rng=rng) if exporter is not None else None
        self.health = Health(election=settings.ha_enable_leader_election)
        self._builder = Builder(clock=self._clock, rng=rng)
        self.configuration = ConfigFollower(
            builder=self._builder,
            path=settings.config_file,
            text=settings.config_text,
            allow_experimental=settings.allow_experimental_plugins,
        )
        self.director = Director(
            pool=self.pool,
            scheduler=self.configuration.current.scheduler,
            records=Records(),
            rng=rng,
            options=Options(
                use_subset=not settings.disable_endpoint_subset_filter,
                emit_scores=settings.emit_endpoint_scores,
                explain=settings.explain,
                explain_on_demand=settings.explain_on_demand,
                priority_of=self.objectives.priority,
                rewrite=self._rewrite,
            ),
            books=Bookkeeper(self.metrics, clock=self._clock, tracer=self.tracer),
        )
        if settings.record is not None:
            self.director.records.listen(Recorder(settings.record, clock=self._clock))
        self.streams = StreamMetrics(clock=self._clock) if settings.enable_grpc_stream_metrics else None
        methods: dict[str, Method] = {
            f"/{EXT_PROC}/Process": self._open if self.streams is not None else self._exchange
        }
        health = self.health.methods()
        both = {**methods, **health} if settings.health_checking else methods
        self.listener = self._listener(both)
        self.health_listener = self._listener(health)

    def _listener(self, methods: Mapping[str, Method]) -> Listener:
        return Listener(Router(methods, limits=self._limits), limits=self._limits, budget=self.budget)

    def _open(self, push: Push) -> Call:
        assert self.streams is not None
        return self.streams.open(self._exchange(push))

    def _exchange(self, push: Push) -> Exchange:
        return Exchange(
            push,
            director=self.director,
            ask=self.tokenizer.ask,
            fresh_id=self._fresh_id,
            max_body=self._max_body,
            budget=self.budget,
            deadlines=self._deadlines,
        )

    def _rewrite(self, model: str) -> str:
        """Return the model that a rewrite rule sends this one to; nothing when there is no such rule."""
        found = self.rewrites.rewrite(model, random=self._rng.random)
        if found is None:
            return ""
        self.metrics.rewrote(rewrite=found.rewrite, model=model, target=found.model)
        return found.model

    def _fresh_id(self) -> str:
        """Return a random UUID, for requests that come without an id."""
        bits = f"{self._rng.getrandbits(128):032x}"
        return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-{'89ab'[int(bits[16], 16) % 4]}{bits[17:20]}-{bits[20:]}"

    def stop(self) -> None:
        """Begin to drain."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until stopped."""
        async with AsyncExitStack() as stack:
            if self._settings.in_cluster:
                from pointsman.kube.client import connect

                self._client = await stack.enter_async_context(connect())
                if self._settings.metrics_endpoint_auth:
                    from pointsman.kube.guard import Guard

                    nobody = await stack.enter_async_context(connect(anonymous=True))
                    self._guard = Guard(nobody, clock=self._clock)
            await self._serve()

    async def _serve(self) -> None:
        self.sources.use(self.configuration.current.plan)
        source = self._source()
        await source.start()
        tls = server_context(min_version=self._settings.tls_min_version, cipher_suites=self._settings.tls_cipher_suites)
        if self._settings.secure_serving:
            self._load_certificate(tls)
        async with HttpServer(budget=self.budget) as http, asyncio.TaskGroup() as tasks:
            self.tokenizer.begin(tasks)
            await self._bind(http, tls=tls)
            followers = [
                tasks.create_task(source.run()),
                tasks.create_task(self.sources.run()),
                tasks.create_task(self._keep_time()),
                tasks.create_task(self.configuration.follow(self._use_configuration)),
            ]
            if self._settings.ha_enable_leader_election:
                followers.append(tasks.create_task(self._stand_for_election()))
            if self.tracer is not None:
                followers.append(tasks.create_task(self.tracer.run()))
            if self._settings.enable_cert_reload:
                followers.append(tasks.create_task(self._follow_certificate(tls)))
            self._install_signals()
            self.pool.watch(self._note_sync)
            self.health.set(serving=True)
            log.info(
                "picker: ready",
                grpc_port=self.listener.port,
                health_port=self.health_listener.port,
                metrics_port=self.metrics_port,
                tls=self._settings.secure_serving,
                endpoints=len(self.pool.members),
            )
            await self._stop.wait()
            await self._drain()
            for follower in followers:
                follower.cancel()

    async def _bind(self, http: HttpServer, *, tls: ssl.SSLContext) -> None:
        settings = self._settings
        self._show_metrics()
        admin = Admin(
            director=self.director, health=self.health, metrics=self.metrics, clock=self._clock, guard=self._guard
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

    def _show_metrics(self) -> None:
        """Add what is read rather than counted."""
        self.metrics.info.cells["", version("pointsman")] = 1
        name, staleness = self._settings.pool_name or "file", self._settings.metrics_staleness_threshold
        self.metrics.add(
            *pool_families(self.pool, name=name, clock=self._clock, staleness=staleness),
            *source_families(self.polls),
            *plugin_families(self._builder.meters, made=lambda: self.configuration.current.made),
            *picker_families(director=self.director, listener=self.listener, bad_files=lambda: self._bad_files),
            *memory_families(self.budget),
            configuration_family(self.configuration),
            token_family(self.tokenizer),
            *([span_family(self.tracer)] if self.tracer is not None else []),
            *(self.streams.families() if self.streams is not None else []),
        )

    def _use_configuration(self, built: Built) -> None:
        """Decide and look by another configuration from now on."""
        self.director.use(built.scheduler)
        self._check_protocol()
        try:
            self.sources.use(built.plan)
        except UserError as error:
            self._count_bad_file()
            log.warning("configuration: data sources stay as they were", reason=str(error))

    def _source(self) -> "FileSource | ClusterSource":
        """Return where endpoints come from."""
        if self._client is None:
            return self._file_source()
        from pointsman.epp.sources.kube import follow_cluster

        return follow_cluster(self._settings, client=self._client, namespace=self._namespace, use=self._use_cluster)

    @property
    def _namespace(self) -> str:
        return self._settings.pool_namespace or os.environ.get("NAMESPACE") or "default"

    def _use_cluster(self, cluster: Cluster) -> None:
        self.objectives.replace(cluster.objectives())
        self.rewrites.replace(cluster.rewrites())
        self.metrics.exempt_models(self.rewrites.models)
        if cluster.spec is None:
            self.pool.clear()
        else:
            self.pool.replace(cluster.endpoints())
        self._protocol = cluster.spec.app_protocol if cluster.spec is not None else ""
        self._check_protocol()

    def _check_protocol(self) -> None:
        """Serve nobody while the parsers are made for another protocol than the pool's."""
        parsers = self.director.scheduler.parsers
        wrong = contradiction(parsers, protocol=self._protocol) if self._protocol else ""
        if wrong and wrong not in self.health.obstacles:
            log.error("picker: not serving", reason=wrong)
        self.health.note("protocol", obstacle=wrong)

    async def _stand_for_election(self) -> None:
        assert self._client is not None
        from pointsman.epp.sources.kube import stand_for_election

        await stand_for_election(
            self._client,
            namespace=self._namespace,
            pool=self._settings.pool_name,
            identity=os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            leads=lambda leads: self.health.note("leader", obstacle="" if leads else "another replica leads"),
        )

    def _file_source(self) -> FileSource:
        """Return the endpoints file that the command line names, or the configuration."""
        if self._settings.endpoints_file is not None:
            return FileSource(self._settings.endpoints_file, use=self._use, failed=self._count_bad_file)
        plan = self.configuration.current.plan
        declared = plan.get(plan.discovery)
        if declared is None or not isinstance(declared.parameters, FileDiscoveryParameters):
            raise UserError("no endpoints: list them in a YAML file and name it with --endpoints-file")
        path, watch = Path(declared.parameters.path), declared.parameters.watch_file
        return FileSource(path, use=self._use, failed=self._count_bad_file, watch=watch)

    def _note_sync(self, _members: object) -> None:
        self.health.note("pool", obstacle="" if self.pool.synced else "it knows no pool")

    async def _keep_time(self) -> None:
        """Let time pass: scrapes age, ejections end, requests are late."""
        while True:
            await asyncio.sleep(_LEAST_INTERVAL)
            self.pool.sweep(self._clock())
            self._deadlines.sweep()

    def _load_certificate(self, tls: ssl.SSLContext) -> None:
        if self._settings.cert_path is None:
            load_self_signed(tls)
        else:
            load_folder(tls, self._settings.cert_path)

    async def _follow_certificate(self, tls: ssl.SSLContext) -> None:
        """Load certificates into the live context when they change; a bad pair is reported and the old one stays."""
        folder = self._settings.cert_path
        assert folder is not None
        first = True
        async for _ in watch_files([folder / "tls.crt", folder / "tls.key"]):
            if first:
                first = False
                continue
            try:
                load_folder(tls, folder)
                log.info("tls: certificate reloaded", folder=str(folder))
            except UserError as error:
                self._bad_files += 1
                log.warning("tls: certificate not used", reason=str(error))

    def _use(self, listing: Listing, endpoints: tuple[Endpoint, ...]) -> None:
        self.objectives.replace(listing.objectives)
        self.rewrites.replace(listing.rewrites)
        self.metrics.exempt_models(self.rewrites.models)
        self.pool.replace(endpoints)

    def _count_bad_file(self) -> None:
        self._bad_files += 1

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    async def _drain(self) -> None:
        self.health.note("drain", obstacle="it is draining")
        loop = asyncio.get_running_loop()
        log.info("picker: draining", seconds=self._settings.drain_timeout, streams=self.listener.open_streams)
        end = loop.time() + self._settings.drain_timeout
        while self.listener.peers and loop.time() < end:  # noqa: ASYNC110 - a poll at shutdown needs no event
            await asyncio.sleep(0.05)
        await self.listener.drain(seconds=_LAST_MOMENT)
        await self.health_listener.drain(seconds=0.1)
        log.info("picker: stopped")


def metrics_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS of the metrics port; None for plaintext.

    Raises UserError naming the flag whose files cannot be used.
    """
    if settings.metrics_cert_dir is None:
        return None
    context = server_context(alpn=("http/1.1",), min_version="VersionTLS12")
    load_folder(context, settings.metrics_cert_dir, flag="--metrics-cert-dir")
    authority = settings.metrics_client_ca_file
    if authority is not None:
        try:
            context.load_verify_locations(authority)
        except OSError as error:  # ssl.SSLError is one
            raise UserError(f"--metrics-client-ca-file {authority}: cannot be used: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context
