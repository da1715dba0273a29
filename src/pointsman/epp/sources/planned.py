"""The data sources that a configuration asks for, running; exchanged when a new configuration asks for others.

Turns the parameters of `metrics-data-source`, `core-metrics-extractor`, `models-data-source` and `dcgm-data-source`
into scrapers. Those that a reload does not touch are not restarted, so their connections and what they know stay.
"""

import asyncio
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pointsman.core.errors import UserError
from pointsman.core.values import Problem
from pointsman.epp.config.defaults import ConfigPlan
from pointsman.epp.plugins.declared import (
    CoreMetricsParameters,
    DcgmSourceParameters,
    EngineMetricNames,
    HttpSourceParameters,
    MetricsSourceParameters,
    ModelsSourceParameters,
)
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Pool
from pointsman.epp.sources.dialects import DIALECTS, Dialect
from pointsman.epp.sources.gpus import GpusQuestion
from pointsman.epp.sources.models import ModelsQuestion
from pointsman.epp.sources.scan import parse_spec
from pointsman.epp.sources.scrape import MetricsQuestion, Question, Scraper, ScrapeTerms

_MODELS_SECONDS = 1.0  # models come and go with people, not with requests
_GPU_SECONDS = 1.0  # the exporter itself looks once in a while only

Wanted = Mapping[tuple[object, ...], tuple[Question, ScrapeTerms]]
"""What to ask, keyed by everything in the configuration that it depends on."""
Unsaid = Mapping[str, Any]
"""Parameters of a source that asks model servers, where the configuration does not say them."""
_NOTHING: Unsaid = MappingProxyType({})


def wanted(plan: ConfigPlan, *, tally: Polls, tick: float, unsaid: Unsaid = _NOTHING) -> Wanted:
    """Return what a plan wants to know of endpoints.

    Raises UserError when a parameter cannot be used.
    """
    found: dict[tuple[object, ...], tuple[Question, ScrapeTerms]] = {}
    for source, extractors in plan.sources:
        declared = plan.get(source)
        parts = [part for part in map(plan.get, extractors) if part is not None]
        if declared is None:
            continue
        key = (declared.identity, *(part.identity for part in parts))
        if isinstance(declared.parameters, MetricsSourceParameters):
            core = [part.parameters for part in parts if isinstance(part.parameters, CoreMetricsParameters)]
            question: Question = _metrics(core[0] if core else CoreMetricsParameters(), tally=tally)
            found[key] = question, _terms(_told(declared.parameters, unsaid), interval=tick, tick=tick, where=source)
        elif isinstance(declared.parameters, ModelsSourceParameters):
            told = _told(declared.parameters, unsaid)
            terms = _terms(told, interval=_MODELS_SECONDS, tick=tick, where=source)
            found[key] = ModelsQuestion(tally=tally), terms
        elif isinstance(declared.parameters, DcgmSourceParameters):
            terms = _terms(declared.parameters, interval=_GPU_SECONDS, tick=tick, where=source)
            found[key] = GpusQuestion(tally=tally), replace(terms, at_node=declared.parameters.use_node_address)
    return found


def source_problems(plan: ConfigPlan) -> list[Problem]:
    """Return what is wrong with the names of metrics in a plan, before anybody is asked for them."""
    problems = []
    for declared in plan.plugins:
        if isinstance(declared.parameters, CoreMetricsParameters):
            try:
                _metrics(declared.parameters, tally=Polls())
            except UserError as error:
                problems.append(Problem(f"{declared.path}.parameters" if declared.path else declared.name, str(error)))
    return problems


def _metrics(parameters: CoreMetricsParameters, *, tally: Polls) -> MetricsQuestion:
    dialects = {**DIALECTS, **{config.name: read_dialect(config) for config in parameters.engine_configs}}
    if parameters.default_engine not in dialects:
        raise UserError(f"defaultEngine: {parameters.default_engine!r} is unknown: there is {', '.join(dialects)}")
    return MetricsQuestion(
        tally=tally, dialects=dialects, label=parameters.engine_label_key, default=parameters.default_engine
    )


