"""SimulatorDeployments on a real API server: requirement 001's commands, drift, edits, ownership, deletion, truth.

kwok makes the Pods ready, so all of the control plane is real and nothing of what Pods do: tests/e2e has that.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from tests.cluster.controlplane import ControlPlane
from tests.cluster.proxy import Road
from tests.cluster.simulators import EVERYTHING, ON, POD, Site, defined, operator, requests, sample, without
from tests.cluster.widgets import quiet
from tests.waiting import eventually

from pointsman.api import SIMULATOR_DEPLOYMENT
from pointsman.kube import Client, Object
from pointsman.operator.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    DESTINATION_RULE,
    INFERENCE_POOL,
    SERVICE,
)
from pointsman.operator.process import OperatorProcess
from pointsman.render.manifests.policy import Policy

FRONT = "gaie-inference-scheduling-proxy"
LEGACY = {f"Service/{FRONT}", "Deployment/ms-sim-stack-decode"}
STAGES = {
    f"Service/{FRONT}",
    *(
        f"{kind}/ms-sim-llm-d-modelservice-{stage}"
        for kind in ("Service", "Deployment")
        for stage in ("prefill", "decode")
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _defined(plane: ControlPlane) -> Iterator[None]:
    with defined(plane):
        yield


@pytest.fixture
async def operated(plane: ControlPlane) -> AsyncIterator[OperatorProcess]:
    async with operator(plane.kubeconfig("admin"), policy=Policy(external_services=True)) as process:
        yield process


@pytest.fixture
async def requirement(plane: ControlPlane, client: Client) -> AsyncIterator[Site]:
    """The namespace of the requirement."""
    plane.kubectl("create", "namespace", "llm-d-sim")
    site = Site(plane, client, "llm-d-sim")
    yield site
    await site.clear()
    plane.kubectl("delete", "namespace", "llm-d-sim", "--timeout=60s")


async def rows(site: Site, *arguments: str) -> list[list[str]]:
    return [line.split() for line in (await site.kubectl("get", *arguments)).splitlines()]


async def test_the_commands_of_the_requirement(requirement: Site, operated: OperatorProcess) -> None:
    await requirement.kubectl("apply", "-f", str(sample("minimal")))
    patch = ("patch", "simulatordeployment", "llm-sim-minimal")
    async with watching(requirement, "simulatordeployment") as lines:
        await requirement.ready("llm-sim-minimal")
        await eventually(lambda: shown(lines, "2", "2"))
        await requirement.kubectl(*patch, "-p", '{"spec":{"replicas":4}}', "--type=merge")
        await requirement.ready("llm-sim-minimal")
        await eventually(lambda: shown(lines, "4", "4"))
        head, row = await rows(requirement, "simulatordeployment")
        assert head == lines[0] == ["NAME", "REPLICAS", "READY", "AGE"]
        assert row[:3] == ["llm-sim-minimal", "4", "4"]
    assert len(await rows(requirement, "pods", "-l", "llm-d.ai/role=decode")) == 5

    async def behind() -> None:
        endpoints = json.loads(await requirement.kubectl("get", "endpoints", FRONT, "-o", "json"))
        assert [len(subset["addresses"]) for subset in endpoints["subsets"]] == [4]

    await eventually(behind)
    live = yaml.safe_load(await requirement.kubectl("get", "simulatordeployment", "llm-sim-minimal", "-o", "yaml"))
    assert len(live["status"]["endpoints"]) == 4
    for algorithm in ("LEAST_REQUEST", "ROUND_ROBIN"):
        balancing = {"spec": {"loadBalancing": {"enabled": True, "algorithm": algorithm}}}
        await requirement.kubectl(*patch, "--type=merge", "-p", f"\n{json.dumps(balancing, indent=2)}")
        await eventually(lambda algorithm=algorithm: balanced(requirement, algorithm))  # type: ignore[misc] # bound at once
    assert [row[0] for row in await rows(requirement, "destinationrule")] == ["NAME", f"{FRONT}-lb"]
    await requirement.kubectl("delete", "simulatordeployment", "llm-sim-minimal")
    await requirement.empties()


async def balanced(site: Site, algorithm: str) -> None:
    rule = (await site.get(DESTINATION_RULE, f"{FRONT}-lb"))["spec"]
    assert rule["host"] == f"{FRONT}.{site.namespace}.svc.cluster.local"
    assert rule["trafficPolicy"]["loadBalancer"] == {"simple": algorithm}


@asynccontextmanager
async def watching(site: Site, kind: str) -> AsyncIterator[list[list[str]]]:
    """Run `kubectl get -w` while the block runs; yields its lines, which become more."""
    program = site.plane.assets.directory / "kubectl"
    config = str(site.plane.kubeconfig("admin"))
    process = await asyncio.create_subprocess_exec(
        *(str(program), "--kubeconfig", config, "get", kind, "-n", site.namespace, "-w"),
        env=site.plane.environment,
        stdout=subprocess.PIPE,
    )
    lines: list[list[str]] = []

    async def read() -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            lines.append(line.decode().split())

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        try:
            yield lines
        finally:
            process.terminate()
            await process.wait()


async def shown(lines: list[list[str]], *counts: str) -> None:
    assert [*counts] in [line[1:3] for line in lines[1:] if len(line) == 4], lines


async def test_the_full_sample(requirement: Site, operated: OperatorProcess) -> None:
    await requirement.kubectl("apply", "-f", str(sample("full")))
    live = await requirement.ready("llm-sim-full")
    found = {row[0] for row in (await rows(requirement, "deployments"))[1:]}
    assert found == {
        "gaie-sim-epp",
        "infra-sim-inference-gateway",
        "infra-sim-inference-gateway-istio",
        "ms-sim-llm-d-modelservice-prefill",
        "ms-sim-llm-d-modelservice-decode",
    }
    service = yaml.safe_load(await requirement.kubectl("get", "svc", "infra-sim-inference-gateway", "-o", "yaml"))
    assert [(one["port"], one["targetPort"]) for one in service["spec"]["ports"]] == [(8080, 80)]
    for component, count in (("epp", 1), ("gateway", 2)):
        assert len(await rows(requirement, "pods", "-l", f"component={component}")) == count + 1
    assert live["status"]["gatewayURL"] == "http://infra-sim-inference-gateway.llm-d-sim.svc.cluster.local:8080"
    assert (live["status"]["replicas"], live["status"]["readyReplicas"]) == (4, 4)
    assert len(live["status"]["endpoints"]) == 4


@pytest.mark.parametrize("name", ["istio", "prefill_decode"])
async def test_the_other_samples(requirement: Site, operated: OperatorProcess, name: str) -> None:
    await requirement.kubectl("apply", "-f", str(sample(name)))
    await requirement.ready(f"llm-sim-{name.replace('_', '-')}")


async def test_scale_as_the_manual_step_was(site: Site, operated: OperatorProcess) -> None:
    await site.create()
    await site.ready()
    await site.kubectl("scale", "simulatordeployment", "stack", "--replicas=3")
    await site.kubectl("wait", "--for=condition=Ready", "simulatordeployment/stack", "--timeout=30s")

    async def counted() -> None:
        scale = json.loads(await site.kubectl("get", "simdep", "stack", "--subresource=scale", "-o", "json"))
        assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
        assert len(await site.list(POD, scale["status"]["selector"])) == 3

    await eventually(counted)


async def test_what_is_deleted_comes_back(site: Site, operated: OperatorProcess) -> None:
    await site.create(**EVERYTHING)
    await site.ready()
    before = await site.made()
    assert {name.partition("/")[0] for name in before} >= {"InferencePool", "HTTPRoute", "Gateway", "DestinationRule"}
    await site.kubectl("delete", *(name.lower() for name in before if not name.startswith("Service/")))
    await site.kubectl("delete", "service", *(name.partition("/")[2] for name in before if name.startswith("Service/")))

    async def back() -> None:
        after = await site.made()
        assert after.keys() == before.keys()
        assert not {one["metadata"]["uid"] for one in after.values()} & {
            one["metadata"]["uid"] for one in before.values()
        }

    await eventually(back)
    await site.ready()


VANDALS: dict[str, Any] = {
    "ServiceAccount": {"metadata": {"labels": {"component": "other"}}},
    "Role": {"rules": []},
    "RoleBinding": {"subjects": []},
    "ConfigMap": {"data": {"default-plugins.yaml": "x", "envoy.yaml": "x"}},
    "NetworkPolicy": {"spec": {"ingress": [{}]}},
    "Service": {"spec": {"selector": {"app.kubernetes.io/name": "other"}}},
    "Deployment": {"spec": {"replicas": 7, "template": {"spec": {"terminationGracePeriodSeconds": 33}}}},
    "InferencePool": {"spec": {"targetPorts": [{"number": 1}]}},
    "Gateway": {"spec": {"gatewayClassName": "other"}},
    "HTTPRoute": {"spec": {"rules": [{"backendRefs": [{"name": "other", "port": 1}]}]}},
    "DestinationRule": {"spec": {"host": "other"}},
}


async def test_what_is_edited_goes_back(site: Site, operated: OperatorProcess) -> None:
    await site.create(**EVERYTHING)
    await site.ready()
    before = {name: ours(one) for name, one in (await site.made()).items()}
    assert {name.partition("/")[0] for name in before} == VANDALS.keys()
    for kind, vandal in VANDALS.items():
        name = next(name for name in before if name.startswith(f"{kind}/"))
        await site.kubectl("patch", name.lower(), "--type=merge", "-p", json.dumps(vandal))

    async def back() -> None:
        after = {name: ours(one) for name, one in (await site.made()).items()}
        assert after == before

    await eventually(back)


def ours(live: Object) -> Object:
    """Return what of an object someone decides: not what the server counts, nor what others have added."""
    counted = ("resourceVersion", "generation", "managedFields", "annotations")
    metadata = {name: value for name, value in live["metadata"].items() if name not in counted}
    data = {name: text for name, text in live.get("data", {}).items() if text != "x"}
    return {**live, "metadata": metadata, "status": None, "data": data}


async def test_every_edit_is_applied(site: Site, operated: OperatorProcess) -> None:
    await site.create(epp=ON, decode=ON, inferenceGateway=ON | {"standard": ON})
    await site.ready()
    await site.edit(
        imagePullPolicy="Always",
        service={"port": 80, "type": "NodePort"},
        epp={"image": "pointsman:2", "verbosity": 4, "args": ["--tracing=true"], "port": 8101},
        decode={"image": "sim:2", "args": ["--max-loras", "3"], "port": 8300, "logVerbosity": 0},
        inferenceGateway={"standard": {"image": "envoy:2", "port": 8888, "resources": {"limits": {"cpu": "1500m"}}}},
    )
    await site.ready()
    found = await site.made()

    def container(name: str) -> Object:
        (only,) = found[f"Deployment/{name}"]["spec"]["template"]["spec"]["containers"]
        inside: Object = only
        return inside

    def ports(name: str) -> list[tuple[int, int]]:
        return [(one["port"], one["targetPort"]) for one in found[f"Service/{name}"]["spec"]["ports"]]

    picker, decode = container("gaie-sim-epp"), container("ms-sim-llm-d-modelservice-decode")
    assert (picker["image"], picker["args"][-1]) == ("pointsman:2", "--tracing=true")
    assert (decode["image"], decode["args"][-2:]) == ("sim:2", ["--max-loras", "3"])
    assert [decode["args"][decode["args"].index(flag) + 1] for flag in ("--v", "--port")] == ["0", "8300"]
    gateway = container("infra-sim-inference-gateway")
    assert (gateway["image"], gateway["resources"]["limits"]) == ("envoy:2", {"cpu": "1500m"})
    assert {one["imagePullPolicy"] for one in (picker, decode, gateway)} == {"Always"}
    assert ports("infra-sim-inference-gateway") == [(8888, 80)]
    assert (8101, 9002) in ports("gaie-sim-epp") and (8100, 9002) not in ports("gaie-sim-epp")
    assert ports(FRONT) == [(80, 8300)]
    assert found[f"Service/{FRONT}"]["spec"]["type"] == "NodePort"
    assert ports("ms-sim-llm-d-modelservice-decode") == [(8300, 8300)]


async def test_what_is_disabled_goes(site: Site, operated: OperatorProcess) -> None:
    await site.create(**EVERYTHING)
    await site.ready()
    off = {"enabled": False}
    for gone, change in (
        ({"DestinationRule"}, {"loadBalancing": off}),
        ({"Gateway", "HTTPRoute"}, {"gateway": None}),
        ({"InferencePool", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy"}, {"epp": off}),
    ):
        await site.edit(**change)
        await eventually(lambda gone=gone: without(site, gone))  # type: ignore[misc] # bound at once
    await site.edit(inferenceGateway={"istio": off})
    both = {f"{kind}/infra-sim-inference-gateway" for kind in ("ConfigMap", "Service", "Deployment")}
    await site.becomes(STAGES | both | {"Service/ms-sim-llm-d-modelservice-decode-pods"})
    await site.edit(inferenceGateway=off)
    await site.becomes(STAGES)
    assert (await site.ready())["status"].get("gatewayURL") is None


async def test_modes_switch_cleanly_both_ways(site: Site, operated: OperatorProcess) -> None:
    await site.create(replicas=1)
    await site.ready()
    await site.becomes(LEGACY)
    await site.edit(prefill=ON, decode=ON)
    await site.becomes(STAGES)
    live = await site.ready()
    assert (live["status"]["replicas"], live["status"]["readyReplicas"]) == (4, 4)
    selector = (await site.get(SERVICE, FRONT))["spec"]["selector"]
    assert selector["llm-d.ai/inferenceServing"] == "true"
    await site.edit(decode=None)
    await site.becomes({name for name in STAGES if not name.endswith("-decode")})
    await site.edit(prefill=None)
    await site.becomes(LEGACY)

    async def alone() -> None:  # no Pod of the stages is left for a selector to find
        found = await site.list(POD, "llm-d.ai/inferenceServing=true")
        assert [one["metadata"]["labels"]["llm-d.ai/role"] for one in found] == ["decode"]

    await eventually(alone)
    assert "DecodeReady" not in {one["type"] for one in (await site.ready())["status"]["conditions"]}


@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_deletion_leaves_nothing(site: Site, road: Road, cascade: str) -> None:
    async with operator(site.plane.kubeconfig("admin", server=road.server)):
        await site.create(**EVERYTHING)
        await site.ready()
        await quiet(lambda: len(road.calls))
        road.calls.clear()
        await site.kubectl("delete", "simulatordeployment", "stack", f"--cascade={cascade}", "--timeout=30s")
        await site.empties()
        await asyncio.sleep(0.5)
        await site.empties()  # and nothing came back
    assert road.count(site.namespace).keys() <= {"WATCH"}


async def test_deletion_while_nobody_runs(site: Site, plane: ControlPlane) -> None:
    async with operator(plane.kubeconfig("admin")):
        await site.create(**EVERYTHING)
        await site.ready()
    await site.kubectl("delete", "simulatordeployment", "stack", "--timeout=30s")
    await site.empties()
    async with operator(plane.kubeconfig("admin")) as process:
        for runtime in process.runtimes:
            await runtime.settled()
        await asyncio.sleep(0.5)
        assert requests(process)["PATCH"] == 0
    await site.empties()


async def test_orphans_are_taken_back_by_a_stack_of_the_same_name(site: Site, operated: OperatorProcess) -> None:
    await site.create(epp=ON)
    await site.ready()
    before = await site.made()
    await site.kubectl("delete", "simulatordeployment", "stack", "--cascade=orphan")
    assert (await site.made()).keys() == before.keys()
    await site.create(epp=ON)
    live = await site.ready()
    after = await site.made()
    assert {one["metadata"]["uid"] for one in after.values()} == {one["metadata"]["uid"] for one in before.values()}
    for one in after.values():
        assert [reference["uid"] for reference in one["metadata"]["ownerReferences"]] == [live["metadata"]["uid"]]
    await site.kubectl("delete", "simulatordeployment", "stack")
    await site.empties()


async def test_a_name_that_is_taken_is_not_touched_and_is_used_when_free(site: Site, operated: OperatorProcess) -> None:
    await site.kubectl("create", "configmap", "gaie-sim-epp", "--from-literal=mine=1")
    before = await site.get(CONFIG_MAP, "gaie-sim-epp")
    await site.create(epp=ON)
    message = await site.told("Conflict", "True", "NameTaken")
    assert f"configmaps {site.namespace}/gaie-sim-epp exists and belongs to kubectl-create" in message
    assert "spec.nameSuffix" in message
    assert await site.told("Ready", "False", "Conflict") == message
    assert await site.get(CONFIG_MAP, "gaie-sim-epp") == before
    assert await site.made() == {}  # nor is half a stack made
    await site.kubectl("delete", "configmap", "gaie-sim-epp")
    live = await site.ready()
    assert "Conflict" not in {one["type"] for one in live["status"]["conditions"]}


async def test_of_two_stacks_with_one_name_the_second_says_so_and_a_suffix_helps(
    site: Site, operated: OperatorProcess
) -> None:
    await site.create("first", **EVERYTHING)
    await site.ready("first")
    first = await site.made()
    await site.create("second", **EVERYTHING)
    message = await site.told("Conflict", "True", "NameTaken", "second")
    assert f"simulatordeployments.sim.llm-d.io/{site.namespace}/first" in message
    await site.edit("second", nameSuffix="-b", gateway={"routeName": "second-route"})
    await site.ready("second")
    both = await site.made()
    assert len(both) == 2 * len(first)
    for name, one in first.items():
        assert both[name]["metadata"]["uid"] == one["metadata"]["uid"]
    for stack in ("first", "second"):
        live = await site.ready(stack)
        assert (live["status"]["replicas"], len(live["status"]["endpoints"])) == (4, 4)
    await site.kubectl("delete", "simulatordeployment", "second")
    await site.becomes(set(first))


async def test_status_is_true_before_pods_are_ready_and_after(site: Site, operated: OperatorProcess) -> None:
    site.plane.pause("kwok")  # Pods stay as they were made
    try:
        await site.create(**EVERYTHING)
        message = await site.told("Ready", "False", "Progressing")
        assert "EPPReady is False: 0 of 1 Pods of gaie-sim-epp are available" in message

        async def counted() -> Object:
            status = (await site.get(SIMULATOR_DEPLOYMENT, "stack"))["status"]
            assert (status["replicas"], status["readyReplicas"], status["endpoints"]) == (4, 0, [])
            found: Object = status
            return found

        early = await eventually(counted)
        assert {one["status"] for one in early["conditions"] if one["type"].endswith("Ready")} == {"False"}
    finally:
        site.plane.resume("kwok")
    live = await site.ready()
    ready = {one["type"]: one["status"] for one in live["status"]["conditions"] if one["type"].endswith("Ready")}
    assert set(ready) == {
        *("Ready", "EPPReady", "PrefillReady", "DecodeReady", "GatewayReady", "IstioGatewayReady"),
    }
    assert set(ready.values()) == {"True"}
    pods = await site.list(POD, "llm-d.ai/inferenceServing=true")
    assert live["status"]["endpoints"] == sorted(f"{one['status']['podIP']}:8200" for one in pods)


async def test_nobody_is_ready_at_zero(site: Site, operated: OperatorProcess) -> None:
    await site.create(replicas=0)
    message = await site.told("Ready", "False", "ScaledToZero")
    assert message == "SimulatorsReady is False: ms-sim-stack-decode has 0 replicas: set more"
    await site.edit(replicas=1)
    live = await site.ready()
    assert live["status"]["readyReplicas"] == 1
    await site.edit(replicas=0)
    await site.told("Ready", "False", "ScaledToZero")

    async def empty() -> None:
        status = (await site.get(SIMULATOR_DEPLOYMENT, "stack"))["status"]
        assert (status["replicas"], status["readyReplicas"], status["endpoints"]) == (0, 0, [])

    await eventually(empty)


async def test_generations_and_dates(site: Site, operated: OperatorProcess) -> None:
    await site.create()
    first = await site.ready()
    await asyncio.sleep(1.1)  # dates are in whole seconds
    await site.edit(epp=ON)
    second = await site.ready()
    assert second["status"]["observedGeneration"] == second["metadata"]["generation"] == 2
    assert {one["observedGeneration"] for one in second["status"]["conditions"]} == {2}
    dates = [
        {one["type"]: one["lastTransitionTime"] for one in live["status"]["conditions"]} for live in (first, second)
    ]
    assert dates[1]["SimulatorsReady"] == dates[0]["SimulatorsReady"]  # it was ready all along
    assert dates[1]["EPPReady"] > dates[0]["SimulatorsReady"]


async def test_at_rest_there_is_not_one_request(site: Site, operated: OperatorProcess) -> None:
    for number in range(3):
        await site.create(f"stack-{number}", nameSuffix=f"-{number}", epp=ON, inferenceGateway=ON | {"standard": ON})
    for number in range(3):
        await site.ready(f"stack-{number}")
    await quiet(lambda: requests(operated))
    before = requests(operated)
    await asyncio.sleep(3)
    assert requests(operated) == before


async def test_a_restart_writes_nothing(site: Site, plane: ControlPlane) -> None:
    async with operator(plane.kubeconfig("admin")) as process:
        await site.create(**EVERYTHING, resources={"requests": {"cpu": "1", "memory": "1Gi"}})
        await site.ready()
        await quiet(lambda: requests(process))
    async with operator(plane.kubeconfig("admin")) as process:
        for runtime in process.runtimes:
            await runtime.settled()
        await asyncio.sleep(1)
        assert requests(process).keys() == {"GET", "WATCH"}


async def test_events_tell_what_went_wrong(site: Site, operated: OperatorProcess) -> None:
    await site.kubectl("create", "service", "clusterip", FRONT, "--tcp=80:80")
    await site.create()

    async def told() -> None:
        found = json.loads(await site.kubectl("get", "events", "-o", "json"))["items"]
        mine = [one for one in found if one["involvedObject"]["kind"] == "SimulatorDeployment"]
        assert [one["reason"] for one in mine] == ["Conflict"]
        assert re.search(rf"services {site.namespace}/{FRONT} exists and belongs to", mine[0]["message"])

    await eventually(told)


async def test_a_checksum_rolls_the_pods_when_the_configuration_changes(site: Site, operated: OperatorProcess) -> None:
    await site.create(epp=ON)
    await site.ready()
    before = await site.get(DEPLOYMENT, "gaie-sim-epp")
    await site.edit(replicas=3)
    await site.ready()
    assert (await site.get(DEPLOYMENT, "gaie-sim-epp"))["metadata"]["generation"] == before["metadata"]["generation"]
    await site.edit(prefill=ON)

    async def rolled() -> None:
        after = await site.get(DEPLOYMENT, "gaie-sim-epp")
        assert (
            after["spec"]["template"]["metadata"]["annotations"]
            != before["spec"]["template"]["metadata"]["annotations"]
        )

    async def selected() -> None:
        pool = await site.get(INFERENCE_POOL, "gaie-sim")
        assert pool["spec"]["selector"]["matchLabels"]["llm-d.ai/role"] == "prefill"

    await eventually(rolled)
    await eventually(selected)
