"""The picker's metrics under llm-d's names: `llm_d_epp_*`, and every older name that dashboards may still ask for.

Owns which families there are. Who measures calls a small method; who reads gets text made on the spot. What belongs to
a request goes through its `RequestCells`, which are looked up once per request. Distinct models and fairness ids are
limited: beyond the limit they share the value `other`.

Families of parts that are not there yet (flow control, precise prefix index) are not shown: a metric that is always
zero is a lie. What the pool and the scrapers know is in `epp.metrics.pool`.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from pointsman.core.families import Cell, Counter, Family, Gauge, Histogram, Labels, Limited, Name, names

_SECONDS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 120, 180,
    240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
)  # fmt: skip
_SHORT = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_FIRST_TOKEN = _SECONDS[:24]  # up to two minutes; its old name has all
_STREAMED = (
    0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2, 3,
    4.5, 6, 12, 18, 24, 30, 36, 48, 60, 90, 120, 180, 270, 360,
)  # fmt: skip
_STREAMED_TODAY = (*_STREAMED[:18], 2)
_GAPS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2)
_PER_TOKEN = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_BYTES = tuple(2**at for at in range(6, 31))
_RESPONSE_BYTES = (1, *(2**at for at in range(3, 15)), 32778, 65536)  # 32778 is llm-d's, and old data has it
_TOKENS = (1, *(2**at for at in range(3, 15)), 32778, *(2**at for at in range(16, 21)))
_OUTPUT_TOKENS = (1, *(2**at for at in range(3, 14)))
_RATIO = tuple(at / 10 for at in range(11))
_HIT_BYTES = (0, *(2**at for at in range(4, 17)))

_REQUEST: Labels = ("model_name", "target_model_name", "fairness_id", "priority")
_MODELS: Labels = ("model_name", "target_model_name")
_INDEX: Labels = ("plugin_name", "plugin_type")
_ATTEMPT: Labels = ("status", "target_model_name", "endpoint_name", "namespace", "port")
_OLD_ATTEMPT: Labels = ("status", "target_model_name", "pod_name=endpoint_name", "namespace", "port")
_MOST_VALUES = 1000
_MOST_ROWS = 4096
_LINES_AT_ONCE = 1000


def _request(new: str, old: str, *, labels: Labels = _REQUEST, old_labels: Labels = _MODELS) -> tuple[Name, ...]:
    """Return the names of a request family: today's, and the one before."""
    return names(f"llm_d_epp_{new}", labels, (f"inference_objective_{old}", old_labels))


def _scheduler(name: str, labels: Labels = (), *, old_labels: Labels | None = None) -> tuple[Name, ...]:
    """Return the names of a scheduler family: today's, and the one before."""
    return names(
        f"llm_d_epp_{name}", labels, (f"inference_extension_{name}", labels if old_labels is None else old_labels)
    )


