"""vLLM's metrics, counted exactly and written fast.

Gauges are read from the engine at the moment of a scrape, never from an asynchronous copy. Counters and histograms
are plain numbers; each family keeps its finished text until it changes, so a scrape of an idle pod joins prepared
bytes. That is why it does not use `core.families`: pickers read this page twenty times a second. Names and labels are
llm-d-inference-sim's (`dialect` sim) or real vLLM's (`vllm`: label `engine`, `finished_reason`); families that only one
of the two has are always there.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pointsman.core.families import number
from pointsman.sim.engine.engine import Seq, Step

FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
PER_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_MANY = 256  # finished sequences; more than this many never wait to be counted
ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Gauges(NamedTuple):
    """What is true at the moment of a scrape."""

    running: float
    waiting: float
    usage: float
    loras: tuple[tuple[str, str, float], ...] = ()  # adapters that run, that wait, and since when


def one_two_five(limit: int) -> tuple[int, ...]:
    """Return the bounds 1, 2, 5, 10, … up to the limit."""
    bounds = [m * 10**e for e in range(12) for m in (1, 2, 5)]
    return tuple(b for b in bounds if b <= limit)


class Family(Protocol):
    """A block of lines under one name."""

    def render(self) -> bytes: ...


class Histogram:
    """Counts by upper bound."""

    __slots__ = ("_last", "_names", "_text", "bounds", "counts", "stale", "sum")

    def __init__(self, names: Sequence[str], text: str, *, bounds: Sequence[float], labels: str) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.stale = True
        self._last = (0.0, 0)  # a value and its bucket: gaps between tokens mostly repeat
        self._text = b""
        self._names = [_lines(name, text, bounds=bounds, labels=labels) for name in names]

    def observe(self, value: float, *, times: int = 1) -> None:
        """Count a value, or the same value several times."""
        known, bucket = self._last
        if known != value:
            bucket = bisect_left(self.bounds, value)
            self._last = value, bucket
        self.counts[bucket] += times
        self.sum += value * times
        self.stale = True

    def observe_all(self, values: Sequence[float]) -> None:
        """Count many values."""
        counts, bounds = self.counts, self.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.sum += sum(values)
        self.stale = True

    def fill(self, counts: Sequence[int]) -> None:
        """Show these counts per bucket instead; the sum takes each at its upper bound, the last at one more than it."""
        size = len(self.counts)
        self.counts = [*counts[:size], *([0] * (size - len(counts)))]
        edges = [*self.bounds, self.bounds[-1] + 1]
        self.sum = float(sum(edge * count for edge, count in zip(edges, self.counts, strict=True)))
        self.stale = True

    def render(self) -> bytes:
        if self.stale:
            total, values = 0, []
            for count in self.counts:
                total += count
                values.append(str(total))
            values += [number(self.sum), str(total)]
            blocks = ["".join(map("".join, zip(lines, values, strict=True))) for lines in self._names]
            self._text = "".join(f"{block}\n" for block in blocks).encode()
            self.stale = False
        return self._text


def _lines(name: str, text: str, *, bounds: Sequence[float], labels: str) -> list[str]:
    """Return the beginnings of a histogram's lines, each with the end of the line before."""
    edges = [*(number(b) for b in bounds), "+Inf"]
    found = [f'\n{name}_bucket{{{labels},le="{edge}"}} ' for edge in edges]
    found[0] = f"# HELP {name} {text}\n# TYPE {name} histogram{found[0]}"
    return [*found, f"\n{name}_sum{{{labels}}} ", f"\n{name}_count{{{labels}}} "]


class Numbers:
    """A gauge or counter family: one value per label set."""

    __slots__ = ("_head", "_name", "_shown", "_text", "values")

    def __init__(self, name: str, text: str, *, kind: str) -> None:
        self._name = name
        self._head = f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        self.values: dict[str, float] = {}
        self._shown: dict[str, float] | None = None
        self._text = b""

    def add(self, labels: str, value: float = 1) -> None:
        """Count."""
        self.values[labels] = self.values.get(labels, 0) + value

    def render(self) -> bytes:
        if self.values != self._shown:
            self._shown = dict(self.values)
            lines = "".join(f"{self._name}{{{labels}}} {number(v)}\n" for labels, v in self.values.items())
            self._text = (self._head + lines).encode()
        return self._text


