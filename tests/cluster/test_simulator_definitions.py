"""What a stack consists of follows the definitions that the cluster has, while the operator runs: theirs and ours."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cluster.controlplane import ControlPlane
from tests.cluster.simulators import EVERYTHING, ON, Site, defined, operator, published_meanwhile
from tests.logs import captured
from tests.waiting import eventually

from pointsman.api import SIMULATOR_DEPLOYMENT
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION
from pointsman.kube import Client, Key, Object
from pointsman.operator.kinds import CONFIG_MAP, DEPLOYMENT, GATEWAY, GATEWAY_CLASS, INFERENCE_POOL

NAME = "infra-sim-inference-gateway"
THEIRS = {"InferencePool", "DestinationRule", "Gateway", "HTTPRoute"}


@pytest.fixture(scope="module", autouse=True)
def _defined(plane: ControlPlane) -> Iterator[None]:
    with defined(plane, mesh=False):
        yield


@pytest.fixture
async def site(plane: ControlPlane, client: Client, namespace: str) -> AsyncIterator[Site]:
    site = Site(plane, client, namespace)
    async with operator(plane.kubeconfig("admin")):
        yield site
        await site.clear()


async def kinds(site: Site, expected: set[str]) -> None:
    """Wait until the stack has exactly these of others' kinds, and is ready."""

    async def asked() -> None:
        found = {name.partition("/")[0] for name in await site.made()} & THEIRS
        assert found == expected, found

    await eventually(asked, every=0.25)
    await site.ready()


async def discovery(site: Site) -> str:
    (container,) = (await site.get(DEPLOYMENT, "gaie-sim-epp"))["spec"]["template"]["spec"]["containers"]
    return str(container["args"][0])


async def test_definitions_come_and_go_under_a_stack(plane: ControlPlane, site: Site) -> None:
    """One process follows them, says so in conditions, and has little to log about it."""
    with captured() as logs:
        await follow(plane, site)
    about = Counter((str(line.get("kind")), line["event"]) for line in logs)
    assert all(count <= 3 for count in about.values()), about
    assert not [line for line in logs if line["level"] == "error"]


async def follow(plane: ControlPlane, site: Site) -> None:
    await site.create(**EVERYTHING)
    await kinds(site, set())
    assert await discovery(site) == "--endpoint-selector"
    assert (await site.condition("Discovery"))["reason"] == "Selector"
    assert (await site.condition("LoadBalancing"))["reason"] == "GatewayOnly"
    assert (await site.condition("LegacyGateway"))["reason"] == "GatewayAPIMissing"
    before = await site.get(DEPLOYMENT, "ms-sim-llm-d-modelservice-decode")
    async with published_meanwhile(plane):
        await kinds(site, THEIRS)
        assert await discovery(site) == "--pool-name"
        await site.told("Discovery", "True", "InferencePool")
        await site.told("LoadBalancing", "True", "DestinationRule")
        await site.told("LegacyGateway", "False", "GatewayClassMissing")
    await kinds(site, set())
    assert await discovery(site) == "--endpoint-selector"
    await site.told("Discovery", "True", "Selector")
    await site.told("LegacyGateway", "False", "GatewayAPIMissing")
    after = await site.get(DEPLOYMENT, "ms-sim-llm-d-modelservice-decode")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]  # simulators have no part in it


async def test_a_definition_that_cannot_go_is_done_without(plane: ControlPlane, client: Client, site: Site) -> None:
    """Its objects are held by a finalizer: nothing can be created any more, for as long as that takes."""
    async with published_meanwhile(plane):
        await site.create(epp=ON)
        await site.ready()
        await site.told("Discovery", "True", "InferencePool")
        held = {"name": "held", "namespace": site.namespace, "finalizers": ["example.dev/hold"]}
        spec = (await site.get(INFERENCE_POOL, "gaie-sim"))["spec"]
        await client.create(INFERENCE_POOL, {**TYPE, "metadata": held, "spec": spec})
        try:
            await client.delete(CUSTOM_RESOURCE_DEFINITION, Key("", str(INFERENCE_POOL)))
            await site.told("Discovery", "True", "Selector")
            await site.ready()
            assert "InferencePool/gaie-sim" not in await site.made()
            assert (await site.get(INFERENCE_POOL, "held"))["metadata"]["deletionTimestamp"]
        finally:
            key = Key(site.namespace, "held")
            await client.patch(INFERENCE_POOL, key, {"metadata": {"finalizers": None}}, how="merge")


