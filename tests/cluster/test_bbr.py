"""The router follows ConfigMaps of a real API server: which adapter belongs to which base model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc
from tests.cluster.controlplane import ControlPlane
from tests.cluster.widgets import CONFIGMAP
from tests.waiting import until
from tests.wire.test_grpcio import headers

from pointsman.epp.bbr.adapters import MANAGED
from pointsman.epp.bbr.server import BbrServer
from pointsman.epp.bbr.settings import BbrSettings
from pointsman.kube import Client, Key

TODAY, BEFORE = MANAGED


@asynccontextmanager
async def router(plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BbrServer]:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig("admin")))
    monkeypatch.setenv("NAMESPACE", namespace)
    settings = BbrSettings(host="127.0.0.1", grpc_port=0, grpc_health_port=0, metrics_port=0, secure_serving=False)
    made = BbrServer(replace(settings, drain_timeout=0.1, streaming=True))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.run())
        await until(lambda: made.health.serving)
        yield made
        made.stop()


async def base_of(channel: grpc.aio.Channel, model: str) -> str:
    """Return the base model that a request for a model is given as a header."""
    body = pb.ProcessingRequest(request_body=pb.HttpBody(body=b'{"model": "%s"}' % model.encode(), end_of_stream=True))
    replies = [reply async for reply in rpc.ExternalProcessorStub(channel).Process(iter([headers(), body]))]
    common = replies[0].request_headers.response
    found = {each.header.key: each.header.raw_value.decode() for each in common.header_mutation.set_headers}
    assert found["X-Gateway-Model-Name"] == model
    return str(found["X-Gateway-Base-Model-Name"])


async def bases(channel: grpc.aio.Channel, *models: str) -> list[str]:
    return [await base_of(channel, model) for model in models]


def mapping(namespace: str, name: str, *, labels: tuple[str, ...] = (TODAY,), **data: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "labels": dict.fromkeys(labels, "true")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_adapters_follow_config_maps(
    plane: ControlPlane, client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama = mapping(namespace, "llama", baseModel="llama", adapters="- food\n- travel\n")
    await client.create(CONFIGMAP, llama)
    await client.create(CONFIGMAP, mapping(namespace, "nobody", labels=(), baseModel="x", adapters="- secret"))
    async with (
        router(plane, namespace, monkeypatch) as made,
        grpc.aio.insecure_channel(f"127.0.0.1:{made.listener.port}") as channel,
    ):
        assert await bases(channel, "food", "llama", "other") == ["llama", "llama", ""], "read before it is ready"
        assert await base_of(channel, "secret") == "", "it has not the label"
        qwen = mapping(namespace, "qwen", labels=(BEFORE,), baseModel="qwen", adapters="- code")
        await client.create(CONFIGMAP, qwen)
        await until(lambda: _equals(bases(channel, "code", "qwen"), ["qwen", "qwen"]))

        await client.create(CONFIGMAP, mapping(namespace, "bad", baseModel="bad", adapters="{"))
        await client.create(CONFIGMAP, mapping(namespace, "empty", adapters="- nothing"))
        await client.replace(CONFIGMAP, mapping(namespace, "llama", baseModel="llama", adapters="- travel\n- music\n"))
        await until(lambda: _equals(bases(channel, "food", "travel", "music"), ["", "llama", "llama"]))
        assert await bases(channel, "code", "bad", "nothing") == ["qwen", "", ""], "a bad one costs itself alone"

        both = mapping(namespace, "llama", labels=MANAGED, baseModel="llama", adapters="- both")
        await client.replace(CONFIGMAP, both)
        await until(lambda: _equals(bases(channel, "both"), ["llama"]))
        one = mapping(namespace, "llama", labels=(BEFORE,), baseModel="llama", adapters="- older")
        await client.replace(CONFIGMAP, one)
        await until(lambda: _equals(bases(channel, "older", "llama", "both"), ["llama", "llama", ""]))

        await client.replace(CONFIGMAP, mapping(namespace, "llama", labels=(), baseModel="llama", adapters="- older"))
        await client.delete(CONFIGMAP, Key(namespace, "qwen"))
        await until(lambda: _equals(bases(channel, "older", "llama", "code", "qwen"), [""] * 4))


async def _equals(found: Any, expected: list[str]) -> bool:
    return bool(await found == expected)
