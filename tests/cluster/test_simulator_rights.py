"""How far an operator goes for SimulatorDeployments: its rights, who of two leads, what its administrator allows."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.cluster.conftest import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.live import written
from tests.cluster.packages import ROOT
from tests.cluster.simulators import EVERYTHING, ON, POD, Site, defined, operator, requests, without
from tests.cluster.widgets import quiet
from tests.waiting import eventually

from pointsman.api import SIMULATOR_DEPLOYMENT
from pointsman.kube import Key, Kind, LeaseTerms
from pointsman.operator.kinds import (
    ROLE,
    ROLE_BINDING,
)
from pointsman.operator.process import OperatorProcess
from pointsman.render.manifests.policy import Policy


@pytest.fixture(scope="module", autouse=True)
def _defined(plane: ControlPlane) -> Iterator[None]:
    with defined(plane):
        yield


async def granted(site: Site, *namespaces: str) -> None:
    """Let `visitor` do in these namespaces, and nowhere else, what config/rbac says of an operator."""
    rules = yaml.safe_load((ROOT / "config" / "rbac" / "role.yaml").read_text())["rules"]
    for namespace in namespaces:
        metadata = {"name": "operator", "namespace": namespace}
        reference = {"apiGroup": ROLE.group, "kind": "Role", "name": "operator"}
        subjects = [{"apiGroup": ROLE.group, "kind": "User", "name": "visitor"}]
        await site.client.create(ROLE, {"metadata": metadata, "rules": rules})
        await site.client.create(ROLE_BINDING, {"metadata": metadata, "roleRef": reference, "subjects": subjects})


async def test_in_named_namespaces_roles_are_enough(site: Site, plane: ControlPlane) -> None:
    other, third = (Site(plane, site.client, f"{site.namespace}-{name}") for name in ("b", "c"))
    for one in (other, third):
        await site.client.create(NAMESPACE, {"metadata": {"name": one.namespace}})
    await granted(site, site.namespace, other.namespace)
    watched = (site.namespace, other.namespace)
    async with operator(plane.kubeconfig("visitor"), namespaces=watched, lead=True) as process:
        for one in (site, other, third):
            await one.create(**EVERYTHING | {"gateway": None})
        for one in (site, other):
            live = await one.ready()
            assert len(live["status"]["endpoints"]) == 4
            assert "InferencePool/gaie-sim" in await one.made()
            words = "the operator may not read gatewayclasses.gateway.networking.k8s.io;"
            await one.told("ClusterAccess", "False", "Forbidden", words=words)
        assert await third.made() == {}
        assert process._ready().status == 200
    for one in (other, third):
        await one.clear()
        await site.client.delete(NAMESPACE, Key("", one.namespace))


async def test_without_any_right_it_is_not_ready_and_says_which(site: Site, plane: ControlPlane) -> None:
    async with operator(plane.kubeconfig("visitor"), namespaces=(site.namespace,)) as process:

        async def refused() -> None:
            answer = process._ready()
            assert answer.status == 503
            assert answer.body.startswith(b"simulatordeployments.sim.llm-d.io: forbidden (")

        await eventually(refused)


async def test_of_two_operators_one_works_and_the_other_takes_over(site: Site, plane: ControlPlane) -> None:
    terms = LeaseTerms(duration=2.0, renew_deadline=1.5, retry=0.2)
    config = plane.kubeconfig("admin")
    async with operator(config, lead=True, terms=terms) as second:
        async with operator(config, lead=True, terms=terms) as first:
            leader, standby = await leading(first, second)
            await site.create(epp=ON)
            await site.ready()
            assert requests(leader)["PATCH"] > 0
            assert requests(standby)["PATCH"] == 0
            lease = await site.client.get(
                Kind("coordination.k8s.io", "v1", "Lease", "leases"), Key("default", "sim-operator.llm-d.io")
            )
            assert lease["spec"]["holderIdentity"]
        # `first` has ended; whichever led, the other is on its own now.
        began = time.monotonic()
        await site.edit(replicas=3)
        live = await site.ready()
        assert live["status"]["readyReplicas"] == 3
        assert time.monotonic() - began < 20


async def leading(*processes: OperatorProcess) -> tuple[OperatorProcess, ...]:
    """Return the processes, the one that leads first."""

    async def asked() -> tuple[OperatorProcess, ...]:
        led = [one for one in processes if one.runtimes[0].election and one.runtimes[0].election.leading]
        assert len(led) == 1
        return (*led, *(one for one in processes if one not in led))

    return await eventually(asked)


BEYOND = [
    pytest.param(
        {"replicas": 1_000_000}, "spec.replicas is 1000000, and the operator allows at most 100", id="replicas"
    ),
    pytest.param(
        {"epp": ON | {"image": "evil.example/picker:1"}},
        "spec.epp.image is evil.example/picker:1, and the operator allows pickers, which get a token, only from ",
        id="a picker's image",
    ),
    pytest.param({"service": {"type": "LoadBalancer"}}, "spec.service.type is LoadBalancer", id="a LoadBalancer"),
]


@pytest.mark.parametrize(("change", "words"), BEYOND)
async def test_what_goes_beyond_the_policy_is_refused_and_what_runs_goes_on(
    site: Site, plane: ControlPlane, change: dict[str, Any], words: str
) -> None:
    async with operator(plane.kubeconfig("admin")) as process:
        await site.create(epp=ON)
        await site.ready()
        await quiet(lambda: requests(process))
        before = {name: written(one) for name, one in (await site.made()).items()}
        # Neither this nor what was asked for beside it: a resource is one wish.
        await site.edit(**change, logVerbosity=1)
        message = await site.told("Ready", "False", "LimitExceeded", words=words)
        assert "change it, or have the operator's administrator change --" in message
        await site.told("Progressing", "False", "LimitExceeded")
        await quiet(lambda: requests(process))
        assert {name: written(one) for name, one in (await site.made()).items()} == before
        status = (await site.get(SIMULATOR_DEPLOYMENT, "stack"))["status"]
        assert (status["readyReplicas"], len(status["endpoints"])) == (2, 2)  # which is the truth
        found = json.loads(await site.kubectl("get", "events", "-o", "json"))["items"]
        assert "LimitExceeded" in {one["reason"] for one in found}
        await site.edit(**dict.fromkeys(change) | {"epp": ON | {"image": None}})
        await site.ready()


async def test_an_administrator_allows_more(site: Site, plane: ControlPlane) -> None:
    policy = Policy(max_replicas=3, trusted_images=("evil.example/",), external_services=True)
    async with operator(plane.kubeconfig("admin"), policy=policy):
        await site.create(replicas=3, epp=ON | {"image": "evil.example/picker:1"}, service={"type": "NodePort"})
        await site.ready()
        await site.edit(replicas=4)
        await site.told(
            "Ready", "False", "LimitExceeded", words="spec.replicas is 4, and the operator allows at most 3"
        )


async def test_network_policies_go_when_the_administrator_switches_them_off(site: Site, plane: ControlPlane) -> None:
    async with operator(plane.kubeconfig("admin")):
        await site.create(epp=ON)
        await site.ready()
        assert "NetworkPolicy/gaie-sim-epp" in await site.made()
    async with operator(plane.kubeconfig("admin"), policy=Policy(network_policies=False)):
        await eventually(lambda: without(site, {"NetworkPolicy"}))
        await site.ready()


async def test_the_pickers_token_is_in_its_container_and_nowhere_else(site: Site, plane: ControlPlane) -> None:
    async with operator(plane.kubeconfig("admin")):
        await site.create(epp=ON, decode=ON, inferenceGateway=ON | {"standard": ON})
        await site.ready()
        holders = {
            container["name"]
            for pod in await site.list(POD)  # as admission left them
            for container in pod["spec"]["containers"]
            for mount in container.get("volumeMounts", ())
            if mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
        }
        assert holders == {"epp"}
