"""From Deployments, Gateways and Pods to what status says: a table of what a cluster may show."""

from typing import Any

import pytest
from tests.unit.render.stacks import MESH, ON, STAGES, STANDARD, rendered

from pointsman.kube import Object
from pointsman.operator.findings import Findings, Observed, look
from pointsman.render.manifests.stack import Stack

SIMULATORS = "ms-sim-llm-sim-decode"
PICKER = "gaie-sim-epp"
GATEWAY = "infra-sim-inference-gateway"
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}


def deployment(
    *, available: int = 2, total: int = 2, updated: int | None = None, seen: int = 3, failure: str = ""
) -> Object:
    """Return a Deployment of generation 3 as its controller reports it."""
    conditions = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failure}]
    return {
        "metadata": {"generation": 3},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {
            "observedGeneration": seen,
            "replicas": total,
            "readyReplicas": available,
            "availableReplicas": available,
            "updatedReplicas": total if updated is None else updated,
            "conditions": conditions if failure else [],
        },
    }


def pod(name: str = "p", *, ready: bool = True, address: str = "10.0.0.1", **more: Any) -> Object:
    """Return a Pod of a simulator; `metadata` and `status` add to what it has."""
    labels = {"app": "a", "llm-d.ai/inferenceServing": "true"}
    conditions = [{"type": "Ready", "status": str(ready)}, *more.get("conditions", [])]
    return {
        "metadata": {"name": name, "labels": labels, **more.get("metadata", {})},
        "spec": {"containers": [{"ports": [{"containerPort": 8200}]}]},
        "status": {"podIP": address, "conditions": conditions, **more.get("status", {})},
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "decode", "image": "sim:1", "state": state}]}


def observe(
    stack: Stack, *pods: Object, gateways: dict[str, Object] | None = None, **deployments: Object | None
) -> Findings:
    """Look at a stack of which every Deployment is there and whole, but for those given by the first word."""
    found: dict[str, Object] = {}
    for one in stack.components:
        live = deployments.get(one.condition.removesuffix("Ready").lower(), deployment(available=one.replicas))
        if one.kind == "Deployment" and live is not None:
            found[one.name] = live
    return look(stack, Observed(deployments=found, gateways=gateways or {}, pods=pods))


def said(findings: Findings, type_: str = "Ready") -> tuple[str, str, str]:
    (only,) = (one for one in findings.conditions if one.type == type_)
    return only.status, only.reason, only.message


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        pytest.param(None, ("False", "Missing"), id="not there yet"),
        pytest.param(
            {"metadata": {"generation": 1}, "spec": {"selector": {"matchLabels": {}}}},
            ("False", "Progressing"),
            id="nobody has looked at it",
        ),
        pytest.param(deployment(available=0, total=0), ("False", "Progressing"), id="0 of 0 is not ready"),
        pytest.param(deployment(available=1), ("False", "Progressing"), id="one of two"),
        pytest.param(deployment(seen=2), ("False", "Progressing"), id="numbers of the spec before"),
        pytest.param(deployment(), ("True", "Available"), id="two of two"),
        pytest.param(deployment(total=3, updated=1), ("True", "Available"), id="old Pods serve while new ones come"),
        pytest.param(deployment(available=0, failure="exceeded quota: q"), ("False", "FailedCreate"), id="quota"),
    ],
)
def test_simulators(live: Object | None, expected: tuple[str, str]) -> None:
    found = observe(rendered(), simulators=live)
    assert said(found, "SimulatorsReady")[:2] == expected
    status, reason, _ = said(found)
    assert (status, reason) == (("True", "AllComponentsReady") if expected[0] == "True" else expected)
    assert found.ready is (expected[0] == "True")


@pytest.mark.parametrize(
    ("trouble", "reason", "words"),
    [
        pytest.param(
            {"status": waiting("ErrImagePull", "no such host")},
            "ErrImagePull",
            "Pod p: no such host (image sim:1)",
            id="image",
        ),
        pytest.param(
            {"status": waiting("CrashLoopBackOff")},
            "CrashLoopBackOff",
            "Pod p: container decode does not start (image sim:1)",
            id="crash",
        ),
        pytest.param(
            {"conditions": [UNSCHEDULED]},
            "Unschedulable",
            "Pod p: no node",
            id="no node",
        ),
        pytest.param({"status": waiting("ContainerCreating")}, "Progressing", "waiting for Pods", id="only young"),
    ],
)
def test_what_keeps_pods_from_being_ready_is_said(trouble: dict[str, Any], reason: str, words: str) -> None:
    found = observe(rendered(), pod(ready=False, **trouble), simulators=deployment(available=0))
    status, because, message = said(found, "SimulatorsReady")
    assert (status, because) == ("False", reason)
    assert message == f"0 of 2 Pods of {SIMULATORS} are available: {words}"
    assert said(found) == ("False", reason, f"SimulatorsReady is False: {message}")


