"""The picker as a process: ports, certificates, discovery, and a quiet end.

Order of a start: discovery first, then ports, then health says SERVING, so nobody is sent here before an answer is
known. Order of an end (SIGTERM): health says no at once, everything is served on for `--drain-timeout` or until all
peers have left, then peers are asked to go and open streams get a last moment.
"""

import asyncio
import random
import signal
import ssl
import time

from pointsman.core.errors import UserError
from pointsman.core.http import Server as HttpServer
from pointsman.core.logs import get_logger
from pointsman.core.tls import load_folder, load_self_signed, server_context
from pointsman.core.watch import watch_files
from pointsman.epp.admin import Admin, picker_families
from pointsman.epp.build import Builder
from pointsman.epp.config_follow import ConfigFollower
from pointsman.epp.director import Director, Options
from pointsman.epp.endpoint import Endpoint
from pointsman.epp.grpc import Router
from pointsman.epp.health import EXT_PROC, Health
from pointsman.epp.limits import Limits
from pointsman.epp.listener import Listener
from pointsman.epp.metrics import Metrics
from pointsman.epp.metrics_pool import pool_families, source_families
from pointsman.epp.objectives import Objectives
from pointsman.epp.pool import Pool
from pointsman.epp.records import Records
from pointsman.epp.rewrites import Rewrites
from pointsman.epp.settings import Settings
from pointsman.epp.sources.file import FileSource, Listing
from pointsman.epp.sources.scrape import Metrics as MetricsQuestion
from pointsman.epp.sources.scrape import Scraper, Tally, Terms
from pointsman.epp.stream import Exchange

log = get_logger(__name__)

_LAST_MOMENT = 5.0
_LEAST_INTERVAL = 0.05


class Picker:
    """One running picker."""

    def __init__(self, settings: Settings, *, rng: random.Random) -> None:
        settings.check()
        self._settings = settings
        self._rng = rng
        self._bad_files = 0
        self._stop = asyncio.Event()
        self._limits = Limits(message_bytes=settings.message_bytes)
        self._clock = time.monotonic
        self.pool = Pool(clock=self._clock, staleness=settings.metrics_staleness_threshold)
        self.objectives = Objectives()
        self.rewrites = Rewrites()
        self.polls = Tally()
        self.metrics = Metrics()
        self.health = Health()
        self.configuration = ConfigFollower(
            builder=Builder(clock=self._clock, rng=rng),
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
            ),
        )
        methods = {f"/{EXT_PROC}/Process": self._exchange}
        health = self.health.methods()
        both = {**methods, **health} if settings.health_checking else methods
        self.listener = Listener(Router(both, limits=self._limits), limits=self._limits)
        self.health_listener = Listener(Router(health, limits=self._limits), limits=self._limits)

    def _exchange(self, _push: object) -> Exchange:
        return Exchange(director=self.director, fresh_id=self._fresh_id, max_body=self._settings.body_bytes)

    def _fresh_id(self) -> str:
        """Return a random UUID, for requests that come without an id."""
        bits = f"{self._rng.getrandbits(128):032x}"
        return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-{'89ab'[int(bits[16], 16) % 4]}{bits[17:20]}-{bits[20:]}"

    def stop(self) -> None:
        """Begin to drain."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until stopped."""
        path = self._settings.endpoints_file
        if path is None:
            raise UserError("no endpoints: list them in a YAML file and name it with --endpoints-file")
        source = FileSource(path, use=self._use, failed=self._count_bad_file)
        await source.start()
        tls = server_context(min_version=self._settings.tls_min_version, cipher_suites=self._settings.tls_cipher_suites)
        if self._settings.secure_serving:
            self._load_certificate(tls)
        async with HttpServer() as http, asyncio.TaskGroup() as tasks:
            await self._bind(http, tls=tls)
            followers = [
                tasks.create_task(source.run()),
                tasks.create_task(self._scraper().run()),
                tasks.create_task(self._keep_time()),
                tasks.create_task(self.configuration.follow(lambda built: self.director.use(built.scheduler))),
            ]
            if self._settings.enable_cert_reload:
                followers.append(tasks.create_task(self._follow_certificate(tls)))
            self._install_signals()
            self.health.set(serving=True)
            log.info(
                "picker: ready",
                grpc_port=self.listener.port,
                health_port=self.health_listener.port,
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
        admin = Admin(director=self.director, health=self.health, metrics=self.metrics, clock=self._clock)
        await self.listener.bind(
            host=settings.host,
            port=settings.grpc_port,
            flag="--grpc-port",
            tls=tls if settings.secure_serving else None,
        )
        await self.health_listener.bind(host=settings.host, port=settings.grpc_health_port, flag="--grpc-health-port")
        await http.listen(admin, host=settings.host, port=settings.metrics_port, flag="--metrics-port")

    def _show_metrics(self) -> None:
        """Add what is read rather than counted."""
        name, staleness = self._settings.pool_name or "file", self._settings.metrics_staleness_threshold
        self.metrics.add(
            *pool_families(self.pool, name=name, clock=self._clock, staleness=staleness),
            *source_families(self.polls),
            *picker_families(director=self.director, listener=self.listener, bad_files=lambda: self._bad_files),
        )

    def _scraper(self) -> Scraper:
        """Return what reads the endpoints' metrics, following the pool."""
        terms = Terms(interval=max(_LEAST_INTERVAL, self._settings.refresh_metrics_interval))
        scraper = Scraper(MetricsQuestion(tally=self.polls), terms=terms, tally=self.polls, clock=self._clock)
        self.pool.watch(scraper.follow)
        return scraper

    async def _keep_time(self) -> None:
        """Let time pass in the pool: scrapes age, ejections end."""
        while True:
            await asyncio.sleep(_LEAST_INTERVAL)
            self.pool.sweep(self._clock())

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
        self.health.set(serving=False)
        loop = asyncio.get_running_loop()
        log.info("picker: draining", seconds=self._settings.drain_timeout, streams=self.listener.open_streams)
        end = loop.time() + self._settings.drain_timeout
        while self.listener.peers and loop.time() < end:  # noqa: ASYNC110 - a poll at shutdown needs no event
            await asyncio.sleep(0.05)
        await self.listener.drain(seconds=_LAST_MOMENT)
        await self.health_listener.drain(seconds=0.1)
        log.info("picker: stopped")