class PickerMetrics:
    """Every family, and the methods that fill them."""

    def __init__(self) -> None:
        self._models = Limited(_MOST_VALUES)
        self._fairness = Limited(_MOST_VALUES)
        self._rows: dict[tuple[str, str, str, int], RequestCells] = {}  # by what a request says: a shortcut
        self._shown: dict[Labels, RequestCells] = {}  # by what is shown of it
        self._picks: dict[tuple[str, tuple[str, str, int]], Labels] = {}  # labels of a pick: a shortcut
        self._more: list[Family] = []
        self.total = Gauge(
            _request("request_total", "request_total", old_labels=(*_MODELS, "priority")),
            "Requests by model.",
            read=lambda: {key: row.total for key, row in self._shown.items() if row.total},
            kind="counter",
        )
        self.errors = Counter(
            _request(
                "request_error_total",
                "request_error_total",
                labels=(*_REQUEST, "error_code"),
                old_labels=(*_MODELS, "error_code"),
            ),
            "Requests that ended in an error, by its code.",
        )
        self.running = Gauge(
            _request("request_running", "running_requests", old_labels=("model_name",)),
            "Requests under way.",
            read=lambda: {key: row.running for key, row in self._shown.items() if row.total},
        )
        self._request_histograms()
        self._scheduler_families()

    def _request_histograms(self) -> None:
        def family(new: str, old: str, text: str, bounds: tuple[float, ...]) -> Histogram:
            return Histogram(_request(new, old), text, bounds=bounds)

        self.duration = family(
            "request_duration_seconds", "request_duration_seconds", "Seconds from a request to its end.", _SECONDS
        )
        self.request_bytes = family("request_size_bytes", "request_sizes", "Bytes of request bodies.", _BYTES)
        self.response_bytes = family(
            "response_size_bytes", "response_sizes", "Bytes of response bodies.", _RESPONSE_BYTES
        )
        self.input_tokens = family("request_input_tokens", "input_tokens", "Prompt tokens of requests.", _TOKENS)
        self.output_tokens = family("request_output_tokens", "output_tokens", "Tokens generated.", _OUTPUT_TOKENS)
        self.cached_tokens = family(
            "request_cached_tokens", "prompt_cached_tokens", "Prompt tokens that the cache had.", _TOKENS
        )
        self.per_token = family(
            "request_ntpot_seconds",
            "normalized_time_per_output_token_seconds",
            "Seconds of a request per output token.",
            _PER_TOKEN,
        )
        self.streaming_per_token = Histogram(
            _request("request_streaming_tpot_seconds", "request_tpot_seconds"),
            "Seconds per output token after the first.",
            bounds=_STREAMED,
            shown=_STREAMED_TODAY,
        )
        self.first_token = Histogram(
            _request("request_ttft_seconds", "request_ttft_seconds", labels=(*_REQUEST, "streaming")),
            "Seconds to the first byte of the response body.",
            bounds=_SECONDS,
            shown=_FIRST_TOKEN,
        )
        self.token_gap = Histogram(
            names("llm_d_epp_request_streaming_itl_seconds", _REQUEST),
            "Seconds between pieces of a streamed response.",
            bounds=_GAPS,
        )

    def _scheduler_families(self) -> None:
        self.scheduling = Histogram(_scheduler("scheduler_e2e_duration_seconds"), "Seconds of a pick.", bounds=_SHORT)
        self._picks_took = self.scheduling.cell(())
        self.attempts = Counter(
            _scheduler("scheduler_attempts_total", _ATTEMPT, old_labels=_OLD_ATTEMPT), "Picks by outcome and endpoint."
        )
        self.rewrites = Counter(
            _scheduler("model_rewrite_decisions_total", ("model_rewrite_name", "model_name", "target_model")),
            "Model names that were rewritten.",
        )
        self.index_ratio = Histogram(
            _scheduler("prefix_indexer_hit_ratio", _INDEX, old_labels=()),
            "Share of a prompt that was found.",
            bounds=_RATIO,
        )
        self.index_bytes = Histogram(
            _scheduler("prefix_indexer_hit_bytes", _INDEX, old_labels=()),
            "Bytes of a prompt that were found.",
            bounds=_HIT_BYTES,
        )
        self.info = Counter(_scheduler("info", ("commit", "build_ref")), "The running build.", kind="gauge")

    # -- what others call ---------------------------------------------------------------------------------------

    def row(self, *, model: str, target: str, fairness: str = "default-flow", priority: int = 0) -> "RequestCells":
        """Return what is counted for such requests."""
        key = (model, target, fairness, priority)
        return self._rows.get(key) or self._new_row(key)

    def _new_row(self, key: tuple[str, str, str, int]) -> "RequestCells":
        model, target, fairness, priority = key
        shown: Labels = (self._models(model), self._models(target), self._fairness(fairness), str(priority))
        if shown not in self._shown and len(self._shown) >= _MOST_ROWS:
            shown = ("other",) * len(_REQUEST)
        row = self._shown.get(shown)
        if row is None:
            row = self._shown[shown] = RequestCells(self, shown)
        if "other" not in shown and len(self._rows) < _MOST_ROWS:
            self._rows[key] = row
        return row

    def exempt_models(self, models: Iterable[str]) -> None:
        """Always show these names: an operator wrote them down."""
        self._models.exempt = frozenset(models)
        self._rows.clear()
        self._picks.clear()

    def scheduled(self, *, seconds: float, target_model: str, endpoint: tuple[str, str, int]) -> None:
        """Count a pick: its endpoint is name, namespace, port."""
        self._picks_took.observe(seconds)
        key = self._picks.get((target_model, endpoint))
        if key is None:
            name, namespace, port = endpoint
            key = ("success", self._models(target_model), name, namespace, str(port))
            if len(self._picks) < _MOST_ROWS and "other" not in key:
                self._picks[target_model, endpoint] = key
        self.attempts.add(key)

    def not_scheduled(self, *, seconds: float, target_model: str) -> None:
        """Count a request for which nobody was found."""
        self._picks_took.observe(seconds)
        self.attempts.add(("failure", self._models(target_model), "", "", ""))

    def rewrote(self, *, rewrite: str, model: str, target: str) -> None:
        """Count a model name that a rewrite rule changed."""
        self.rewrites.add((rewrite, self._models(model), self._models(target)))

    def lookups(self, name: str, *, kind: str) -> tuple[Cell, Cell]:
        """Return what counts the looks into a prefix index: the share of a prompt that was found, and its bytes."""
        return self.index_ratio.cell((name, kind)), self.index_bytes.cell((name, kind))

    def add(self, *families: Family) -> None:
        """Show more families, kept by someone else."""
        self._more.extend(families)

    def render(self) -> bytes:
        """Return the page."""
        return "".join(self._lines()).encode("utf-8", "replace")

    async def render_aside(self) -> bytes:
        """Return the page, letting requests through while it is written: with many models it is long."""
        lines: list[str] = []
        for line in self._lines():
            lines.append(line)
            if len(lines) % _LINES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return "".join(lines).encode("utf-8", "replace")

    def _lines(self) -> Iterable[str]:
        ours = [family for family in vars(self).values() if isinstance(family, Counter | Gauge | Histogram)]
        for family in (*ours, *self._more):
            yield from family.render()