def test_trouble_of_anothers_pod_is_not_ours() -> None:
    other = pod(ready=False, status=waiting("ErrImagePull"), metadata={"labels": {"app": "b"}})
    assert said(observe(rendered(), other, simulators=deployment(available=0)), "SimulatorsReady")[1] == "Progressing"


def test_zero_is_what_was_asked_for_and_serves_nobody() -> None:
    found = observe(rendered(replicas=0), simulators=deployment(available=0, total=0))
    assert said(found) == (
        "False",
        "ScaledToZero",
        f"SimulatorsReady is False: {SIMULATORS} has 0 replicas: set more",
    )
    assert (found.replicas, found.ready_replicas) == (0, 0)


def test_every_component_counts_and_each_is_told() -> None:
    stack = rendered(epp=ON, **STANDARD, **STAGES)
    for part in ("epp", "gateway", "prefill", "decode"):
        found = observe(stack, **{part: deployment(available=0)})
        assert [one.type for one in found.conditions if one.status == "False" and one.type.endswith("Ready")] == [
            "Ready",
            {"epp": "EPP"}.get(part, part.title()) + "Ready",
        ]


def test_all_that_is_missing_is_in_one_sentence() -> None:
    found = observe(rendered(epp=ON), epp=None, simulators=None)
    assert said(found)[2] == (
        f"EPPReady is False: Deployment {PICKER} does not exist yet; "
        f"SimulatorsReady is False: Deployment {SIMULATORS} does not exist yet"
    )


def test_of_several_pickers_the_leader_is_enough() -> None:
    found = observe(rendered(epp=ON | {"replicas": 2}), epp=deployment(available=1))
    assert said(found, "EPPReady") == ("True", "Available", f"1 of 2 Pods of {PICKER} are available")
    assert found.ready


def test_counts_are_of_both_stages_and_of_nothing_else() -> None:
    stack = rendered(epp=ON, **STANDARD, **STAGES)
    found = observe(stack, prefill=deployment(available=1, total=3), decode=deployment(available=2, total=2))
    assert (found.replicas, found.ready_replicas) == (5, 3)


@pytest.mark.parametrize(
    ("spec", "selector"),
    [
        pytest.param({}, "llm-d.ai/role=decode", id="no stages"),
        pytest.param({"prefill": ON}, "llm-d.ai/role=prefill", id="prefill alone"),
        pytest.param(STAGES, "llm-d.ai/inferenceServing=true", id="both"),
    ],
)
def test_the_selector_is_of_the_pods_that_are_counted(spec: dict[str, Any], selector: str) -> None:
    assert observe(rendered(**spec)).selector == f"app.kubernetes.io/name=llm-sim,{selector}"


def test_endpoints_are_addresses_that_answer() -> None:
    found = observe(
        rendered(epp=ON),
        pod("b", address="10.0.0.2"),
        pod("a", address="10.0.0.1"),
        pod("six", address="fd00::1"),
        pod("young", ready=False),
        pod("nowhere", address=""),
        pod("leaving", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod("picker", metadata={"labels": {"component": "epp"}}),
    )
    assert found.endpoints == ("10.0.0.1:8200", "10.0.0.2:8200", "[fd00::1]:8200")


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        pytest.param(deployment(total=3, updated=1), ("True", "RollingOut"), id="a roll-out"),
        pytest.param(deployment(seen=2), ("True", "RollingOut"), id="not yet looked at"),
        pytest.param(deployment(failure="exceeded quota", updated=1), ("True", "FailedCreate"), id="one that is stuck"),
        pytest.param(deployment(available=1), ("False", "Complete"), id="unready is not out of date"),
    ],
)
def test_progress(live: Object, expected: tuple[str, str]) -> None:
    assert said(observe(rendered(), simulators=live), "Progressing")[:2] == expected


def test_what_nobody_has_looked_at_yet() -> None:
    live = {"metadata": {"generation": 1}, "spec": {"selector": {"matchLabels": {}}}}
    found = observe(rendered(), simulators=live)
    message = f"0 of 2 Pods of {SIMULATORS} are"
    assert said(found, "Progressing") == ("True", "RollingOut", f"{message} up to date: it goes on")
    assert said(found, "SimulatorsReady")[2] == f"{message} available: waiting for Pods"
    assert (found.replicas, found.ready_replicas) == (0, 0)


