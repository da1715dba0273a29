"""Each engine's page becomes the same figures; what a page lacks stays as it was."""

import pytest

from pointsman.epp.pool.view import CacheConfig, EndpointMetrics, Lora
from pointsman.epp.sources.dialects import DIALECTS, Dialect, PageReading, Reader, engine_of
from pointsman.epp.sources.scan import Spec

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 5.0
vllm:num_requests_waiting_by_reason{reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a, b",waiting_lora_adapters="c"} 1.7e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1.6e+09
vllm:cache_config_info{block_size="16",cache_dtype="auto",num_gpu_blocks="1024"} 1.0
"""
SGLANG = b"""sglang:num_running_reqs{model_name="m"} 3
sglang:num_queue_reqs{model_name="m"} 5
sglang:token_usage{model_name="m"} 0.25
sglang:cache_config_info{page_size="16",num_pages="1024"} 1
"""
TRTLLM = b"""trtllm_num_requests_running 3
trtllm_num_requests_waiting 5
trtllm_kv_cache_utilization 0.25
trtllm_kv_cache_tokens_per_block 16
trtllm_kv_cache_max_blocks 1024
"""
TRITON_TRTLLM = b"""nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 5
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 3
nv_trt_llm_request_metrics{model="m",request_type="max",version="1"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m"} 0.25
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="m"} 16
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m"} 1024
"""
TRITON = b"""nv_inference_pending_request_count{model="m"} 5
nv_inference_exec_count{model="m"} 3
"""
CACHE = CacheConfig(block_tokens=16, blocks=1024)


def read(page: bytes, *, dialect: Dialect, last: EndpointMetrics | None = None) -> PageReading:
    return Reader(dialect).read(page, now=7.0, last=last or EndpointMetrics(), attributes={})


@pytest.mark.parametrize(
    ("engine", "page", "usage", "cache"),
    [
        pytest.param("vllm", VLLM, 0.25, CACHE, id="vllm"),
        pytest.param("sglang", SGLANG, 0.25, CACHE, id="sglang"),
        pytest.param("trtllm-serve", TRTLLM, 0.25, CACHE, id="trtllm-serve"),
        pytest.param("triton-tensorrt-llm", TRITON_TRTLLM, 0.25, CACHE, id="triton-tensorrt-llm"),
        pytest.param("triton", TRITON, 0.0, CacheConfig(), id="triton"),
    ],
)
def test_every_engine_says_the_same(engine: str, page: bytes, usage: float, cache: CacheConfig) -> None:
    reading = read(page, dialect=DIALECTS[engine])
    assert reading.missed == 0
    assert (reading.metrics.waiting, reading.metrics.running, reading.metrics.kv_usage) == (5, 3, usage)
    assert reading.metrics.cache == cache
    assert reading.metrics.updated_at == 7.0


def test_the_newest_lora_line_counts() -> None:
    lora = read(VLLM, dialect=DIALECTS["vllm"]).metrics.lora
    assert lora == Lora(running=frozenset({"a", "b"}), waiting=frozenset({"c"}), max_active=4)


def test_what_is_missing_stays_and_is_counted() -> None:
    last = EndpointMetrics(waiting=9, running=8, kv_usage=0.7, cache=CACHE, updated_at=1.0)
    reading = read(b"vllm:num_requests_running 2\n", dialect=DIALECTS["vllm"], last=last)
    assert reading.missed == 3  # waiting, usage, cache; LoRA info may be absent
    assert (reading.metrics.waiting, reading.metrics.running, reading.metrics.kv_usage) == (9, 2, 0.7)
    assert reading.metrics.cache == CACHE
    assert reading.metrics.updated_at == 7.0


def test_a_page_without_any_figure_does_not_move_the_time() -> None:
    last = EndpointMetrics(waiting=9, updated_at=1.0)
    assert read(b"<html>hello</html>", dialect=DIALECTS["vllm"], last=last).metrics == last


@pytest.mark.parametrize("said", ["NaN", "-1", "+Inf", "1e99"])
def test_an_impossible_count_is_not_believed(said: str) -> None:
    last = EndpointMetrics(waiting=9)
    reading = read(f"vllm:num_requests_waiting {said}\n".encode(), dialect=DIALECTS["vllm"], last=last)
    assert reading.metrics.waiting == 9


@pytest.mark.parametrize(("said", "believed"), [("45", 1.0), ("-0.5", 0.0), ("NaN", 0.3), ("1.0000001", 1.0)])
def test_a_share_stays_within_its_range(said: str, believed: float) -> None:
    last = EndpointMetrics(kv_usage=0.3)
    reading = read(f"vllm:kv_cache_usage_perc {said}\n".encode(), dialect=DIALECTS["vllm"], last=last)
    assert reading.metrics.kv_usage == believed


def test_a_cache_that_is_not_profiled_yet_has_no_blocks() -> None:
    page = b'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1\n'
    assert read(page, dialect=DIALECTS["vllm"]).metrics.cache == CacheConfig(block_tokens=16, blocks=0)


def test_custom_metrics_fill_attributes_and_keep_them() -> None:
    dialect = Dialect(name="mine", custom=(("temperature", Spec("gpu_temp", (("gpu", "1"),))), ("power", Spec("watt"))))
    reader = Reader(dialect)
    page = b'gpu_temp{gpu="0"} 40\ngpu_temp{gpu="1"} 50\nwatt 300\n'
    first = reader.read(page, now=1.0, last=EndpointMetrics(), attributes={})
    assert first.attributes == {"temperature": 50, "power": 300}
    second = reader.read(b"watt 310\n", now=2.0, last=first.metrics, attributes=first.attributes)
    assert second.attributes == {"temperature": 50, "power": 310}
    assert second.missed == 1


@pytest.mark.parametrize(
    ("labels", "engine"),
    [
        pytest.param({}, "vllm", id="none"),
        pytest.param({"llm-d.ai/engine-type": "sglang"}, "sglang", id="label"),
        pytest.param({"inference.networking.k8s.io/engine-type": "triton"}, "triton", id="old label"),
        pytest.param(
            {"llm-d.ai/engine-type": "", "inference.networking.k8s.io/engine-type": "triton"},
            "triton",
            id="empty label",
        ),
    ],
)
def test_the_engine_is_named_by_label(labels: dict[str, str], engine: str) -> None:
    assert engine_of(labels) == engine
