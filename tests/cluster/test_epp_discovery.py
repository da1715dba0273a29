"""The picker follows a real API server: pools, pods, objectives, CRDs that come and go, and who leads."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import grpc
import httpx
import msgspec
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc
from tests.bystander import watched
from tests.cluster.controlplane import ControlPlane
from tests.cluster.widgets import undefine
from tests.waiting import eventually, until
from tests.wire.test_grpcio import headers

from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION as CRD
from pointsman.epp.server import PickerServer
from pointsman.epp.settings import Settings
from pointsman.epp.sources.kube import PODS, POOLS
from pointsman.epp.sources.pool import OUR_GROUP, POOL_GROUP
from pointsman.kube import Client, Key, Kind

POOL = POOLS[POOL_GROUP]
ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
BINDING = Kind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
OBJECTIVE = Kind(OUR_GROUP, "v1alpha2", "InferenceObjective", "inferenceobjectives")
REWRITE = Kind(OUR_GROUP, "v1alpha2", "InferenceModelRewrite", "inferencemodelrewrites")


def definition(kind: Kind) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()}
    annotations = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return {
        "metadata": {"name": f"{kind.plural}.{kind.group}", "annotations": annotations},
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@asynccontextmanager
async def serving(client: Client, kind: Kind) -> AsyncIterator[None]:
    """Let the API server serve a kind while the block runs; afterwards another may define it."""
    await client.create(CRD, definition(kind))
    try:
        await eventually(lambda: client.request("GET", kind.path()))
        yield
    finally:
        await undefine(client, str(kind))


@asynccontextmanager
async def picker(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[PickerServer]:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig("admin")))
    settings = {"pool_grace_period": 0.0} | settings
    settings |= {"grpc_port": 0, "grpc_health_port": 0, "metrics_port": 0, "host": "127.0.0.1"}
    made = PickerServer(Settings(secure_serving=False, drain_timeout=0.1, **settings), rng=random.Random(1))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.run())
        await asyncio.sleep(0)
        yield made
        made.stop()


def targets(made: PickerServer) -> list[str]:
    return [member.endpoint.target for member in made.parts.pool.members]


async def make_pod(client: Client, namespace: str, name: str, *, address: str) -> None:
    spec = {"containers": [{"name": "c", "image": "none"}]}
    document = {"metadata": {"namespace": namespace, "name": name, "labels": {"app": "vllm"}}, "spec": spec}
    await eventually(lambda: client.create(PODS, document))  # not before the namespace has its default account
    await set_ready(client, namespace, name, address=address, ready="True")


async def set_ready(client: Client, namespace: str, name: str, *, address: str, ready: str) -> None:
    status = {"podIP": address, "podIPs": [{"ip": address}], "conditions": [{"type": "Ready", "status": ready}]}
    path = PODS.path(namespace, name, subresource="status")
    await client.request("PATCH", path, body={"status": status}, content_type="application/merge-patch+json")


def custom(kind: Kind, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def pool(namespace: str, port: int = 8000) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": port}]}
    return custom(POOL, namespace, "p", spec)


async def test_pools_pods_and_definitions_come_and_go(
    plane: ControlPlane, client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with picker(plane, monkeypatch, pool_name="p", pool_namespace=namespace) as made:
        await until(lambda: made.parts.health.obstacles == ("it knows no pool",))
        async with serving(client, POOL), serving(client, OBJECTIVE):
            await make_pod(client, namespace, "a", address="127.1.0.1")
            await client.create(POOL, pool(namespace))
            await until(lambda: targets(made) == ["127.1.0.1:8000"])
            assert made.parts.health.serving
            await make_pod(client, namespace, "b", address="127.1.0.2")
            await until(lambda: targets(made) == ["127.1.0.1:8000", "127.1.0.2:8000"])
            await set_ready(client, namespace, "a", address="127.1.0.1", ready="False")
            await until(lambda: targets(made) == ["127.1.0.2:8000"])
            priority = {"poolRef": {"name": "p"}, "priority": 7}
            await client.create(OBJECTIVE, custom(OBJECTIVE, namespace, "high", priority))
            await until(lambda: made.parts.objectives.priority("high") == 7)
            await client.delete(POOL, Key(namespace, "p"))
            await until(lambda: not made.parts.health.serving)
        await until(lambda: made.parts.objectives.priority("high") == 0)


async def test_objectives_and_rewrites_outlive_their_definitions_for_a_while(
    plane: ControlPlane, client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests flow while both definitions are replaced: each is rewritten as before, by who has patience."""
    follow = {"pool_name": "p", "pool_namespace": namespace}
    async with (
        serving(client, POOL),
        picker(plane, monkeypatch, pool_grace_period=120.0, **follow) as patient,
        picker(plane, monkeypatch, pool_grace_period=3.0, **follow) as hasty,
    ):
        both = (patient, hasty)
        await make_pod(client, namespace, "a", address="127.1.0.1")
        await client.create(POOL, pool(namespace))
        async with AsyncExitStack() as first:
            for kind in (OBJECTIVE, REWRITE):
                await first.enter_async_context(serving(client, kind))
            await create_rules(client, namespace, priority=7)
            await until(lambda: all(known(one) == (7, "served") for one in both))
            await client.delete(OBJECTIVE, Key(namespace, "high"))  # which is no loss of a definition
            await until(lambda: all(known(one) == (0, "served") for one in both))
            await client.create(OBJECTIVE, custom(OBJECTIVE, namespace, "high", RULED | {"priority": 8}))
            await until(lambda: all(known(one) == (8, "served") for one in both))
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{patient.listener.port}")
            async with channel, watched(partial(ask_for_a_model, channel)):
                await first.aclose()
                await until(lambda: known(hasty) == (0, ""))
                assert known(patient) == (8, "served")
                assert patient.parts.health.serving
                assert hasty.parts.health.serving, "endpoints have nothing to do with it"
                async with serving(client, OBJECTIVE), serving(client, REWRITE):
                    await create_rules(client, namespace, priority=9)
                    await until(lambda: all(known(one) == (9, "served") for one in both))


