"""Metrics that do not tell the truth, for testing those who read them.

Fake metrics replace the whole page, as in llm-d-inference-sim: gauges are numbers or functions of time, histograms and
counters given counts, and what is not given is zero; nothing real is mixed in. Ours in addition: a page that freezes,
and gauges that lie by a factor.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pointsman.core.durations import parse_duration
from pointsman.core.errors import UserError
from pointsman.core.numbers import SAFE, is_count, real
from pointsman.sim.pod.metrics import Gauges, Metrics

GAUGES = {"running-requests": "running", "waiting-requests": "waiting", "kv-cache-usage": "usage"}
HISTOGRAMS = {
    "ttft-buckets-values": "time_to_first_token_seconds",
    "tpot-buckets-values": "inter_token_latency_seconds",
    "request-tpot-buckets-values": "request_time_per_output_token_seconds",
    "e2erl-buckets-values": "e2e_request_latency_seconds",
    "queue-time-buckets-values": "request_queue_time_seconds",
    "inf-time-buckets-values": "request_inference_time_seconds",
    "prefill-time-buckets-values": "request_prefill_time_seconds",
    "decode-time-buckets-values": "request_decode_time_seconds",
    "request-prompt-tokens": "request_prompt_tokens",
    "request-generation-tokens": "request_generation_tokens",
    "request-params-max-tokens": "request_params_max_tokens",
    "request-max-generation-tokens": "max_num_generation_tokens",
}
COUNTERS = {
    "total-prompt-tokens": "prompt_tokens_total",
    "total-generation-tokens": "generation_tokens_total",
    "prefix-cache-hits": "prefix_cache_hits_total",
    "prefix-cache-queries": "prefix_cache_queries_total",
}
_TOTALS = {"request_prompt_tokens": "prompt_tokens_total", "request_generation_tokens": "generation_tokens_total"}
_HAIR = 1e-9  # what a sine may miss a whole number by
_FUNCTIONS = ("oscillate", "ramp", "rampreset", "squarewave")


@dataclass(frozen=True, slots=True)
class Wave:
    """A gauge as a function of time: from start to end within a period."""

    shape: str
    start: float
    end: float
    period: float

    def at(self, seconds: float) -> float:
        """Return the value so long after the start."""
        share = seconds / self.period
        match self.shape:
            case "oscillate":
                middle, swing = (self.start + self.end) / 2, (self.end - self.start) / 2
                return middle + swing * math.sin(2 * math.pi * share)
            case "ramp":
                return self.start + (self.end - self.start) * min(share, 1.0)
            case "rampreset":
                return self.start + (self.end - self.start) * (share % 1.0)
        return self.start if share % 1.0 < 0.5 else self.end


Level = float | Wave


def parse_level(value: Any, *, name: str) -> Level:
    """Return a number or a wave from `func:start:end:period`.

    Raises UserError naming the key and the form.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value <= SAFE:
            raise UserError(f"fake-metrics.{name} is out of range: it must be zero or more, and at most {SAFE}")
        return float(value)
    parts = value.split(":") if isinstance(value, str) else []
    try:
        shape, start, end, period = parts
        low, high = real(start), real(end)
        if low is None or high is None:
            raise ValueError(name)  # noqa: TRY301 - the same complaint as for a wrong number of parts
        wave = Wave(shape, low, high, parse_duration(period))
    except (ValueError, UserError):
        raise UserError(
            f"fake-metrics.{name} is {value!r}: write a number, or func:start:end:period such as ramp:0:10:30s"
        ) from None
    if shape not in _FUNCTIONS or wave.period <= 0 or min(wave.start, wave.end) < 0:
        raise UserError(f"fake-metrics.{name} is {value!r}: func is one of {', '.join(_FUNCTIONS)}, the rest positive")
    return wave


