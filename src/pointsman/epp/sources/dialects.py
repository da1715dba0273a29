"""What each engine calls its metrics, and what a page in that dialect says.

A dialect is data: one spec per figure, absent where the engine has no such metric. A `Reader` holds the finders of one
endpoint and turns a page into `EndpointMetrics`. A figure that the page does not have keeps its last value and is
counted as missed; the time moves on when at least one figure was there, so a page that is no metrics page at all makes
an endpoint stale, not idle. LoRA info alone may be missing without complaint: vLLM has it only with adapters.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from pointsman.core.numbers import whole
from pointsman.epp.pool.view import CacheConfig, EndpointMetrics, Lora
from pointsman.epp.sources.scan import Finder, Series, Spec, read_labels

ENGINE_LABEL = "llm-d.ai/engine-type"
OLD_ENGINE_LABEL = "inference.networking.k8s.io/engine-type"
DEFAULT_ENGINE = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One engine's names; an entry of `engineConfigs`."""

    name: str
    waiting: Spec | None = None
    running: Spec | None = None
    kv_usage: Spec | None = None
    lora: Spec | None = None
    cache_info: Spec | None = None  # carries the cache's shape in labels …
    block_size_label: str = "block_size"
    num_blocks_label: str = "num_gpu_blocks"
    block_size: Spec | None = None  # … or two metrics carry it as values
    num_blocks: Spec | None = None
    custom: tuple[tuple[str, Spec], ...] = ()  # attribute key and what fills it


_TRITON_REQUESTS = "nv_trt_llm_request_metrics"
_TRITON_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            Dialect(
                name="vllm",
                waiting=Spec("vllm:num_requests_waiting"),
                running=Spec("vllm:num_requests_running"),
                kv_usage=Spec("vllm:kv_cache_usage_perc"),
                lora=Spec("vllm:lora_requests_info"),
                cache_info=Spec("vllm:cache_config_info"),
            ),
            Dialect(
                name="sglang",
                waiting=Spec("sglang:num_queue_reqs"),
                running=Spec("sglang:num_running_reqs"),
                kv_usage=Spec("sglang:token_usage"),
                cache_info=Spec("sglang:cache_config_info"),
                block_size_label="page_size",
                num_blocks_label="num_pages",
            ),
            Dialect(
                name="trtllm-serve",
                waiting=Spec("trtllm_num_requests_waiting"),
                running=Spec("trtllm_num_requests_running"),
                kv_usage=Spec("trtllm_kv_cache_utilization"),
                block_size=Spec("trtllm_kv_cache_tokens_per_block"),
                num_blocks=Spec("trtllm_kv_cache_max_blocks"),
            ),
            Dialect(
                name="triton-tensorrt-llm",
                waiting=Spec(_TRITON_REQUESTS, (("request_type", "waiting"),)),
                running=Spec(_TRITON_REQUESTS, (("request_type", "scheduled"),)),
                kv_usage=Spec(_TRITON_BLOCKS, (("kv_cache_block_type", "fraction"),)),
                block_size=Spec(_TRITON_BLOCKS, (("kv_cache_block_type", "tokens_per"),)),
                num_blocks=Spec(_TRITON_BLOCKS, (("kv_cache_block_type", "max"),)),
            ),
            Dialect(
                name="triton",
                waiting=Spec("nv_inference_pending_request_count"),
                running=Spec("nv_inference_exec_count"),
            ),
        )
    }
)


def engine_of(labels: Mapping[str, str], *, key: str = ENGINE_LABEL, default: str = DEFAULT_ENGINE) -> str:
    """Return the engine that an endpoint's labels name."""
    return labels.get(key) or labels.get(OLD_ENGINE_LABEL) or default


class PageReading(NamedTuple):
    """What one page said."""

    metrics: EndpointMetrics
    attributes: Mapping[str, float]
    missed: int  # figures that the dialect has and the page has not