RULED: dict[str, Any] = {"poolRef": {"name": "p"}}


async def create_rules(client: Client, namespace: str, *, priority: int) -> None:
    await client.create(OBJECTIVE, custom(OBJECTIVE, namespace, "high", RULED | {"priority": priority}))
    rules = [{"targets": [{"modelRewrite": "served"}]}]
    await client.create(REWRITE, custom(REWRITE, namespace, "all", RULED | {"rules": rules}))


def known(made: PickerServer) -> tuple[int, str]:
    """Return which priority and which model a request would get."""
    rewritten = made.parts.rewrites.rewrite("asked", random=lambda: 0.0)
    return made.parts.objectives.priority("high"), rewritten.model if rewritten else ""


async def ask_for_a_model(channel: grpc.aio.Channel) -> None:
    """Send one request; raises unless it is sent somewhere, and for the model that the rule names."""
    asked = pb.ProcessingRequest(
        request_body=pb.HttpBody(body=b'{"model": "asked", "prompt": "x"}', end_of_stream=True)
    )
    replies = [reply async for reply in rpc.ExternalProcessorStub(channel).Process(iter([headers(), asked]))]
    assert "x-gateway-destination-endpoint" in str(replies[0].dynamic_metadata), replies
    chunks = [reply.request_body.response.body_mutation.streamed_response.body for reply in replies[1:]]
    assert msgspec.json.decode(b"".join(chunks))["model"] == "served", chunks


async def test_a_selector_needs_no_definition(
    plane: ControlPlane, client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"endpoint_selector": "app in (vllm)", "endpoint_target_ports": "8000,8001", "pool_namespace": namespace}
    async with picker(plane, monkeypatch, **flags) as made:
        await until(lambda: made.parts.health.serving)
        await make_pod(client, namespace, "a", address="127.1.0.1")
        await until(lambda: targets(made) == ["127.1.0.1:8000", "127.1.0.1:8001"])


async def test_one_of_two_replicas_is_ready_and_the_other_follows(
    plane: ControlPlane, client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: dict[str, Any] = {"endpoint_selector": "app", "endpoint_target_ports": "8000", "pool_namespace": namespace}
    flags |= {"ha_enable_leader_election": True}
    monkeypatch.setenv("POD_NAME", "first")
    async with picker(plane, monkeypatch, **flags) as first:
        await until(lambda: first.parts.health.serving)
        monkeypatch.setenv("POD_NAME", "second")
        async with picker(plane, monkeypatch, **flags) as second:
            await make_pod(client, namespace, "a", address="127.1.0.1")
            await until(lambda: targets(first) == targets(second) == ["127.1.0.1:8000"])
            assert second.parts.health.obstacles == ("another replica leads",)
            first.stop()
            await until(lambda: second.parts.health.serving)


async def test_metrics_are_for_those_whom_the_api_server_lets_in(
    plane: ControlPlane, client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"endpoint_selector": "app", "endpoint_target_ports": "8000", "pool_namespace": namespace}
    role = {"rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}], "metadata": {"name": f"reader-{namespace}"}}
    await client.create(ROLE, role)
    tokens = [await token(client, namespace, name) for name in ("reader", "stranger")]
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": "reader"}
    reference = {"apiGroup": ROLE.group, "kind": ROLE.kind, "name": f"reader-{namespace}"}
    binding = {"metadata": {"name": f"reader-{namespace}"}, "roleRef": reference, "subjects": [subject]}
    await client.create(BINDING, binding)
    await eventually(lambda: allowed(client, f"system:serviceaccount:{namespace}:reader", "/metrics"))
    async with picker(plane, monkeypatch, **flags) as made, httpx.AsyncClient(trust_env=False) as http:
        await until(lambda: made.parts.health.serving)

        async def status(path: str, bearer: str = "") -> int:
            headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
            return (await http.get(f"http://127.0.0.1:{made.metrics_port}{path}", headers=headers)).status_code

        assert await status("/healthz") == 200
        assert [await status("/metrics"), await status("/metrics", "nonsense")] == [401, 401]
        assert [await status("/metrics", one) for one in tokens] == [200, 403]
        assert await status("/debug/endpoints", tokens[0]) == 403  # the role names one path
    for kind in (BINDING, ROLE):
        await client.delete(kind, Key("", f"reader-{namespace}"))


async def allowed(client: Client, user: str, path: str) -> None:
    """Assert that the API server lets a user get a path; it hears of a new binding a moment after it was made."""
    spec = {"user": user, "nonResourceAttributes": {"path": path, "verb": "get"}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await client.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
    assert msgspec.json.decode(answer)["status"]["allowed"]


async def token(client: Client, namespace: str, name: str) -> str:
    await client.create(SERVICE_ACCOUNT, {"metadata": {"namespace": namespace, "name": name}})
    path = SERVICE_ACCOUNT.path(namespace, name, subresource="token")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = msgspec.json.decode(await client.request("POST", path, body=body))
    return str(answer["status"]["token"])
