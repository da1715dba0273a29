"""Rights are exactly what the code asks of a real API server: no more, or least privilege is a word; no less, or it
fails on a cluster.

Operator and picker run with their own roles and nothing else, by a road that writes down every request.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster.controlplane import ControlPlane
from tests.cluster.installs import WHOLE, istio, namespaces
from tests.cluster.packages import ROOT
from tests.cluster.proxy import Road
from tests.cluster.rights import Right, given, names_used, used
from tests.cluster.simulators import EVERYTHING, ON, Site, defined, operator
from tests.cluster.test_epp_discovery import BINDING, POOL, custom, serving, token
from tests.waiting import eventually, until

from pointsman.api import SIMULATOR_DEPLOYMENT, SimulatorDeployment
from pointsman.cli import app
from pointsman.core.documents import read_yaml
from pointsman.epp.server import PickerServer
from pointsman.epp.sources.kube import OPTIONAL
from pointsman.kube import Client, Key, Kind, Object
from pointsman.operator.kinds import ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.stack import render

RULES = read_yaml(ROOT / "config" / "rbac" / "role.yaml")["rules"]
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
# Asked by no request: where the API server guards blockOwnerDeletion, it asks itself when an object gets its owner.
FOR_OWNERS: set[Right] = {
    ("sim.llm-d.io", f"{plural}/finalizers", "update") for plural in ("simulatordeployments", "schedulerinstalls")
}
FACTS = {"pool": Facts(inference_pool=True), "selector": Facts()}


@pytest.fixture
def mesh(plane: ControlPlane) -> Iterator[None]:
    with defined(plane):
        yield


@asynccontextmanager
async def visitor_with(client: Client, rules: list[Object]) -> AsyncIterator[None]:
    """Let the user `visitor` do what the rules say, and nothing else."""
    name = "visitor-with-our-rights"
    await client.create(CLUSTER_ROLE, {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": name}
    subject = {"kind": "User", "apiGroup": CLUSTER_ROLE.group, "name": "visitor"}
    await client.create(BINDING, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    try:
        yield
    finally:
        await client.delete(BINDING, Key("", name))
        await client.delete(CLUSTER_ROLE, Key("", name))


def granted(facts: Facts) -> set[Right]:
    """Return what the operator gives to the pickers of a stack."""
    document = {
        "apiVersion": SIMULATOR_DEPLOYMENT.api_version,
        "kind": SIMULATOR_DEPLOYMENT.kind,
        "metadata": {"name": "x"},
        "spec": {"epp": ON | {"replicas": 2}},
    }
    made = render(SimulatorDeployment.model_validate(document), facts)
    return given(rule for one in made for rule in one.get("rules", ()))


async def test_the_operators(mesh: None, plane: ControlPlane, road: Road, site: Site) -> None:
    wanted = EVERYTHING | {"epp": ON | {"replicas": 2}}
    taken: Object = {
        "metadata": {"name": "mine", "namespace": site.namespace},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "another"}},
    }
    async with visitor_with(site.client, RULES):
        far = plane.kubeconfig("visitor", server=road.server)
        async with operator(far, lead=True):
            await site.create(**wanted)
            await site.ready()
            assert not await site.condition("ClusterAccess")
            await site.edit(**dict.fromkeys(wanted))  # every part is taken away again
            await site.ready()
            # A name that is taken is told by an Event, and when it stays so, by the same once more.
            await site.client.create(SERVICE, taken)
            await site.edit(service={"name": "mine"})
            await site.told("Conflict", "True", "NameTaken")
            await eventually(lambda: seen(road, ("", "events", "patch")))
            await installed_and_taken_away(site)
    pickers = {right for facts in FACTS.values() for right in granted(facts)}
    assert used(road) | pickers | FOR_OWNERS == given(RULES)


async def installed_and_taken_away(site: Site) -> None:
    async with namespaces(site) as installs, istio(site.client, site.namespace):
        await installs.there.create("sims", replicas=1)
        await installs.create(**WHOLE | {"epp": ON | {"replicas": 2}, "proxyService": {"name": "other"}})
        await installs.ready()
        assert not await installs.condition("ClusterAccess")
        await installs.clear()


async def seen(road: Road, right: Right) -> None:
    assert right in used(road)


@asynccontextmanager
async def kinds(client: Client, *wanted: Kind) -> AsyncIterator[None]:
    """Let the API server serve kinds of other projects, as far as a picker looks at them."""
    async with AsyncExitStack() as served:
        for kind in wanted:
            await served.enter_async_context(serving(client, kind))
        yield


@asynccontextmanager
async def account(client: Client, namespace: str, made: list[Object]) -> AsyncIterator[str]:
    """Create the picker's account and rights as they are rendered, and yield its token."""
    for kind in (SERVICE_ACCOUNT, ROLE, ROLE_BINDING):
        (document,) = (one for one in made if one["kind"] == kind.kind)
        if kind != SERVICE_ACCOUNT:  # which `token` makes
            await client.create(kind, document)
    yield await token(client, namespace, "gaie-sim-epp")