class Reader:
    """Reads the pages of one endpoint."""

    __slots__ = ("_cache", "_custom", "_gauges", "_kv_usage", "_lora", "_running", "_shape", "_waiting")

    def __init__(self, dialect: Dialect) -> None:
        self._waiting = _finder(dialect.waiting)
        self._running = _finder(dialect.running)
        self._kv_usage = _finder(dialect.kv_usage)
        self._lora = _finder(dialect.lora)
        self._cache = _finder(dialect.cache_info)
        self._shape = (dialect.block_size_label, dialect.num_blocks_label)
        self._gauges = (_finder(dialect.block_size), _finder(dialect.num_blocks))
        self._custom = tuple((key, Finder(spec)) for key, spec in dialect.custom)

    def read(self, page: bytes, *, now: float, last: EndpointMetrics, attributes: Mapping[str, float]) -> PageReading:
        """Return the page's figures; what it does not have stays as it was."""
        notes = _Notes()
        waiting = notes.figure(self._waiting, page, count, last.waiting)
        running = notes.figure(self._running, page, count, last.running)
        kv_usage = notes.figure(self._kv_usage, page, share, last.kv_usage)
        lora = self._read_lora(page, notes, last.lora)
        cache = self._read_cache(page, notes, last.cache)
        if self._custom:
            attributes = {**attributes, **self._read_custom(page, notes)}
        metrics = EndpointMetrics(
            waiting=int(waiting),
            running=int(running),
            kv_usage=kv_usage,
            lora=lora,
            cache=cache,
            updated_at=now if notes.found else last.updated_at,
            models=last.models,
            adapters=last.adapters,
        )
        return PageReading(metrics, attributes, notes.missed)

    def _read_lora(self, page: bytes, notes: "_Notes", last: Lora) -> Lora:
        series = self._lora.largest(page) if self._lora is not None else None
        if series is None:
            return last
        notes.found += 1
        return read_lora(series.labels)

    def _read_cache(self, page: bytes, notes: "_Notes", last: CacheConfig) -> CacheConfig:
        if self._cache is not None:
            series = self._cache.latest(page)
            if series is None:
                notes.missed += 1
                return last
            notes.found += 1
            return read_cache(series.labels, *self._shape)
        size, blocks = self._gauges
        if size is None and blocks is None:
            return last
        return CacheConfig(
            block_tokens=int(notes.figure(size, page, count, last.block_tokens)),
            blocks=int(notes.figure(blocks, page, count, last.blocks)),
        )

    def _read_custom(self, page: bytes, notes: "_Notes") -> dict[str, float]:
        read = {}
        for key, finder in self._custom:
            value = notes.figure(finder, page, number, math.nan)
            if not math.isnan(value):
                read[key] = value
        return read


class _Notes:
    """Counts what was there and what was not."""

    __slots__ = ("found", "missed")

    def __init__(self) -> None:
        self.found = 0
        self.missed = 0

    def figure(
        self, finder: Finder | None, page: bytes, plausible: Callable[[float], float | None], last: float
    ) -> float:
        """Return what the page says, or the last value when it says nothing that can be."""
        if finder is None:
            return last
        series: Series | None = finder.latest(page)
        value = plausible(series.value) if series is not None else None
        if value is None:
            self.missed += 1
            return last
        self.found += 1
        return value


def _finder(spec: Spec | None) -> Finder | None:
    return Finder(spec) if spec is not None else None


def count(value: float) -> float | None:
    """Return a number of things as it is, None when no engine can mean it."""
    return value if 0 <= value < 1e15 else None


def share(value: float) -> float | None:
    """Return a share within 0 and 1, None when it is not a number."""
    return None if math.isnan(value) else min(1.0, max(0.0, value))


def number(value: float) -> float | None:
    """Return a finite number, None for any other."""
    return value if math.isfinite(value) else None


@lru_cache(maxsize=512)
def read_lora(labels: bytes) -> Lora:
    """Return the adapters that the labels of a LoRA info line name."""
    read = read_labels(labels)
    return Lora(
        running=_names(read.get("running_lora_adapters", "")),
        waiting=_names(read.get("waiting_lora_adapters", "")),
        max_active=_whole(read.get("max_lora", "")),
    )


@lru_cache(maxsize=512)
def read_cache(labels: bytes, block_size_label: str, num_blocks_label: str) -> CacheConfig:
    """Return the cache's shape that the labels of an info line name."""
    read = read_labels(labels)
    return CacheConfig(
        block_tokens=_whole(read.get(block_size_label, "")), blocks=_whole(read.get(num_blocks_label, ""))
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))


def _whole(text: str) -> int:
    """Return a label value that is a whole number, 0 for any other (vLLM writes `None` before it has profiled)."""
    return whole(text, most=10**15 - 1) or 0
