"""The page as Prometheus' own parser reads it."""

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from pointsman.core.families import number
from pointsman.sim.engine.engine import Seq, Step, Work
from pointsman.sim.pod.metrics import Gauges, Metrics, one_two_five


def make(*, dialect: str = "sim", model: str = "m") -> Metrics:
    return Metrics(model=model, max_model_len=1000, block_size=16, blocks=64, max_loras=2, dialect=dialect)


def samples(metrics: Metrics, *, gauges: Gauges | None = None) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    page = metrics.render(gauges or Gauges(0, 0, 0), counters={}).decode()
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in parse(page) for s in family.samples}


def finished(metrics: Metrics) -> None:
    seq = Seq(Work("a", 30, 5), arrival=1.0, order=(0, 1), chance=None)
    seq.scheduled_at, seq.first_token_at, seq.last_token_at, seq.finished_at = 3.0, 3.5, 4.5, 4.5
    seq.generated = 5
    metrics.step(Step(3.5, (seq,), joined=(seq,)))
    metrics.step(Step(4.5, (seq,), each=4, gap=0.25, finished=(seq,)))
    metrics.finished(seq, reason="stop", max_tokens=7)


def test_a_finished_request_is_in_every_family() -> None:
    metrics = make()
    finished(metrics)
    found = samples(metrics, gauges=Gauges(3, 2, 0.5))
    label = (("model_name", "m"),)
    assert found["vllm:num_requests_running", label] == 3
    assert found["vllm:num_requests_waiting", label] == 2
    assert found["vllm:kv_cache_usage_perc", label] == 0.5
    assert found["vllm:time_to_first_token_seconds_sum", label] == 2.5  # the queue included
    assert found["vllm:request_queue_time_seconds_sum", label] == 2.0
    assert found["vllm:request_prefill_time_seconds_sum", label] == 0.5
    assert found["vllm:request_decode_time_seconds_sum", label] == 1.0
    assert found["vllm:e2e_request_latency_seconds_sum", label] == 3.5
    assert found["vllm:inter_token_latency_seconds_count", label] == 4
    assert found["vllm:time_per_output_token_seconds_sum", label] == 1.0
    assert found["vllm:request_time_per_output_token_seconds_sum", label] == 0.25
    assert found["vllm:request_params_max_tokens_sum", label] == 7
    assert found["vllm:prompt_tokens_total", label] == 30
    assert found["vllm:request_success_total", (("finish_reason", "stop"), *label)] == 1
    assert found["vllm:max_num_generation_tokens_sum", label] == 5
    assert found["vllm:request_max_num_generation_tokens_sum", label] == 5


def test_the_dialect_of_vllm_has_its_labels() -> None:
    metrics = make(dialect="vllm")
    finished(metrics)
    found = samples(metrics)
    label = (("engine", "0"), ("model_name", "m"))
    assert found["vllm:num_requests_running", label] == 0
    config = (("block_size", "16"), ("engine", "0"), ("num_gpu_blocks", "64"))
    assert found["vllm:cache_config_info", config] == 1
    assert found["vllm:request_success_total", (("engine", "0"), ("finished_reason", "stop"), ("model_name", "m"))] == 1


def test_buckets_add_up() -> None:
    metrics = make()
    for value in (0.0005, 0.001, 0.002, 5000.0):
        metrics.first_token.observe(value)
    found = samples(metrics)
    by_bound = {dict(k[1])["le"]: v for k, v in found.items() if k[0] == "vllm:time_to_first_token_seconds_bucket"}
    assert (by_bound["0.001"], by_bound["0.005"], by_bound["2560"], by_bound["+Inf"]) == (2, 3, 3, 4)


def test_one_series_tells_the_adapters() -> None:
    metrics = make()
    for running in ("a", "a,b", ""):
        found = samples(metrics, gauges=Gauges(0, 0, 0, ((running, "c", 12.5),)))
    (labels,) = [dict(labels) for name, labels in found if name == "vllm:lora_requests_info"]
    assert labels == {"max_lora": "2", "running_lora_adapters": "", "waiting_lora_adapters": "c"}


def test_odd_model_names_are_escaped() -> None:
    name = 'a"b\\c\nd'
    assert ("vllm:num_requests_running", (("model_name", name),)) in samples(make(model=name))


def test_an_unchanged_page_is_the_same_bytes() -> None:
    metrics = make()
    first = metrics.render(Gauges(1, 2, 0.5), counters={})
    assert metrics.render(Gauges(1, 2, 0.5), counters={}) == first
    assert metrics.render(Gauges(1, 3, 0.5), counters={}) != first


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (2.0, "2"), (0.25, "0.25"), (1e16, "1e+16"), (12345678, "12345678")]
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_bounds_of_sizes() -> None:
    assert one_two_five(1024) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