TYPE = {"apiVersion": INFERENCE_POOL.api_version, "kind": INFERENCE_POOL.kind}


@asynccontextmanager
async def istio_class(client: Client) -> AsyncIterator[None]:
    """Have a GatewayClass that its controller has accepted."""
    head = {"apiVersion": GATEWAY_CLASS.api_version, "kind": GATEWAY_CLASS.kind, "metadata": {"name": "istio"}}
    made = await client.create(GATEWAY_CLASS, head | {"spec": {"controllerName": "istio.io/gateway-controller"}})
    date = made["metadata"]["creationTimestamp"]
    accepted = condition("Accepted", date)
    await client.patch(GATEWAY_CLASS, Key("", "istio"), accepted, how="merge", subresource="status")
    yield
    await client.delete(GATEWAY_CLASS, Key("", "istio"))


def condition(type_: str, date: str, **more: Any) -> Object:
    found = {"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": date}
    return {"status": {"conditions": [found], **more}}


async def test_a_gateway_is_handed_to_istio_and_taken_back(plane: ControlPlane, client: Client, site: Site) -> None:
    own = {f"{kind}/{NAME}-istio" for kind in ("ConfigMap", "Service", "Deployment")}
    async with published_meanwhile(plane):
        await site.create(inferenceGateway=ON | {"istio": ON | {"replicas": 2}})
        await site.ready()
        assert own <= (await site.made()).keys()
        async with istio_class(client):
            await site.told("IstioGatewayReady", "False", "Pending")  # as the definition has it until someone looks
            assert (await site.condition("IstioGateway"))["reason"] == "MadeByIstio"
            made = (await site.made()).keys()
            assert not own & made
            assert {f"Gateway/{NAME}", f"HTTPRoute/{NAME}", f"ConfigMap/{NAME}-istio-options"} <= made
            date = (await site.get(GATEWAY, NAME))["metadata"]["creationTimestamp"]
            address = [{"type": "IPAddress", "value": "192.0.2.1"}]
            body = condition("Programmed", date, addresses=address)
            await client.patch(GATEWAY, Key(site.namespace, NAME), body, how="merge", subresource="status")
            live = await site.ready()
            assert live["status"]["gatewayURL"] == "http://192.0.2.1:8080"
            await site.get(CONFIG_MAP, f"{NAME}-istio-options")
        await site.told("IstioGateway", "False", "IstioMissing")
        await site.ready()
        assert own <= (await site.made()).keys()


async def test_a_resource_from_an_older_definition_is_told_what_is_wrong_with_it(
    plane: ControlPlane, client: Client, site: Site
) -> None:
    key = Key("", str(SIMULATOR_DEPLOYMENT))
    current = await client.get(CUSTOM_RESOURCE_DEFINITION, key)
    lax = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    path = "/spec/versions/0/schema/openAPIV3Schema"
    await client.patch(CUSTOM_RESOURCE_DEFINITION, key, [{"op": "replace", "path": path, "value": lax}], how="json")

    async def stored() -> None:
        await site.create(epp={"enabled": True, "port": 70_000}, replicas=1)

    await eventually(stored)  # once the server has taken the definition up
    message = await site.told("Ready", "False", "InvalidSpec")
    assert message.startswith("spec.epp.port: ")
    assert "apply the current definition (config/crd) and correct the field" in message
    await site.edit(epp={"port": 8100})
    await site.ready()
    text = json.dumps({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"} | _bare(current))
    await site.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)
    await site.ready()


def _bare(live: Object) -> Object:
    return {"metadata": {"name": live["metadata"]["name"]}, "spec": live["spec"]}
