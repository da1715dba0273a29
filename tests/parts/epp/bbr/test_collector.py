"""Pools' metrics on loopback: what is well is read, whatever is ill beside it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.parts.epp.service import Service, serving
from tests.ports import fresh_port
from tests.waiting import until

from pointsman.core.values import check
from pointsman.epp.bbr.collector import Collector, CollectorParameters
from pointsman.epp.bbr.models import Models, PoolLoad
from pointsman.epp.bbr.server import BbrServer
from pointsman.epp.bbr.settings import BbrSettings

PAGE = b"vllm:kv_cache_usage_perc 0.5\nvllm:num_requests_waiting 2\nvllm:num_requests_running 3\n"
KNOWN = PoolLoad(kv_usage=0.5, cpu_usage=0.0, waiting=2, running=3, at=7.0)
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- {type: router-metrics-collector, parameters: {interval: 50ms, maxConcurrent: 8}}
- {type: session-affinity}
- {type: model-config-datasource, parameters: {modelsPath: MODELS}}
profiles: [{name: default}]
datalayer:
  collectors: [{pluginRef: router-metrics-collector}]
  datasources: [{pluginRef: model-config-datasource}]
"""


def listed(*urls: str) -> str:
    return json.dumps({"models": [{"name": f"m{at}", "metricsURL": url} for at, url in enumerate(urls)]})


@asynccontextmanager
async def collecting(*, timeout: str = "30s") -> AsyncIterator[tuple[Collector, Models, Service]]:
    async with serving(lambda _question: PAGE) as ill, serving(lambda _question: PAGE) as well:
        models = Models()
        models.take(listed(*(f"http://127.0.0.1:{each.port}/m?a=b" for each in (ill, well)), ""), name="f")
        given = check(CollectorParameters, {"timeout": timeout, "maxConcurrent": 8}, path="").value
        assert given is not None
        yield Collector(given, models=models, clock=lambda: 7.0), models, ill


async def test_every_model_with_a_page_is_read() -> None:
    async with collecting() as (collector, models, pool):
        await collector.read_all()
        assert [model.load for model in models.candidates] == [KNOWN, KNOWN, None]
        assert pool.heads[0].startswith(b"GET /m?a=b HTTP/1.1\r\n")
        assert {name: sum(cell.counts) for name, cell in collector.took.items()} == {"m0": 1, "m1": 1}
        assert not collector.failures


@pytest.mark.parametrize(
    ("habit", "reason"),
    [
        ("hang", "timeout"),
        ("dribble", "timeout"),
        ("500", "http_status"),
        ("nonsense", "parse"),
        ("hang up", "dial"),
        ("not HTTP", "dial"),
        ("oversize", "dial"),
    ],
)
async def test_an_ill_pool_keeps_what_was_known_of_it_and_costs_the_others_nothing(habit: str, reason: str) -> None:
    async with collecting(timeout="300ms" if reason == "timeout" else "30s") as (collector, models, ill):
        ill.habit = habit
        await collector.read_all()
        first, well, _ = models.candidates
        assert (first.load, well.load) == (None, KNOWN)
        ill.habit = ""
        await collector.read_all()
        assert first.load == KNOWN
        ill.habit = habit
        await collector.read_all()
        assert first.load == KNOWN, "what was known stays"
        assert collector.failures == {("m0", reason): 2}
        assert sum(collector.took["m0"].counts) == 3


async def test_what_belongs_to_a_model_goes_with_it() -> None:
    async with collecting() as (collector, models, ill):
        ill.habit = "500"
        await collector.read_all()
        models.take("{}", name="f")
        await collector.read_all()
        assert (collector.took, collector.failures) == ({}, {})


async def test_a_router_shows_what_it_read(tmp_path: Path) -> None:
    async with serving(lambda _question: PAGE) as pool:
        (tmp_path / "models.json").write_text(listed(f"http://127.0.0.1:{pool.port}/", "http://127.0.0.1:1/"))
        text = CONFIG.replace("MODELS", str(tmp_path / "models.json"))
        settings = BbrSettings(
            config_text=text,
            host="127.0.0.1",
            secure_serving=False,
            drain_timeout=0.1,
            grpc_port=fresh_port(),
            grpc_health_port=fresh_port(),
            metrics_port=fresh_port(),
        )
        router = BbrServer(settings)
        collector = router.collector
        assert collector is not None
        async with asyncio.TaskGroup() as tasks, httpx.AsyncClient(trust_env=False) as http:
            tasks.create_task(router.run())
            await until(lambda: router.metrics_port)
            await until(lambda: router.program.models.candidates[0].load and collector.failures)
            page = (await http.get(f"http://127.0.0.1:{router.metrics_port}/metrics")).text
            router.stop()
    assert 'ipp_kv_cache_utilization_ratio{model="m0"} 0.5\n' in page
    assert 'ipp_kv_cache_queue_depth{model="m0"} 2\n' in page
    assert 'ipp_kv_cache_scrape_failures_total{model="m1",reason="dial"}' in page
    assert 'ipp_kv_cache_scrape_duration_seconds_count{model="m0"}' in page
    assert "ipp_session_affinity_cache_size 0\n" in page
