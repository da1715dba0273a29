"""How busy each model's pool is, read from a page of metrics for all of it: `router-metrics-collector`.

A model's entry names the page (`metricsURL`): Prometheus' `/federate`, or whatever adds a pool up. Of several series
the fullest cache counts, and the sum of requests. A page that cannot be read leaves what was known, which says when it
was so.
"""

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from pointsman.core.addresses import ServiceAddress
from pointsman.core.families import Cell
from pointsman.core.http.client import fetch
from pointsman.core.http.limits import AnswerLimits
from pointsman.core.http.messages import request
from pointsman.core.logs import get_logger
from pointsman.epp.bbr.models import Model, Models, PoolLoad
from pointsman.epp.plugins.api import Parameters
from pointsman.epp.plugins.detectors import Seconds
from pointsman.epp.sources.scan import Finder, Spec

log = get_logger(__name__)

BOUNDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Of the seconds that a page takes."""
_LIMITS = AnswerLimits(body_bytes=4 << 20)
_NO_METRICS = re.compile(rb"^(?!#|[ \t\r]*$|[ \t]*[a-zA-Z_:][a-zA-Z0-9_:]*[ \t{]).", re.MULTILINE)
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_NAMES = {
    "utilization_metric": "vllm:kv_cache_usage_perc",
    "queue_depth_metric": "vllm:num_requests_waiting",
    "cpu_cache_usage_metric": "vllm:cpu_cache_usage_perc",
    "running_requests_metric": "vllm:num_requests_running",
}


class CollectorParameters(Parameters):
    """What `router-metrics-collector` takes."""

    interval: Annotated[Seconds, Field(gt=0)] = 30.0
    timeout: Annotated[Seconds, Field(gt=0)] = 5.0
    max_concurrent: int = Field(default=0, ge=0, description="Pages read at once; 0 is one after the other.")
    utilization_metric: str = ""
    queue_depth_metric: str = ""
    cpu_cache_usage_metric: str = Field(default="", alias="cpuCacheUsageMetric")
    running_requests_metric: str = ""

    @field_validator(*_NAMES)
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if name and not _METRIC.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a metric")
        return name

    def metric(self, field: str) -> str:
        """Return the name of a metric, vLLM's where none is given."""
        return getattr(self, field) or _NAMES[field]


class Unread(Exception):
    """A page that could not be read, and under which reason that is counted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Where a pool's metrics are."""

    address: ServiceAddress
    target: str
    secure: bool


def page_of(url: str) -> Page:
    """Return where a URL leads.

    Raises Unread when it is none.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if good and target.isascii() and target.isprintable() and " " not in target:
            secure = parts.scheme == "https"
            address = ServiceAddress(parts.hostname or "", parts.port or (443 if secure else 80))
            return Page(address=address, target=target, secure=secure)
    except ValueError:
        pass
    raise Unread("request_build", f"metricsURL is {url!r}: write http://host:port/path")


def read_page(page: bytes, parameters: CollectorParameters, *, at: float) -> PoolLoad:
    """Return what a page says; a metric that it does not have is 0.

    Raises Unread when it is no page of metrics.
    """
    if _NO_METRICS.search(page) is not None:
        raise Unread("parse", "its answer is no page of metrics")

    def values(field: str) -> Sequence[float]:
        found = Finder(Spec(parameters.metric(field))).all(page)
        return [max(0.0, series.value) for series in found if series.value < 1e15]  # neither infinite nor no number

    return PoolLoad(
        kv_usage=max(values("utilization_metric"), default=0.0),
        cpu_usage=max(values("cpu_cache_usage_metric"), default=0.0),
        waiting=int(sum(values("queue_depth_metric"))),
        running=int(sum(values("running_requests_metric"))),
        at=at,
    )


class Collector:
    """Reads the pages of all models again and again."""

    def __init__(self, parameters: CollectorParameters, *, models: Models, clock: Callable[[], float]) -> None:
        self._parameters = parameters
        self._models = models
        self._clock = clock
        self._tls: ssl.SSLContext | None = None
        self._failing: set[str] = set()
        self.took: dict[str, Cell] = {}  # by model: seconds
        self.failures: Counter[tuple[str, str]] = Counter()  # by model and reason

    async def run(self) -> None:
        """Read, until cancelled."""
        while True:
            await self.read_all()
            await asyncio.sleep(self._parameters.interval)

    async def read_all(self) -> None:
        """Read every model's page once, so many at a time as may be."""
        models = [model for model in self._models.candidates if model.metrics_url]
        places = asyncio.Semaphore(max(1, self._parameters.max_concurrent))
        async with asyncio.TaskGroup() as tasks:
            for model in models:
                tasks.create_task(self._read(model, places))
        names = {model.name for model in models}
        self._failing &= names
        self.took = {name: cell for name, cell in self.took.items() if name in names}
        self.failures = Counter({key: count for key, count in self.failures.items() if key[0] in names})

    async def _read(self, model: Model, places: asyncio.Semaphore) -> None:
        async with places:
            began = self._clock()
            try:
                page = await self._fetch(page_of(model.metrics_url))
                model.load = read_page(page, self._parameters, at=self._clock())
                self._failing.discard(model.name)
            except Unread as error:
                self._failed(model, error)
            self.took.setdefault(model.name, Cell(BOUNDS)).observe(self._clock() - began)

    async def _fetch(self, page: Page) -> bytes:
        address = page.address
        if page.secure and self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            answer = await fetch(
                request("GET", page.target, host=address.authority),
                host=address.host,
                port=address.port,
                seconds=self._parameters.timeout,
                limits=_LIMITS,
                tls=self._tls if page.secure else None,
            )
        except TimeoutError as error:
            raise Unread("timeout", str(error)) from None
        except OSError as error:
            raise Unread("dial", error.strerror or str(error)) from None
        if answer.status != 200:
            raise Unread("http_status", f"it answered {answer.status}")
        return answer.body

    def _failed(self, model: Model, error: Unread) -> None:
        self.failures[model.name, error.reason] += 1
        if model.name not in self._failing:
            self._failing.add(model.name)
            log.warning("bbr: a pool's metrics cannot be read", model=model.name, reason=str(error))
