"""Everything that can be set on a simulator, once: the names are the flags, the YAML keys and the admin keys.

The flags of llm-d-inference-sim with its defaults, then ours (listed last). Values are validated here, whichever way
they came; `sim.options` reads flags, environment and YAML. Times are seconds. A frozen value: a change at run time
makes a new one, so that a request that began under the old settings ends under them.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from pointsman.core.errors import UserError
from pointsman.core.numbers import whole
from pointsman.sim.engine.latency import Pace

FAILURES = ("rate_limit", "invalid_api_key", "context_length", "server_error", "invalid_request", "model_not_found")


def flag(
    default: Any,
    text: str,
    *,
    kind: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] = (),
    admin: bool = False,
    env: str = "",
) -> Any:
    """Return a field with what the option readers need to know: `kind` is duration, list or json where not plain."""
    about = {
        "text": text,
        "kind": kind,
        "low": low,
        "high": high,
        "choices": choices,
        "admin": admin,
        "env": env,
    }
    return field(default=default, metadata=about)


def _time(text: str) -> Any:
    return flag(0.0, text, kind="duration", low=0, admin=True)


def _percent(default: int, text: str, *, admin: bool = False) -> Any:
    return flag(default, text, low=0, high=100, admin=admin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One simulator's configuration."""

    port: int = flag(8000, "port; rank or pod i listens on port+i", low=0, high=65535)
    model: str = flag("", "base model name", env="SIM_MODEL")
    served_model_name: tuple[str, ...] = flag((), "names that clients may use; the first is shown", kind="list")
    lora_modules: tuple[Mapping[str, Any], ...] = flag(
        (), 'adapters, each {"name", "path", "base_model_name"}', kind="json-list"
    )
    max_loras: int = flag(1, "adapters that run at the same time", low=1)
    max_cpu_loras: int = flag(0, "adapters kept in memory; at least max-loras", low=0)
    max_model_len: int = flag(1024, "context window: prompt and output tokens", low=1)
    max_num_seqs: int = flag(5, "sequences that run at the same time", low=1)
    max_waiting_queue_length: int = flag(1000, "requests that may wait; more get 429", low=0)
    max_request_body_size_mb: int = flag(4, "larger bodies get 413", low=1, high=512)
    mode: str = flag("random", "what to answer", choices=("echo", "random"))
    seed: int = flag(0, "seed of everything random; unset: a new one per start")
    startup_duration: float = flag(0.0, "how long /health/ready answers 503 after the start", kind="duration", low=0)
    enable_sleep_mode: bool = flag(False, "allow /sleep (needs VLLM_SERVER_DEV_MODE=1 too)")
    enable_request_id_headers: bool = flag(False, "read and return X-Request-Id")
    log_http: bool = flag(False, "log requests and answers")
    enable_logging_iteration_details: bool = flag(
        False, "print a line for each step, as vLLM does; needs --latency-model"
    )
    latency_calculator: str = flag("", "latency model", choices=("", "constant", "per-token", "step"), admin=True)
    time_to_first_token: float = _time("time to the first token")
    time_to_first_token_std_dev: float = _time("its standard deviation, 30 % of it at most")
    inter_token_latency: float = _time("time between tokens")
    inter_token_latency_std_dev: float = _time("its standard deviation, 30 % of it at most")
    prefill_overhead: float = _time("fixed part of the time to the first token")
    prefill_time_per_token: float = _time("its part per prompt token that is not cached")
    prefill_time_std_dev: float = _time("its standard deviation")
    kv_cache_transfer_latency: float = _time("time to the first token after a remote prefill")
    kv_cache_transfer_latency_std_dev: float = _time("its standard deviation, 30 % of it at most")
    kv_cache_transfer_time_per_token: float = _time("the same, per prompt token")
    kv_cache_transfer_time_std_dev: float = _time("its standard deviation")
    time_factor_under_load: float = flag(1.0, "slow-down of a full engine", low=1.0, admin=True)
    time_to_generate_image: float = _time("time for an image (omni)")
    time_to_generate_image_std_dev: float = _time("its standard deviation, 30 % of it at most")
    omni: bool = flag(False, "answer with images too")
    image_emission_rate: int = _percent(0, "share of answers with an image", admin=True)
    mm_encoder_only: bool = flag(False, "serve as an encoder pod")
    max_tool_call_integer_param: int = flag(100, "largest integer in tool arguments")
    min_tool_call_integer_param: int = flag(0, "smallest integer in tool arguments")
    max_tool_call_number_param: float = flag(100.0, "largest number in tool arguments")
    min_tool_call_number_param: float = flag(0.0, "smallest number in tool arguments")
    max_tool_call_array_param_length: int = flag(5, "longest array in tool arguments", low=0)
    min_tool_call_array_param_length: int = flag(1, "shortest array in tool arguments", low=0)
    tool_call_not_required_param_probability: int = _percent(50, "chance of an optional parameter")
    object_tool_call_not_required_field_probability: int = _percent(50, "chance of an optional field")
    tool_call_extra_call_probability: int = _percent(45, "chance of one more call")
    skip_tool_validation: bool = flag(False, "do not check the tools' schemas")
    enable_kvcache: bool = flag(False, "limit and cache KV blocks, and publish events")
    kv_cache_size: int = flag(1024, "KV blocks", low=1)
    block_size: int = flag(16, "tokens per KV block", choices=(8, 16, 32, 64, 128))
    hash_seed: str = flag("", "seed of block hashes", env="PYTHONHASHSEED")
    global_cache_hit_threshold: float = flag(0.0, "refuse prompts that are less cached", low=0, high=1)
    zmq_endpoint: str = flag("tcp://127.0.0.1:5557", "where KV events go; empty: nowhere")
    event_batch_size: int = flag(16, "KV events per message", low=1)
    use_vllm_map_event_format: bool = flag(False, "KV events as maps, not arrays")
    kv_events_replay_endpoint: str = flag("", "where past KV events can be asked for")
    kv_events_replay_queue_size: int = flag(1024, "KV event messages kept for replay", low=1)
    data_parallel_size: int = flag(1, "ranks in this process", low=1, high=8)
    data_parallel_rank: int = flag(-1, "serve this rank only", low=-1, high=7)
    dataset_path: str = flag("", "SQLite file with answers")
    dataset_url: str = flag("", "where to fetch the dataset")
    dataset_in_memory: bool = flag(False, "hold the dataset in memory")
    dataset_table_name: str = flag("llmd", "table of the dataset")
    render_url: str = flag("http://localhost:8082", "accepted; the simple tokeniser needs no service")
    render_timeout: float = flag(30.0, "accepted, as above", kind="duration")
    mm_render_timeout: float = flag(60.0, "accepted, as above", kind="duration")
    force_dummy_tokenizer: bool = flag(False, "accepted; there is no other tokeniser here")
    default_embedding_dimensions: int = flag(384, "length of embeddings", low=1)
    failure_injection_rate: int = _percent(0, "share of requests that fail", admin=True)
    failure_types: tuple[str, ...] = flag((), "kinds of injected failures; empty: any", kind="list", admin=True)
    fake_metrics: Mapping[str, Any] | None = flag(None, "metrics to show instead", kind="json", admin=True)
    fake_metrics_refresh_interval: float = flag(
        0.1, "how often metrics given as functions are computed", kind="duration", low=1e-9
    )
    ssl_certfile: str = flag("", "TLS certificate")
    ssl_keyfile: str = flag("", "TLS key")
    self_signed_certs: bool = flag(False, "TLS with a certificate made at start")
    # ours
    host: str = flag("0.0.0.0", "address to listen on")  # noqa: S104 - a pod serves its network, as vLLM does
    metrics_dialect: str = flag("sim", "labels of the metrics: the Go simulator's or vLLM's", choices=("sim", "vllm"))
    pods: int = flag(1, "independent simulators in this process, on ports port..port+N-1", low=1, high=10000)
    latency_model: str = flag("", "steps of a GPU: a shipped model's name, or a file of `pointsman sim fit`")
    max_num_batched_tokens: int = flag(2048, "tokens that one step computes (step model)", low=1)
    async_scheduling: bool = flag(True, "put a step together while the one before runs (step model)")
    drain_timeout: float = flag(30.0, "how long open requests may take after SIGTERM", kind="duration", low=0)
    hang_rate: int = _percent(0, "share of requests that never get an answer", admin=True)
    abort_rate: int = _percent(0, "share of answers whose connection breaks on the way", admin=True)
    slow_start_factor: float = flag(1.0, "slow-down right after the start", low=1.0, admin=True)
    slow_start_duration: float = _time("how long the slow start lasts, fading")
    freeze_metrics: bool = flag(False, "show the metrics of the moment this was set", admin=True)
    lie_metrics: Mapping[str, Any] | None = flag(
        None, 'factors on shown gauges, such as {"running": 0.5}', kind="json", admin=True
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which the base model is served; the first is shown in answers."""
        return self.served_model_name or (self.model,)

    @property
    def in_steps(self) -> bool:
        """Whether all sequences share the steps of a GPU."""
        return self.latency_calculator == "step" or bool(self.latency_model)

    def pace(self) -> Pace:
        """Return the latency settings of the Go models."""
        shared = {f.name: getattr(self, f.name) for f in fields(Pace) if f.name != "calculator"}
        calculator = "" if self.latency_calculator == "step" else self.latency_calculator
        return Pace(calculator=calculator, **shared)


OPTIONS: dict[str, Field[Any]] = {f.name.replace("_", "-"): f for f in fields(Settings)}
"""Every option by the name that people write."""


def check(settings: Settings) -> Settings:
    """Return the settings if they make sense together.

    Raises UserError naming the flag and the fix.
    """
    for name, option in OPTIONS.items():
        _check_range(name, getattr(settings, option.name), option)
    for rule in RULES:
        complaint = rule(settings)
        if complaint:
            raise UserError(complaint)
    return settings


def _check_range(name: str, value: Any, option: Field[Any]) -> None:
    low, high, choices = (option.metadata[key] for key in ("low", "high", "choices"))
    if low is not None and value < low:
        raise UserError(f"--{name} is {value}: it must be at least {low}")
    if high is not None and value > high:
        raise UserError(f"--{name} is {value}: it must be at most {high}")
    if choices and value not in choices:
        raise UserError(f"--{name} is {value!r}: choose from {', '.join(str(c) or '(empty)' for c in choices)}")


def _model(s: Settings) -> str | None:
    return None if s.model else "--model is missing: name the base model, here or in SIM_MODEL"


def _deviations(s: Settings) -> str | None:
    for name in ("time-to-first-token", "inter-token-latency", "kv-cache-transfer-latency", "time-to-generate-image"):
        mean = getattr(s, OPTIONS[name].name)
        if getattr(s, f"{OPTIONS[name].name}_std_dev") > 0.3 * mean:
            return f"--{name}-std-dev is too large: it must be at most 30 % of --{name}"
    return None


def _loras(s: Settings) -> str | None:
    if s.max_cpu_loras and s.max_cpu_loras < s.max_loras:
        return f"--max-cpu-loras is {s.max_cpu_loras}: it must be at least --max-loras, {s.max_loras}"
    for module in s.lora_modules:
        if not isinstance(module, Mapping) or not isinstance(module.get("name"), str) or not module["name"]:
            return f"--lora-modules holds {module!r}: each module is a JSON object with a name"
        base = module.get("base_model_name")
        if base and base not in {s.model, *s.names}:
            return f"--lora-modules names base_model_name {base!r}: it must be the model, {s.model!r}"
    return None


def _failures(s: Settings) -> str | None:
    for name in s.failure_types:
        if name not in FAILURES:
            return f"--failure-types holds {name!r}: choose from {', '.join(FAILURES)}"
    return None


def _tls(s: Settings) -> str | None:
    if bool(s.ssl_certfile) != bool(s.ssl_keyfile):
        return "--ssl-certfile and --ssl-keyfile go together: give both or neither"
    if s.self_signed_certs and s.ssl_certfile:
        return "--self-signed-certs and --ssl-certfile exclude each other: choose one"
    return None


def _dataset(s: Settings) -> str | None:
    if s.dataset_url and not s.dataset_path:
        return "--dataset-url needs --dataset-path, the file to fetch it to"
    if s.dataset_path and s.mode == "echo":
        return "--dataset-path has no use with --mode echo: choose --mode random"
    return None


def _replay(s: Settings) -> str | None:
    ends = [endpoint.rpartition(":")[2] for endpoint in (s.zmq_endpoint, s.kv_events_replay_endpoint)]
    events, replay = (whole(end, most=65_535) for end in ends)
    if events is None or replay is None:
        return None
    if replay < events + s.data_parallel_size and events < replay + s.data_parallel_size * s.pods:
        return (
            f"--kv-events-replay-endpoint {s.kv_events_replay_endpoint} and --zmq-endpoint {s.zmq_endpoint} overlap: "
            "every rank has a port of its own, counted from the one given"
        )
    return None


def _steps(s: Settings) -> str | None:
    if s.latency_model and s.latency_calculator not in {"", "step"}:
        return f"--latency-model and --latency-calculator {s.latency_calculator} exclude each other: choose one"
    return None


def _budget(s: Settings) -> str | None:
    if s.in_steps and s.max_num_batched_tokens < s.max_num_seqs:
        return f"--max-num-batched-tokens must be at least --max-num-seqs, {s.max_num_seqs}"
    return None


def _ranges(s: Settings) -> str | None:
    for low, high in (
        ("min-tool-call-integer-param", "max-tool-call-integer-param"),
        ("min-tool-call-number-param", "max-tool-call-number-param"),
        ("min-tool-call-array-param-length", "max-tool-call-array-param-length"),
    ):
        if getattr(s, OPTIONS[low].name) > getattr(s, OPTIONS[high].name):
            return f"--{low} must be at most --{high}"
    ports = s.port + max(s.pods, s.data_parallel_size) - 1
    return f"--port {s.port} leaves no room: the last port would be {ports}" if ports > 65535 else None


RULES = (
    _model,  # nothing can be answered without a name
    _deviations,  # a wider spread would be cut off so often that the mean no longer holds
    _loras,  # an adapter of another base model could never be served
    _failures,  # a misspelt failure would silently never happen
    _tls,  # half a certificate serves nobody
    _dataset,  # an answer has one source
    _replay,  # the second to bind would fail, with a message that names neither
    _steps,  # a model of steps has no use for another calculator
    _budget,  # every decoding sequence needs one token of each step
    _ranges,  # empty ranges have nothing to draw from
)