def escape(value: str) -> str:
    """Return a label value as the text format wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Metrics:
    """All families of one simulator."""

    def __init__(
        self, *, model: str, max_model_len: int, block_size: int, blocks: int, max_loras: int, dialect: str
    ) -> None:
        engine = 'engine="0",' if dialect == "vllm" else ""
        self.labels = f'{engine}model_name="{escape(model)}"'
        self._engine_labels = f'engine="0",model_name="{escape(model)}"'
        self._reasons: dict[str, str] = {}
        self._ended: list[tuple[int, int, int | None, float, float, float, float, float]] = []  # not counted so far
        self._reason = "finished_reason" if dialect == "vllm" else "finish_reason"
        self._max_loras = max_loras
        self.families: dict[str, Histogram | Numbers] = {}
        self._by_name: dict[str, Histogram] = {}
        self._gauges()
        self._counters()
        self._histograms(max_model_len)
        config = self.families["vllm:cache_config_info"]
        assert isinstance(config, Numbers)
        config.values[f'{engine}block_size="{block_size}",num_gpu_blocks="{blocks}"'] = 1

    def _gauges(self) -> None:
        for name, text in (
            ("num_requests_running", "Number of requests in model execution batches."),
            ("num_requests_waiting", "Number of requests waiting to be processed."),
            ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."),
        ):
            self._numbers(name, text, kind="gauge").values[self.labels] = 0
        self._numbers("lora_requests_info", "Running stats on LoRA requests.", kind="gauge")
        self._numbers("cache_config_info", "Information of the LLMEngine CacheConfig.", kind="gauge")

    def _counters(self) -> None:
        for name, text, labels in (
            ("prefix_cache_hits_total", "Prefix cache hits, in tokens.", self.labels),
            ("prefix_cache_queries_total", "Prefix cache queries, in tokens.", self.labels),
            ("prompt_tokens_total", "Number of prefill tokens processed.", self.labels),
            ("generation_tokens_total", "Number of generation tokens processed.", self.labels),
            ("num_preemptions_total", "Cumulative number of preemptions from the engine.", self._engine_labels),
        ):
            self._numbers(name, text, kind="counter").values[labels] = 0
        text = "Count of successfully processed requests."
        self._successes = self._numbers("request_success_total", text, kind="counter")
        self._prompts, self._outputs = self.numbers("prompt_tokens_total"), self.numbers("generation_tokens_total")

    def _histograms(self, max_model_len: int) -> None:
        sizes = one_two_five(max_model_len)
        make = self._histogram
        self.first_token = make("Time to first token in seconds.", FIRST_TOKEN, "time_to_first_token_seconds")
        names = ("time_per_output_token_seconds", "inter_token_latency_seconds")
        self.gap = make("Time between two tokens in seconds.", PER_TOKEN, *names)
        self.iteration = make("Tokens per engine step.", ITERATION, "iteration_tokens_total")
        self.prompt = make("Number of prefill tokens processed.", sizes, "request_prompt_tokens")
        self.output = make("Number of generation tokens processed.", sizes, "request_generation_tokens")
        names = ("max_num_generation_tokens", "request_max_num_generation_tokens")
        self.most = make("Maximum number of requested generation tokens.", sizes, *names)
        self.limit = make("The max_tokens request parameter.", sizes, "request_params_max_tokens")
        self.choices = make("The n request parameter.", (1, 2, 5, 10, 20), "request_params_n")
        self.mean_gap = make("Mean time per token.", PER_TOKEN, "request_time_per_output_token_seconds")
        self.whole = make("End to end latency in seconds.", REQUEST, "e2e_request_latency_seconds")
        self.queue = make("Time in the WAITING phase.", REQUEST, "request_queue_time_seconds")
        self.inference = make("Time in the RUNNING phase.", REQUEST, "request_inference_time_seconds")
        self.prefill = make("Time in the PREFILL phase.", REQUEST, "request_prefill_time_seconds")
        self.decode = make("Time in the DECODE phase.", REQUEST, "request_decode_time_seconds")

    def _histogram(self, text: str, bounds: Sequence[float], *names: str) -> Histogram:
        full = [f"vllm:{name}" for name in names]
        made = Histogram(full, text, bounds=bounds, labels=self.labels)
        self._by_name |= dict.fromkeys(names, made)
        self.families[full[0]] = made
        return made

    def _numbers(self, name: str, text: str, *, kind: str) -> Numbers:
        family = self.families[f"vllm:{name}"] = Numbers(f"vllm:{name}", text, kind=kind)
        return family

    def histogram(self, name: str) -> Histogram:
        """Return a histogram by its name without prefix."""
        return self._by_name[name]

    def numbers(self, name: str) -> Numbers:
        """Return a gauge or counter by its name without prefix."""
        family = self.families[f"vllm:{name}"]
        assert isinstance(family, Numbers)
        return family

    # what engines report

    def step(self, step: Step) -> None:
        """Count what one step put out: first tokens with their queue, gaps of all others."""
        for seq in step.joined:
            if seq.first_token_at == step.time and seq.preemptions == 0:
                self.first_token.observe(step.time - seq.arrival)
        gaps = len(step.emitted) * step.each - len(step.joined)
        if gaps:
            self.gap.observe(step.gap, times=gaps)
        if step.batch_tokens:
            self.iteration.observe(step.batch_tokens)

    def finished(self, seq: Seq, *, reason: str, max_tokens: int | None) -> None:
        """Count a sequence that came to its end."""
        self._successes.add(self._success(reason))
        self._ended.append(
            (
                seq.work.prompt_tokens,
                seq.generated,
                max_tokens,
                seq.finished_at - seq.arrival,
                seq.scheduled_at - seq.arrival,
                seq.finished_at - seq.scheduled_at,
                seq.first_token_at - seq.scheduled_at,
                seq.last_token_at - seq.first_token_at,
            )
        )
        if len(self._ended) >= _MANY:
            self._count_ended()

    def _count_ended(self) -> None:
        """Sort what ended into the histograms: together, because that costs a fraction of one by one."""
        if not self._ended:
            return
        prompts, outputs, limits, whole, queue, inference, prefill, decode = zip(*self._ended, strict=True)
        self._ended.clear()
        self._prompts.add(self.labels, sum(prompts))
        self._outputs.add(self.labels, sum(outputs))
        self.prompt.observe_all(prompts)
        self.output.observe_all(outputs)
        self.most.observe_all(outputs)
        self.limit.observe_all([limit for limit in limits if limit is not None])
        self.whole.observe_all(whole)
        self.queue.observe_all(queue)
        self.inference.observe_all(inference)
        self.prefill.observe_all(prefill)
        self.decode.observe_all(decode)
        self.mean_gap.observe_all([s / (n - 1) for s, n in zip(decode, outputs, strict=True) if n > 1])

    def _success(self, reason: str) -> str:
        known = self._reasons.get(reason)
        if known is None:
            known = self._reasons[reason] = f'{self._reason}="{escape(reason)}",{self.labels}'
        return known

    def count_success(self, reason: str, count: int) -> None:
        """Show this count of finished requests."""
        self._successes.values[self._success(reason)] = count

    def render(self, gauges: Gauges, *, counters: Mapping[str, float]) -> bytes:
        """Return the page for this moment."""
        self._count_ended()
        self.numbers("num_requests_running").values[self.labels] = gauges.running
        self.numbers("num_requests_waiting").values[self.labels] = gauges.waiting
        self.numbers("kv_cache_usage_perc").values[self.labels] = gauges.usage
        for name, value in counters.items():
            values = self.numbers(name).values
            values[next(iter(values))] = value
        self.numbers("lora_requests_info").values = {
            f'max_lora="{self._max_loras}",running_lora_adapters="{escape(running)}",'
            f'waiting_lora_adapters="{escape(waiting)}"': changed
            for running, waiting, changed in gauges.loras
        }
        return b"".join([family.render() for family in self.families.values()])