class CountsRequests(Protocol):
    """Counts what happens to requests."""

    def began(self) -> None:
        """Count a request."""

    def sized(self, size: int) -> None:
        """Count the bytes of its body."""

    def failed(self, code: str) -> None:
        """Count an error."""

    def first_byte(self, *, seconds: float, streaming: bool) -> None:
        """Count the time to the first byte of the response body."""

    def gap(self, seconds: float) -> None:
        """Count the time between two pieces of a stream."""

    def ended(self, *, seconds: float, size: int) -> None:
        """Count the end of a request that began."""

    def used(self, *, prompt: int, output: int, cached: int | None = None) -> None:
        """Count the tokens that the model server says it used."""

    def paced(self, *, seconds: float, output: int, first: float | None = None) -> None:
        """Count the time per output token."""


class _NotCounted:
    """Counts nothing: such as a request without a body, which asks for no model."""

    def began(self) -> None: ...
    def sized(self, size: int) -> None: ...
    def failed(self, code: str) -> None: ...
    def first_byte(self, *, seconds: float, streaming: bool) -> None: ...
    def gap(self, seconds: float) -> None: ...
    def ended(self, *, seconds: float, size: int) -> None: ...
    def used(self, *, prompt: int, output: int, cached: int | None = None) -> None: ...
    def paced(self, *, seconds: float, output: int, first: float | None = None) -> None: ...


NOT_COUNTED: CountsRequests = _NotCounted()


class RequestCells:
    """What is counted for a model, target model, fairness id and priority; it holds its cells, so writing is cheap."""

    __slots__ = (
        "_cached", "_duration", "_first", "_gap", "_input", "_key", "_metrics", "_output", "_pace", "_request",
        "_response", "_stream_pace", "running", "total",
    )  # fmt: skip

    def __init__(self, metrics: PickerMetrics, key: Labels) -> None:
        self._metrics = metrics
        self._key = key
        self.total = 0
        self.running = 0
        self._request = metrics.request_bytes.cell(key)
        self._response = metrics.response_bytes.cell(key)
        self._duration = metrics.duration.cell(key)
        self._first = (metrics.first_token.cell((*key, "false")), metrics.first_token.cell((*key, "true")))
        self._gap = metrics.token_gap.cell(key)
        self._input = metrics.input_tokens.cell(key)
        self._output = metrics.output_tokens.cell(key)
        self._cached = metrics.cached_tokens.cell(key)
        self._pace = metrics.per_token.cell(key)
        self._stream_pace = metrics.streaming_per_token.cell(key)

    def began(self) -> None:
        """Count a request."""
        self.total += 1
        self.running += 1

    def sized(self, size: int) -> None:
        """Count the bytes of its body."""
        self._request.observe(size)

    def failed(self, code: str) -> None:
        """Count an error."""
        self._metrics.errors.add((*self._key, code))

    def first_byte(self, *, seconds: float, streaming: bool) -> None:
        """Count the time to the first byte of the response body."""
        self._first[streaming].observe(seconds)

    def gap(self, seconds: float) -> None:
        """Count the time between two pieces of a stream."""
        self._gap.observe(seconds)

    def ended(self, *, seconds: float, size: int) -> None:
        """Count the end of a request that began, with so many bytes of response."""
        self.running -= 1
        self._duration.observe(seconds)
        self._response.observe(size)

    def used(self, *, prompt: int, output: int, cached: int | None = None) -> None:
        """Count the tokens that the model server says it used."""
        self._input.observe(prompt)
        self._output.observe(output)
        if cached is not None:
            self._cached.observe(cached)

    def paced(self, *, seconds: float, output: int, first: float | None = None) -> None:
        """Count the time per output token of a whole request; `first` is the first one's time when it was streamed."""
        if output > 0:
            self._pace.observe(seconds / output)
        if first is not None and output > 1:
            self._stream_pace.observe((seconds - first) / (output - 1))