def settings_of(made: list[Object], folder: Path) -> Any:
    """Return the settings of the picker that is rendered, on loopback and its configuration in a folder."""
    (deployment,) = (one for one in made if one["kind"] == "Deployment" and one["metadata"]["name"] == "gaie-sim-epp")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (data,) = (one["data"] for one in made if one["kind"] == "ConfigMap")
    for name, text in data.items():
        (folder / name).write_text(text)
    words = [word.replace("/config/", f"{folder}/") for word in container["args"]]
    _, bound, _ = app.parse_args(["epp", *words], exit_on_error=False, print_error=False)
    ports = {"grpc_port": 0, "grpc_health_port": 0, "metrics_port": 0}
    return replace(bound.arguments["settings"], host="127.0.0.1", drain_timeout=0.1, **ports)


@pytest.mark.parametrize("cluster", FACTS)
async def test_the_pickers(
    plane: ControlPlane,
    client: Client,
    namespace: str,
    road: Road,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cluster: str,
) -> None:
    facts = FACTS[cluster]
    stack: dict[str, Any] = {
        "apiVersion": SIMULATOR_DEPLOYMENT.api_version,
        "kind": SIMULATOR_DEPLOYMENT.kind,
        "metadata": {"name": "x", "namespace": namespace},
        "spec": {"epp": ON | {"replicas": 2}},
    }
    made = render(SimulatorDeployment.model_validate(stack), facts)
    (rules,) = (one["rules"] for one in made if one["kind"] == "Role")
    async with AsyncExitStack() as around:
        if facts.inference_pool:
            await around.enter_async_context(kinds(client, POOL, *OPTIONAL))
            (pool,) = (one for one in made if one["kind"] == "InferencePool")
            await client.create(POOL, custom(POOL, namespace, pool["metadata"]["name"], pool["spec"]))
        plane.tokens["picker"] = await around.enter_async_context(account(client, namespace, made))
        monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig("picker", server=road.server)))
        monkeypatch.setenv("NAMESPACE", namespace)
        monkeypatch.setenv("POD_NAME", "gaie-sim-epp-6f7d8c9b5-x2x4z")
        picker = PickerServer(settings_of(made, tmp_path), rng=random.Random(1))
        tasks = await around.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(picker.run())
        await until(lambda: picker.parts.health.serving)
        await until(lambda: used(road) >= given(rules))  # watches begin when lists are in
        (named,) = (rule["resourceNames"] for rule in rules if "resourceNames" in rule)
        assert used(road) == given(rules)
        assert names_used(road, "leases") <= set(named)
        # And to tell who may read its metrics it needs no right at all.
        async with httpx.AsyncClient(trust_env=False) as http:
            headers = {"authorization": f"Bearer {plane.tokens['admin']}"}
            address = f"http://127.0.0.1:{picker.metrics_port}/metrics"
            assert (await http.get(address)).status_code == 401
            assert (await http.get(address, headers=headers)).status_code == 200
        assert used(road) == given(rules)
        picker.stop()