@dataclass(frozen=True, slots=True)
class Fakes:
    """Fake metrics, checked."""

    levels: Mapping[str, Level]
    histograms: Mapping[str, Sequence[int]]
    counters: Mapping[str, float]
    success: Mapping[str, int]
    loras: Sequence[Mapping[str, Any]]

    def gauges(self, *, seconds: float, since: float) -> Gauges:
        """Return the gauges so long after the start, which was at the Unix time `since`. Requests are whole."""
        shown = {name: level.at(seconds) if isinstance(level, Wave) else level for name, level in self.levels.items()}
        loras = [
            (str(e.get("running", "")), str(e.get("waiting", "")), float(e.get("timestamp", 0))) for e in self.loras
        ]
        return Gauges(
            int(shown.get("running", 0) + _HAIR),
            int(shown.get("waiting", 0) + _HAIR),
            shown.get("usage", 0),
            tuple(loras) or (("", "", since),),
        )

    def fill(self, metrics: Metrics) -> None:
        """Put the fake counts on a page; totals that are not given follow from their histograms."""
        for name, counts in self.histograms.items():
            metrics.histogram(name).fill(counts)
        for reason, count in self.success.items():
            metrics.count_success(reason, count)
        for name, total in _TOTALS.items():
            if name in self.histograms and total not in self.counters:
                metrics.numbers(total).values[metrics.labels] = metrics.histogram(name).sum


def parse(document: Any) -> Fakes:
    """Return the fake metrics of a configuration.

    Raises UserError naming the key that is unknown or has a wrong value.
    """
    if not isinstance(document, Mapping):
        raise UserError("fake-metrics must be a mapping of names to values")
    known = {*GAUGES, *HISTOGRAMS, *COUNTERS, "loras", "request-success-total"}
    for key in document:
        if key not in known:
            raise UserError(f"fake-metrics.{key} is unknown: choose from {', '.join(sorted(known))}")
    hits, queries = document.get("prefix-cache-hits"), document.get("prefix-cache-queries")
    if (hits is None) != (queries is None) or (hits is not None and _count(hits) > _count(queries)):
        raise UserError("fake-metrics.prefix-cache-hits and -queries go together, with no more hits than queries")
    return Fakes(
        {GAUGES[k]: parse_level(v, name=k) for k, v in document.items() if k in GAUGES},
        {HISTOGRAMS[k]: _counts(v, name=k) for k, v in document.items() if k in HISTOGRAMS},
        {COUNTERS[k]: _count(v) for k, v in document.items() if k in COUNTERS},
        _success(document.get("request-success-total", {})),
        _loras(document.get("loras", [])),
    )


def _count(value: Any) -> int:
    if not is_count(value):
        raise UserError(f"fake-metrics holds a count that is none: write a whole number from 0 to {SAFE}")
    return value


def _counts(value: Any, *, name: str) -> list[int]:
    if not isinstance(value, list):
        raise UserError(f"fake-metrics.{name} must be a list of counts, one per bucket")
    return [_count(item) for item in value]


def _success(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise UserError("fake-metrics.request-success-total must map reasons to counts")
    return {str(reason): _count(count) for reason, count in value.items()}


def _loras(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise UserError("fake-metrics.loras must be a list of {running, waiting, timestamp}")
    for entry in value:
        stamp = entry.get("timestamp", 0)
        if isinstance(stamp, bool) or not isinstance(stamp, int | float) or not abs(stamp) <= SAFE:
            raise UserError("fake-metrics.loras holds a timestamp that is none: write seconds")
    return list(value)


def lied(gauges: Gauges, factors: Mapping[str, Any] | None) -> Gauges:
    """Return the gauges multiplied by the given factors."""
    if not factors:
        return gauges
    shown = {key: getattr(gauges, key) * factor for key, factor in check_factors(factors).items()}
    return gauges._replace(**shown)


def check_factors(factors: Any) -> dict[str, float]:
    """Return the factors of `lie-metrics`.

    Raises UserError when one is not a gauge with a number.
    """
    if not isinstance(factors, Mapping):
        raise UserError('lie-metrics must be a mapping such as {"running": 0.5}')
    for key, factor in factors.items():
        fits = isinstance(factor, int | float) and not isinstance(factor, bool) and 0 <= factor <= SAFE
        if key not in GAUGES.values() or not fits:
            raise UserError(f"lie-metrics.{key} is no factor: map running, waiting or usage to one, zero or more")
    return {str(key): float(factor) for key, factor in factors.items()}