def test_what_is_not_there_is_under_way() -> None:
    found = observe(rendered(), simulators=None)
    assert said(found, "Progressing") == ("True", "Missing", f"Deployment {SIMULATORS} does not exist yet")


def test_a_count_that_is_left_out_is_zero() -> None:
    """As Kubernetes writes it: of a Deployment with no Pods the status has no numbers."""
    live = {**deployment(), "status": {"observedGeneration": 3}}
    found = observe(rendered(replicas=0), simulators=live)
    assert said(found, "Progressing")[:2] == ("False", "Complete")
    assert (found.replicas, found.ready_replicas) == (0, 0)


def gateway(status: str = "", *, address: str = "", reason: str = "Programmed") -> dict[str, Object]:
    conditions = [{"type": "Programmed", "status": status, "reason": reason, "message": "words"}] if status else []
    addresses = [{"type": "IPAddress", "value": address}] if address else []
    spec = {"listeners": [{"port": 8080}]}
    return {GATEWAY: {"metadata": {}, "spec": spec, "status": {"conditions": conditions, "addresses": addresses}}}


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        pytest.param({}, ("False", "Missing", f"Gateway {GATEWAY} does not exist yet"), id="not there"),
        pytest.param(
            gateway(),
            ("False", "NotProgrammed", f"Gateway {GATEWAY} waits for the controller of its class"),
            id="nobody has looked at it",
        ),
        pytest.param(
            gateway("False", reason="AddressNotAssigned"),
            ("False", "AddressNotAssigned", f"Gateway {GATEWAY}: words"),
            id="refused",
        ),
        pytest.param(gateway("True"), ("True", "Programmed", f"Gateway {GATEWAY} is programmed"), id="programmed"),
    ],
)
def test_a_gateway_that_another_makes(live: dict[str, Object], expected: tuple[str, str, str]) -> None:
    found = observe(rendered(MESH, inferenceGateway=ON | {"istio": ON}), gateways=live)
    assert said(found, "IstioGatewayReady") == expected
    assert found.ready is (expected[0] == "True")


@pytest.mark.parametrize(
    ("gateways", "live", "url"),
    [
        pytest.param({}, {}, "", id="no gateway"),
        pytest.param({"standard": ON}, {}, f"http://{GATEWAY}.llm-d-sim.svc.cluster.local:8080", id="our own"),
        pytest.param(
            {"istio": ON},
            gateway("True"),
            f"http://{GATEWAY}-istio.llm-d-sim.svc.cluster.local:8080",
            id="Istio's, by name",
        ),
        pytest.param(
            {"istio": ON}, gateway("True", address="192.0.2.1"), "http://192.0.2.1:8080", id="Istio's, by address"
        ),
        pytest.param(
            {"istio": ON, "standard": ON},
            gateway("True", address="192.0.2.1"),
            f"http://{GATEWAY}.llm-d-sim.svc.cluster.local:8080",
            id="our own first",
        ),
    ],
)
def test_where_requests_go(gateways: dict[str, Any], live: dict[str, Object], url: str) -> None:
    assert observe(rendered(MESH, inferenceGateway=ON | gateways), gateways=live).gateway_url == url


def test_what_rendering_had_to_say_is_a_condition() -> None:
    found = observe(rendered(loadBalancing=ON))
    assert said(found, "LoadBalancing")[:2] == ("False", "IstioMissing")
    assert found.ready  # nothing of it keeps a request from being served


def test_what_is_done_in_part_is_a_condition_that_holds() -> None:
    assert said(observe(rendered(loadBalancing=ON, **STANDARD)), "LoadBalancing")[:2] == ("True", "GatewayOnly")


def test_a_failure_that_is_over_is_no_failure() -> None:
    live = deployment(available=0, failure="exceeded quota")
    live["status"]["conditions"] = [
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
        {"type": "ReplicaFailure", "status": "False", "reason": "FailedCreate", "message": "exceeded quota"},
    ]
    assert said(observe(rendered(), simulators=live), "SimulatorsReady")[1] == "Progressing"


def test_a_gateway_that_another_makes_is_no_roll_out_of_ours() -> None:
    found = observe(rendered(MESH, inferenceGateway=ON | {"istio": ON}))
    assert said(found, "Progressing")[:2] == ("False", "Complete")


def test_zero_that_nobody_has_looked_at_yet_is_under_way() -> None:
    live = {"metadata": {"generation": 1}, "spec": {"selector": {"matchLabels": {}}}}
    assert said(observe(rendered(replicas=0), simulators=live), "Progressing")[0] == "True"
