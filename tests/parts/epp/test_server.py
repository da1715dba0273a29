"""A whole picker in this process: what its ports answer from the first moment to the last."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.waiting import until

from pointsman.core.certificates import self_signed
from pointsman.core.errors import UserError, find_ours
from pointsman.epp.certificates import metrics_context
from pointsman.epp.server import PickerServer
from pointsman.epp.settings import Settings
from pointsman.epp.sources.pool import Cluster

CONFIG = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- {type: queue-scorer}\n"


@pytest.fixture
def endpoints(tmp_path: Path) -> Path:
    path = tmp_path / "endpoints.yaml"
    path.write_text("endpoints: [{name: a, address: 127.0.0.1, port: 1}]\nobjectives: [{name: batch, priority: -1}]\n")
    return path


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    certificate, key = self_signed()
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    return tmp_path


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[PickerServer]:
    settings |= {"grpc_port": 0, "grpc_health_port": 0, "metrics_port": 0, "host": "127.0.0.1"}
    picker = PickerServer(Settings(secure_serving=False, drain_timeout=0.2, **settings), rng=random.Random(1))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(picker.run())
        await until(lambda: picker.parts.health.serving or task.done())
        yield picker
        picker.stop()


def replace(path: Path, text: str) -> None:
    path.write_text(text)


async def get(picker: PickerServer, path: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.get(f"http://127.0.0.1:{picker.metrics_port}{path}")


async def test_what_people_and_prometheus_read(endpoints: Path) -> None:
    async with running(endpoints_file=endpoints) as picker:
        assert (await get(picker, "/healthz")).text == "ok\n"
        (row,) = (await get(picker, "/debug/endpoints")).json()["endpoints"]
        assert (row["name"], row["address"], row["standing"], row["scraped"]) == ("a", "127.0.0.1:1", "in", None)
        page = (await get(picker, "/metrics")).text
        assert 'inference_pool_ready_pods{name="file"} 1\n' in page
        assert (await get(picker, "/nothing")).status_code == 404
        assert picker.parts.objectives.priority("batch") == -1


async def test_draining_is_said_at_once_and_why(endpoints: Path) -> None:
    async with running(endpoints_file=endpoints) as picker:
        picker.stop()
        await until(lambda: not picker.parts.health.serving)
        assert picker.parts.health.obstacles == ("it is draining",)


async def test_a_pool_that_is_gone_means_not_ready(endpoints: Path) -> None:
    async with running(endpoints_file=endpoints) as picker:
        picker.parts.pool.clear()
        answer = await get(picker, "/healthz")
        assert (answer.status_code, answer.text) == (503, "no: it knows no pool\n")
        picker.parts.pool.replace(())
        assert (await get(picker, "/healthz")).status_code == 200  # an empty pool is a pool


async def test_a_pool_of_another_protocol_than_the_parsers_is_not_served(endpoints: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG + "- {type: vllmgrpc-parser}\nrequestHandler: {parsers: [{pluginRef: vllmgrpc-parser}]}\n")
    async with running(endpoints_file=endpoints, config_file=config) as picker:
        cluster = Cluster(pool="p")
        spec = {"selector": {"matchLabels": {"a": "b"}}, "targetPorts": [{"number": 1}]}
        cluster.apply("InferencePool", "ADDED", {"metadata": {"name": "p"}, "spec": spec})
        picker.discovery.use_cluster(cluster)
        answer = await get(picker, "/healthz")
        assert answer.status_code == 503
        assert answer.text.startswith(
            "no: the pool's appProtocol is 'http', and vllmgrpc-parser wants kubernetes.io/h2c"
        )
        spec_h2c = {**spec, "appProtocol": "kubernetes.io/h2c"}
        cluster.apply("InferencePool", "MODIFIED", {"metadata": {"name": "p"}, "spec": spec_h2c})
        picker.discovery.use_cluster(cluster)
        assert (await get(picker, "/healthz")).text == "ok\n"
        cluster.apply("InferencePool", "MODIFIED", {"metadata": {"name": "p"}, "spec": spec})
        picker.discovery.use_cluster(cluster)
        assert (await get(picker, "/healthz")).status_code == 503
        config.write_text(CONFIG)
        await until(lambda: picker.parts.health.serving)


async def test_the_configuration_can_name_the_endpoints(endpoints: Path) -> None:
    discovery = f"- {{type: file-discovery, name: f, parameters: {{path: {endpoints}, watchFile: true}}}}\n"
    layer = "dataLayer: {discovery: {pluginRef: f}}\n"
    async with running(config_text=CONFIG + discovery + layer) as picker:
        assert [member.endpoint.name for member in picker.parts.pool.members] == ["a"]
        replace(endpoints, "endpoints: [{name: b, address: 127.0.0.1, port: 2}]")
        await until(lambda: [member.endpoint.name for member in picker.parts.pool.members] == ["b"])


async def test_without_endpoints_it_does_not_start() -> None:
    with pytest.raises(ExceptionGroup) as group:
        async with running():
            pass
    assert str(find_ours(group.value)).startswith("no endpoints: ")


async def test_metrics_over_tls_and_only_for_known_clients(endpoints: Path, certificates: Path) -> None:
    authority = certificates / "tls.crt"
    async with running(
        endpoints_file=endpoints, metrics_cert_dir=certificates, metrics_client_ca_file=authority
    ) as picker:
        url = f"https://127.0.0.1:{picker.metrics_port}/metrics"
        trusting = ssl.create_default_context(cafile=authority)
        async with httpx.AsyncClient(verify=trusting, trust_env=False) as stranger:
            with pytest.raises(httpx.HTTPError):
                await stranger.get(url)
        known = ssl.create_default_context(cafile=authority)
        known.load_cert_chain(authority, certificates / "tls.key")
        async with httpx.AsyncClient(verify=known, trust_env=False) as friend:
            assert (await friend.get(url)).status_code == 200


def test_certificates_of_the_metrics_port_are_named_when_wrong(tmp_path: Path, certificates: Path) -> None:
    with pytest.raises(UserError, match=r"^--metrics-cert-dir .*cannot be used"):
        metrics_context(Settings(metrics_cert_dir=tmp_path / "none"))
    with pytest.raises(UserError, match=r"^--metrics-client-ca-file .*cannot be used"):
        metrics_context(Settings(metrics_cert_dir=certificates, metrics_client_ca_file=tmp_path / "none"))
    assert metrics_context(Settings()) is None


async def test_the_configuration_decides_where_endpoints_come_from(endpoints: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"""{CONFIG}- {{type: file-discovery, parameters: {{path: {endpoints}}}}}
dataLayer: {{discovery: {{pluginRef: file-discovery}}}}
""")
    async with running(config_file=config, pool_name="some-pool") as picker:
        assert [member.endpoint.name for member in picker.parts.pool.members] == ["a"]
        assert (await get(picker, "/metrics")).status_code == 200, "there is no cluster that could guard it"
    with pytest.raises(UserError, match="needs a cluster, and the configuration reads endpoints from a file"):
        PickerServer(Settings(config_file=config, pool_name="p", ha_enable_leader_election=True), rng=random.Random(1))