def read_dialect(config: EngineMetricNames) -> Dialect:
    """Return the dialect of an `engineConfigs` entry.

    Raises UserError naming the field that is not a metric.
    """
    where = f"engineConfigs[{config.name}]"
    customs = ((one.attribute_key, one.metric_spec) for one in config.custom_metrics)
    specs = [(key, parse_spec(text, where=f"{where}.customMetrics[{key}].metricSpec")) for key, text in customs]
    return Dialect(
        name=config.name,
        waiting=parse_spec(config.queued_requests_spec, where=f"{where}.queuedRequestsSpec"),
        running=parse_spec(config.running_requests_spec, where=f"{where}.runningRequestsSpec"),
        kv_usage=parse_spec(config.kv_usage_spec, where=f"{where}.kvUsageSpec"),
        lora=parse_spec(config.lora_spec, where=f"{where}.loraSpec"),
        cache_info=parse_spec(config.cache_info_spec, where=f"{where}.cacheInfoSpec"),
        block_size_label=config.cache_block_size_label_name or "block_size",
        num_blocks_label=config.cache_num_blocks_label_name or "num_gpu_blocks",
        block_size=parse_spec(config.cache_block_size_spec, where=f"{where}.cacheBlockSizeSpec"),
        num_blocks=parse_spec(config.cache_num_blocks_spec, where=f"{where}.cacheNumBlocksSpec"),
        custom=tuple((key, spec) for key, spec in specs if spec is not None),
    )


def _told(parameters: HttpSourceParameters, unsaid: Unsaid) -> HttpSourceParameters:
    """Return the parameters with those filled in that the configuration leaves to the command line."""
    missing = {name: value for name, value in unsaid.items() if name not in parameters.model_fields_set}
    return parameters.model_copy(update=missing)


def _terms(parameters: HttpSourceParameters, *, interval: float, tick: float, where: str) -> ScrapeTerms:
    if parameters.interval:
        interval = math.ceil(parameters.interval / tick - 1e-9) * tick
    return ScrapeTerms(
        path=parameters.path,
        port=parameters.port or None,
        tls=_tls(parameters, where=where) if parameters.scheme == "https" else None,
        interval=max(tick, interval),
    )


def _tls(parameters: HttpSourceParameters, *, where: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if parameters.insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif parameters.ca_cert_path:
            context.load_verify_locations(parameters.ca_cert_path)
        else:
            context.load_default_certs()
        if parameters.client_cert_path:
            context.load_cert_chain(parameters.client_cert_path, parameters.client_key_path or None)
    except OSError as error:  # ssl.SSLError is one
        raise UserError(f"{where}: its certificates cannot be used: {error}") from None
    return context


class Sources:
    """The scrapers that are running."""

    def __init__(
        self, *, pool: Pool, tally: Polls, clock: Callable[[], float], tick: float, unsaid: Unsaid = _NOTHING
    ) -> None:
        self._pool = pool
        self._tally = tally
        self._clock = clock
        self._tick = tick
        self._unsaid = unsaid
        self._wanted: Wanted = {}
        self._running: dict[tuple[object, ...], asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def use(self, plan: ConfigPlan) -> None:
        """Ask what a plan wants to know, from now on.

        Raises UserError, and goes on as before, when a parameter cannot be used.
        """
        self._wanted = wanted(plan, tally=self._tally, tick=self._tick, unsaid=self._unsaid)
        if self._tasks is not None:
            self._start(self._tasks)

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._start(tasks)
            await asyncio.Event().wait()

    def _start(self, tasks: asyncio.TaskGroup) -> None:
        for key in [key for key in self._running if key not in self._wanted]:
            self._running.pop(key).cancel()
        for key, (question, terms) in self._wanted.items():
            if key not in self._running:
                self._running[key] = tasks.create_task(self._scrape(question, terms))

    async def _scrape(self, question: Question, terms: ScrapeTerms) -> None:
        scraper = Scraper(question, terms=terms, tally=self._tally, clock=self._clock)
        stop = self._pool.watch(scraper.follow)
        try:
            await scraper.run()
        finally:
            stop()
