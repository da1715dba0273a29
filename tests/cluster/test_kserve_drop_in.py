"""Our picker under KServe's controller: the command lines of its presets, run as they are, against a real API server.

The presets are those of KServe's releases, with the configuration that its controller adds; of the tree after them the
command line is written here. At the end of each stand the ports of this test, since the last of a flag counts.
"""

import asyncio
import json
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests import kserve
from tests.cluster.controlplane import ControlPlane
from tests.cluster.definitions import ONE, pool
from tests.cluster.simulators import served
from tests.cluster.test_epp_discovery import POOL, make_pod
from tests.waiting import eventually

from pointsman.core import tls
from pointsman.core.certificates import self_signed
from pointsman.kube import Client
from pointsman.render.serving.templates import expanded

PROGRAM = Path(sys.executable).with_name("epp-scheduler")
HERE = (
    "--host=127.0.0.1",
    "--grpc-port=0",
    "--grpc-health-port=0",
    "--metrics-port=0",
    "--metrics-endpoint-auth=false",
)
CONTEXT = {"ObjectMeta": {"name": "p", "namespace": "n"}, "Spec": {"model": {"name": "m"}}}


def configurations(version: str) -> list[str]:
    """Return the configurations that KServe's controller gives a picker: for two stages, and for one."""
    folder = kserve.root(version) / "pkg" / "controller"
    source = next(path for path in folder.rglob("scheduler.go") if "llmisvc" in str(path)).read_text()
    return re.findall(r"`\n(apiVersion[^`]*EndpointPickerConfig[^`]*)`", source)


def preset_line(version: str, *, namespace: str, config: str) -> list[str]:
    """Return the arguments of the picker that KServe makes of its preset; the pool is `p`."""
    preset = kserve.presets(version)["kserve-config-llm-scheduler"]
    context = {**CONTEXT, "ObjectMeta": {"name": "p", "namespace": namespace}}
    (main,) = expanded(preset, context)["router"]["scheduler"]["template"]["containers"]
    line = [word if word != "p-inference-pool" else "p" for word in main["args"]]
    return [*line, "--config-text", config]


def tree_line(*, namespace: str, certificates: Path | None) -> list[str]:
    """Return the arguments in KServe after 0.17, where a condition that does not hold leaves an empty string."""
    secure = [
        "--enable-cert-reload=true",
        "--secure-serving=true",
        "--model-server-metrics-scheme=https",
        f"--cert-path={certificates}",
    ]
    return [
        *("--pool-name", "p", "--pool-namespace", namespace, "--zap-encoder", "json"),
        *("--grpc-port", "9002", "--grpc-health-port", "9003"),
        *(secure if certificates else [""] * len(secure)),
        "--ha-enable-leader-election",
        *("--config-text", configurations("v0.17.0")[-1]),
    ]


@pytest.fixture(scope="module", autouse=True)
def _defined(plane: ControlPlane) -> Iterator[None]:
    with served(plane, {str(POOL): Path(ONE[1]).read_text()}):
        yield


@dataclass(frozen=True)
class Ran:
    """A running picker."""

    log: Path

    def ports(self) -> dict[str, int]:
        """Return where it listens, once it does."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        ready = next((line for line in lines if "picker: ready" in line.values()), None)
        assert ready is not None, lines
        return {name: ready[f"{name}_port"] for name in ("grpc", "health", "metrics")}

    async def _listens(self) -> dict[str, int]:
        return self.ports()

    async def says(self, service: str, status: int) -> None:
        """Wait until health says so of a service."""
        port = (await eventually(self._listens))["health"]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)

            async def asked() -> None:
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
                assert answer.status == status, answer

            await eventually(asked)


@contextmanager
def running(plane: ControlPlane, line: list[str], log: Path) -> Iterator[Ran]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [PROGRAM, *line, *HERE, "--drain-timeout=100ms"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"KUBECONFIG": str(plane.kubeconfig("admin")), "PATH": "/usr/bin:/bin"},
        )
    try:
        yield Ran(log)
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(20)


@asynccontextmanager
async def model_server(folder: Path) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Serve metrics over TLS; yield the port, and who asked for what."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\nvllm:num_requests_waiting 3\n")
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    context = tls.server_context(alpn=("http/1.1",))
    tls.load_folder(context, folder)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1], asked
    server.close()


def write_certificate(folder: Path) -> bytes:
    """Put a new certificate where a mounted Secret would; return it as a peer sees it."""
    certificate, key = self_signed()
    (folder / "tls.key").write_bytes(key)
    (folder / "tls.crt").write_bytes(certificate)
    return ssl.PEM_cert_to_DER_cert(certificate.decode())


async def handshake(port: int, *offered: str) -> tuple[str | None, bytes | None]:
    """Return the protocol that the picker chose, and its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if offered:
        context.set_alpn_protocols(list(offered))
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    spoken = writer.get_extra_info("ssl_object")
    found = spoken.selected_alpn_protocol(), spoken.getpeercert(binary_form=True)
    writer.close()
    return found


@pytest.mark.parametrize("version", kserve.RELEASES)
async def test_the_presets_of_releases(
    plane: ControlPlane, client: Client, namespace: str, tmp_path: Path, version: str
) -> None:
    await client.create(POOL, pool("p", namespace=namespace))
    await make_pod(client, namespace, "a", address="127.1.0.1")
    stages, one = configurations(version)
    assert "prefill-filter" in stages and "prefill-filter" not in one
    with ExitStack() as stack:
        lines = [preset_line(version, namespace=namespace, config=config) for config in (stages, one)]
        started = [
            stack.enter_context(running(plane, line, tmp_path / f"{number}.log")) for number, line in enumerate(lines)
        ]
        for picker in started:
            for service in ("liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", ""):
                await picker.says(service, health_pb2.HealthCheckResponse.SERVING)
            assert (await handshake(picker.ports()["grpc"], "h2"))[0] == "h2"


async def test_the_tree_with_tls(plane: ControlPlane, client: Client, namespace: str, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    first = write_certificate(folder)
    async with model_server(folder) as (port, asked):
        await client.create(POOL, pool("p", namespace=namespace, targetPorts=[{"number": port}]))
        await make_pod(client, namespace, "a", address="127.0.0.1")
        with running(plane, tree_line(namespace=namespace, certificates=folder), tmp_path / "log") as picker:
            await picker.says("readiness", health_pb2.HealthCheckResponse.SERVING)
            grpc_port = picker.ports()["grpc"]
            assert await handshake(grpc_port, "h2") == ("h2", first)
            assert (await handshake(grpc_port, "http/1.1"))[0] is None

            async def scraped() -> None:
                assert asked.count(b"/metrics") > 2, "model servers are asked over TLS"

            await eventually(scraped)
            second = write_certificate(folder)

            async def reloaded() -> None:
                assert await handshake(grpc_port, "h2") == ("h2", second)

            await eventually(reloaded)


async def test_the_tree_without_tls(plane: ControlPlane, client: Client, namespace: str, tmp_path: Path) -> None:
    await client.create(POOL, pool("p", namespace=namespace))
    await make_pod(client, namespace, "a", address="127.1.0.1")
    line = tree_line(namespace=namespace, certificates=None)
    assert line.count("") == 4
    with running(plane, line, tmp_path / "log") as picker:
        await picker.says("readiness", health_pb2.HealthCheckResponse.SERVING)
        await picker.says("liveness", health_pb2.HealthCheckResponse.SERVING)
