"""Changes while serving: latency, failures, faults, fake and lying metrics."""

import asyncio
import time
from typing import Any

import httpx
import pytest
from tests.parts.sim.api.test_routes import CHAT, metric
from tests.parts.sim.conftest import Connect


async def change(client: httpx.AsyncClient, **values: Any) -> httpx.Response:
    return await client.post("/admin/config", json={key.replace("_", "-"): v for key, v in values.items()})


async def test_a_change_takes_effect_and_shows(connect: Connect) -> None:
    client = await connect()
    shown = (await client.get("/admin/config")).json()
    assert (shown["time-to-first-token"], shown["mode"]) == ("0s", "echo")
    assert (await change(client, time_to_first_token="150ms")).json()["time-to-first-token"] == "150ms"
    began = time.monotonic()
    await client.post("/v1/chat/completions", json=CHAT)
    assert time.monotonic() - began >= 0.15


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"time-to-first-token": "fast"}, id="bad value"),
        pytest.param({"inter-token-latency": "1ms", "model": "x"}, id="one closed key"),
        pytest.param({"inter-token-latency": "10ms", "inter-token-latency-std-dev": "9ms"}, id="rule broken"),
        pytest.param({"latency-calculator": "step"}, id="another kind of engine"),
        pytest.param({"failure-types": ["flood"]}, id="unknown failure"),
        pytest.param({"lie-metrics": {"speed": 2}}, id="unknown gauge"),
        pytest.param({"fake-metrics": {"running-requests": "ramp:1"}}, id="bad wave"),
    ],
)
async def test_a_bad_change_changes_nothing(connect: Connect, values: dict[str, Any]) -> None:
    client = await connect()
    before = (await client.get("/admin/config")).json()
    answer = await client.post("/admin/config", json=values)
    assert answer.status_code == 400 and answer.json()["error"]["message"]
    assert (await client.get("/admin/config")).json() == before


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("rate_limit", 429), ("invalid_api_key", 401), ("context_length", 400),
        ("server_error", 503), ("invalid_request", 400), ("model_not_found", 404),
    ],
)  # fmt: skip
async def test_failures_are_injected_at_the_rate_and_of_the_type(connect: Connect, kind: str, status: int) -> None:
    client = await connect(failure_injection_rate=100, failure_types=(kind,))
    assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == status
    await change(client, failure_injection_rate=30)
    found = [(await client.post("/v1/chat/completions", json=CHAT)).status_code for _ in range(200)]
    assert 30 <= found.count(status) <= 90 and found.count(200) == 200 - found.count(status)


async def test_a_hanging_request_ends_when_its_client_leaves(connect: Connect) -> None:
    client = await connect(hang_rate=100)
    with pytest.raises(httpx.ReadTimeout):
        await client.post("/v1/chat/completions", json=CHAT, timeout=0.2)
    await change(client, hang_rate=0)
    assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    assert (await client.get("/load")).json() == {"server_load": 0}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_can_break_on_the_way(connect: Connect, stream: bool) -> None:
    client = await connect(abort_rate=100, inter_token_latency=0.002)
    body = {"model": "m", "messages": [{"role": "user", "content": "a " * 30}], "stream": stream}
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        await client.post("/v1/chat/completions", json=body)
    await asyncio.sleep(0.05)
    assert await metric(client, "vllm:num_requests_running") == 0


async def test_a_slow_start_fades(connect: Connect) -> None:
    client = await connect(time_to_first_token=0.02, slow_start_factor=10.0, slow_start_duration=60.0)
    await client.post("/v1/chat/completions", json=CHAT)
    first = await metric(client, "vllm:time_to_first_token_seconds_sum")
    assert 0.1 < first < 0.2
    await change(client, slow_start_duration="1us")  # long over
    await client.post("/v1/chat/completions", json=CHAT)
    assert await metric(client, "vllm:time_to_first_token_seconds_sum") - first == pytest.approx(0.02)


async def test_metrics_freeze_and_thaw(connect: Connect) -> None:
    client = await connect()
    await change(client, freeze_metrics=True)
    await client.post("/v1/chat/completions", json=CHAT)
    assert await metric(client, "vllm:prompt_tokens_total") == 0
    await change(client, freeze_metrics=False)
    assert await metric(client, "vllm:prompt_tokens_total") > 0


async def test_gauges_lie_by_a_factor(connect: Connect) -> None:
    client = await connect(hang_rate=0, inter_token_latency=5.0, lie_metrics={"running": 3})
    async with client.stream("POST", "/v1/completions", json={"prompt": "a b", "stream": True}):
        assert await metric(client, "vllm:num_requests_running") == 3


async def test_fake_metrics_replace_what_is_shown(connect: Connect) -> None:
    client = await connect(
        fake_metrics={
            "running-requests": 7,
            "waiting-requests": "squarewave:4:4:1s",
            "kv-cache-usage": 0.25,
            "ttft-buckets-values": [1, 2],
            "request-success-total": {"stop": 20},
            "total-prompt-tokens": 500,
            "request-generation-tokens": [2, 0, 3],
            "prefix-cache-hits": 3,
            "prefix-cache-queries": 9,
            "loras": [
                {"running": "a,b", "waiting": "c", "timestamp": 5},
                {"running": "d", "waiting": "", "timestamp": 4},
            ],
        }
    )
    await client.post("/v1/completions", json={"prompt": "real traffic"})
    page = (await client.get("/metrics")).text
    assert 'vllm:num_requests_running{model_name="m"} 7\n' in page
    assert 'vllm:num_requests_waiting{model_name="m"} 4\n' in page
    assert 'vllm:kv_cache_usage_perc{model_name="m"} 0.25\n' in page
    assert 'vllm:time_to_first_token_seconds_bucket{model_name="m",le="0.005"} 3\n' in page
    assert 'vllm:request_success_total{finish_reason="stop",model_name="m"} 20\n' in page
    assert 'vllm:prompt_tokens_total{model_name="m"} 500\n' in page
    assert 'vllm:generation_tokens_total{model_name="m"} 17\n' in page  # 2 of 1 token, 3 of up to 5
    assert 'vllm:request_generation_tokens_count{model_name="m"} 5\n' in page
    assert 'vllm:e2e_request_latency_seconds_count{model_name="m"} 0\n' in page  # what is not given is not real either
    assert page.count("vllm:request_success_total{") == 1
    assert 'running_lora_adapters="a,b",waiting_lora_adapters="c"} 5\n' in page
    assert 'running_lora_adapters="d",waiting_lora_adapters=""} 4\n' in page
    await change(client, fake_metrics={"running-requests": "ramp:2.5:2.5:1s"})
    assert await metric(client, "vllm:num_requests_running") == 2
    assert (await client.post("/fake_metrics", json={"running-requests": 1})).status_code == 204
    assert await metric(client, "vllm:num_requests_running") == 1
    assert await metric(client, "vllm:num_requests_waiting") == 4  # what was not named stays
    changed = await client.post("/admin/config", json={"fake-metrics": {"kv-cache-usage": 0.5}})
    assert changed.json()["fake-metrics"]["waiting-requests"] == "squarewave:4:4:1s"
    assert await metric(client, "vllm:kv_cache_usage_perc") == 0.5
    await client.post("/admin/config", json={"fake-metrics": None})
    assert await metric(client, "vllm:num_requests_waiting") == 0
