"""What goes wrong around an operator of stacks. Each time: it converges, nothing is there twice, nothing of others is
touched, and a condition tells.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cluster.conftest import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.simulators import EVERYTHING, ON, QUOTA, REPLICA_SET, Site, defined, operator
from tests.waiting import eventually, until

from pointsman.api import SIMULATOR_DEPLOYMENT
from pointsman.kube import Client, Key, Kind, connect
from pointsman.operator.kinds import DEPLOYMENT, DESTINATION_RULE, GATEWAY_CLASS, MADE, POD, SERVICE
from pointsman.operator.process import OperatorProcess, ProcessPlan

CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
BINDING = Kind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
EVENT = Kind("", "v1", "Event", "events")
ALL = (*MADE, SIMULATOR_DEPLOYMENT, GATEWAY_CLASS, POD, EVENT)
FRONT = "gaie-inference-scheduling-proxy"


@pytest.fixture(scope="module", autouse=True)
def _defined(plane: ControlPlane) -> Iterator[None]:
    with defined(plane):
        yield


@asynccontextmanager
async def mortal(plane: ControlPlane, *, writes: int) -> AsyncIterator[asyncio.Event]:
    """Run an operator that dies where it would make one write more than this; yields, once it has begun to work or is
    dead, the event of its death."""
    died = asyncio.Event()
    left = writes

    def fence() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            died.set()
            raise asyncio.CancelledError  # not even a handler of errors runs

    async with connect(plane.kubeconfig("admin")) as client, asyncio.TaskGroup() as group:
        process = OperatorProcess(client.fenced(fence), ProcessPlan(), environment={"POD_NAMESPACE": "default"})
        task = group.create_task(process.run())
        await until(lambda: died.is_set() or not any(runtime.unfollowed() for runtime in process.runtimes))
        yield died
        task.cancel()


async def live_and_die(plane: ControlPlane) -> int:
    """Let operators make one write each and die of the next, until one has nothing more to write; return how many."""
    for lives in range(80):
        async with mortal(plane, writes=1) as died:
            try:
                await asyncio.wait_for(died.wait(), 5)
            except TimeoutError:
                return lives
    raise AssertionError("every operator found something more to write")


async def test_killed_at_every_step_of_a_rollout(plane: ControlPlane, site: Site) -> None:
    await site.client.create(SERVICE, foreign(site, "bystander"))
    await site.create(**EVERYTHING)
    assert await live_and_die(plane) > len(EVERYTHING)
    async with operator(plane.kubeconfig("admin")):
        await site.ready()
        whole = await site.made()
        # And while a change of every Pod is rolled out, with one part switched off.
        await site.edit(logVerbosity=3, epp={"enabled": True, "verbosity": 4}, prefill=None)
    assert await live_and_die(plane) > 1
    async with operator(plane.kubeconfig("admin")):
        await site.ready()
        left = set(whole) - {f"{kind}/ms-sim-llm-d-modelservice-prefill" for kind in ("Deployment", "Service")}
        await site.becomes(left)
        await eventually(lambda: one_of_each(site))
    assert "ownerReferences" not in (await site.get(SERVICE, "bystander"))["metadata"]


async def one_of_each(site: Site) -> None:
    """Every Deployment has Pods of one template only, and as many as it asks for."""
    for deployment in await site.list(DEPLOYMENT):
        name, uid = deployment["metadata"]["name"], deployment["metadata"]["uid"]
        sets = [one for one in await site.list(REPLICA_SET) if one["metadata"]["ownerReferences"][0]["uid"] == uid]
        counts = sorted(one["spec"]["replicas"] for one in sets if one["spec"]["replicas"])
        assert counts == [deployment["spec"]["replicas"]], name


def foreign(site: Site, name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": site.namespace},
        "spec": {"ports": [{"port": 80, "name": "http"}], "selector": {"app": "another"}},
    }


async def test_quota_that_refuses_a_pod(plane: ControlPlane, site: Site) -> None:
    await site.limit("few", pods="1")
    async with operator(plane.kubeconfig("admin")):
        await site.create(replicas=2)
        message = await site.told("SimulatorsReady", "False", "FailedCreate", words="1 of 2 Pods")
        assert "exceeded quota: few" in message
        assert (await site.condition("Ready"))["status"] == "False"
        await site.client.delete(QUOTA, Key(site.namespace, "few"))
        await site.edit(logVerbosity=4)  # the controllers of Kubernetes wait long before they try again by themselves
        await site.ready()


async def test_quota_that_refuses_an_object_of_ours(plane: ControlPlane, site: Site) -> None:
    await site.limit("none", **{"count/services": "0"})
    async with operator(plane.kubeconfig("admin")):
        await site.create(epp=ON)
        message = await site.told("Ready", "False", "Forbidden", words="exceeded quota: none")
        assert "raise the quota" in message
        await site.told("SimulatorsReady", "True", "Available")  # what can be made is made
        assert not [one for one in await site.made() if one.startswith("Service/")]
        await site.client.delete(QUOTA, Key(site.namespace, "none"))
        await site.ready()


async def test_node_that_is_too_small(plane: ControlPlane, site: Site) -> None:
    async with operator(plane.kubeconfig("admin")):
        await site.create(resources={"requests": {"cpu": "1000"}})
        await site.told("SimulatorsReady", "False", "Unschedulable", words="Insufficient cpu")
        await site.edit(resources={"requests": {"cpu": "1"}})
        await site.ready()


async def test_namespace_that_is_being_deleted(plane: ControlPlane, client: Client) -> None:
    name = "test-doomed"
    await client.create(NAMESPACE, {"metadata": {"name": name}})
    site = Site(plane, client, name)
    async with operator(plane.kubeconfig("admin")) as process:
        await site.create(**EVERYTHING)
        await site.ready()
        await client.delete(NAMESPACE, Key("", name))

        async def gone() -> None:
            listed = await client.request("GET", NAMESPACE.path())
            assert f'"{name}"'.encode() not in listed

        await eventually(gone)

        async def well() -> None:
            assert all(not runtime.unfollowed() for runtime in process.runtimes)

        await eventually(well)


@asynccontextmanager
async def visitor_without(
    client: Client, *, reads: Kind | None = None, writes: Kind | None = None
) -> AsyncIterator[str]:
    """Let the user `visitor` do everything but read, or write, one kind; yields the role's name."""
    name = "visitor-of-stacks"
    reading = ["get", "list", "watch"]
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    rules: list[dict[str, Any]] = []
    for kind in ALL:
        verbs = ["*"] if kind not in (reads, writes) else [] if kind == reads else reading
        if verbs:
            resources = [kind.plural, f"{kind.plural}/status"]
            rules.append({"apiGroups": [kind.group], "resources": resources, "verbs": verbs})
    rules += [{**every, "apiGroups": ["apiextensions.k8s.io"]}, {"nonResourceURLs": ["*"], "verbs": ["get"]}]
    await client.create(CLUSTER_ROLE, {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": name}
    subject = {"kind": "User", "apiGroup": CLUSTER_ROLE.group, "name": "visitor"}
    await client.create(BINDING, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    try:
        yield name
    finally:
        await client.delete(BINDING, Key("", name))
        await client.delete(CLUSTER_ROLE, Key("", name))


async def grant(client: Client, role: str, kind: Kind) -> None:
    rules = (await client.get(CLUSTER_ROLE, Key("", role)))["rules"]
    rules.append({"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["*"]})
    await client.patch(CLUSTER_ROLE, Key("", role), {"rules": rules}, how="merge")


async def test_one_kind_that_may_not_be_written(plane: ControlPlane, site: Site) -> None:
    async with (
        visitor_without(site.client, writes=SERVICE) as role,
        operator(plane.kubeconfig("visitor")),
    ):
        await site.create()
        message = await site.told("Ready", "False", "Forbidden", words='cannot patch resource "services"')
        assert "grant it (config/rbac)" in message
        await site.told("SimulatorsReady", "True", "Available")
        await grant(site.client, role, SERVICE)
        await site.edit(logVerbosity=4)
        await site.ready()


async def test_one_kind_that_may_not_be_read(plane: ControlPlane, site: Site) -> None:
    async with (
        visitor_without(site.client, reads=DESTINATION_RULE) as role,
        operator(plane.kubeconfig("visitor")),
    ):
        await site.create(loadBalancing=ON)
        await site.ready()
        words = "the operator may not read destinationrules.networking.istio.io;"  # and nothing else, once roles count
        await site.told("ClusterAccess", "False", "Forbidden", words=words)
        await grant(site.client, role, DESTINATION_RULE)
        await eventually(lambda: site.get(DESTINATION_RULE, f"{FRONT}-lb"))
        await site.told("LoadBalancing", "True", "DestinationRule")


async def test_api_server_restarted_under_way(plane: ControlPlane, site: Site) -> None:
    async with operator(plane.kubeconfig("admin")):
        await site.create(**EVERYTHING)
        plane.kill("kube-apiserver")
        await asyncio.sleep(1)
        await asyncio.to_thread(plane.start_api)
        await site.ready()
        before = set(await site.made())
        await site.edit(replicas=3, decode={"enabled": True, "replicas": 3})
        await site.ready()
        assert set(await site.made()) == before
