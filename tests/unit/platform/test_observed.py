"""What a cluster has, put into words: whose it is, how it is, what to do."""

from typing import Any

import pytest
from tests.unit.bundle.made import crd
from tests.unit.platform.made import wanted

from pointsman.platform.marks import COMPONENT, marked
from pointsman.platform.observed import Observed, component_status, foreign, table, unready
from pointsman.platform.preflight import PreflightFacts, preflight
from pointsman.platform.providers import AKS, COREWEAVE, OTHER, NodeFacts, find_provider, localised, node_facts
from pointsman.platform.pullsecret import DockerConfig
from pointsman.platform.releases import Release
from pointsman.platform.webhooks import WebhookState, istio_webhooks, looping, missing_kinds

HELMS = {"meta.helm.sh/release-name": "thing", "meta.helm.sh/release-namespace": "thing-system"}
RELEASE = Release("thing", "thing-system", 1, "deployed", version="1.2.3", ours=True)


def live_crd(**labels: str) -> dict[str, Any]:
    made = crd()
    made["metadata"]["labels"] = labels
    made["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    return made


def live_deployment(ready: int = 1, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "manager", "namespace": "thing-system", "generation": 1, "annotations": HELMS, **metadata},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "availableReplicas": ready, "updatedReplicas": 1},
    }


OURS = {"widgets.example.com": live_crd(**{COMPONENT: "thing"})}
WELL = Observed(RELEASE, OURS, [live_deployment()])


def test_what_is_well_is_one_line() -> None:
    row = component_status(wanted(), WELL)
    assert row.cells() == ("thing", "1.2.3", "pointsman", "healthy", "–")
    assert component_status(wanted(version="1.10.0"), WELL).upgrade == "1.10.0"
    assert component_status(wanted(version="1.1.0"), WELL).upgrade == ""
    assert component_status(wanted(), Observed()).cells() == ("thing", "–", "–", "–", "–")
    assert table([row]).splitlines()[0].startswith("COMPONENT")


@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param(
            Observed(definitions={"widgets.example.com": live_crd()}), "belongs to somebody else", id="definition"
        ),
        pytest.param(
            Observed(definitions={"widgets.example.com": live_crd(**{"olm.managed": "true"})}),
            "belongs to OLM",
            id="OLM",
        ),
        pytest.param(
            Observed(Release("thing", "thing-system", 1, "deployed")),
            "release thing-system/thing is not ours",
            id="release",
        ),
        pytest.param(
            Observed(deployments=[live_deployment(namespace="other", annotations={})]),
            "Deployment other/manager belongs to",
            id="deployment",
        ),
    ],
)
def test_an_installation_of_others_is_found_and_named(found: Observed, told: str) -> None:
    assert told in "; ".join(foreign(wanted(), found))
    row = component_status(wanted(), found)
    assert row.by not in {"", "pointsman"}
    assert told in row.problems[0]


POD = {
    "metadata": {"name": "manager-1"},
    "status": {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}]},
}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param(Observed(RELEASE, OURS), "its Deployments are not there", id="nothing runs"),
        pytest.param(Observed(RELEASE, OURS, [live_deployment(0)]), "0 of 1 Pods ready", id="not ready"),
        pytest.param(
            Observed(RELEASE, OURS, [live_deployment(0)], pods=[POD]), "manager-1: ImagePullBackOff: no", id="no image"
        ),
        pytest.param(Observed(RELEASE, OURS, [live_deployment(generation=2)]), "not been looked at", id="not seen"),
        pytest.param(
            Observed(Release("thing", "thing-system", 2, "pending-upgrade", ours=True), OURS, [live_deployment()]),
            "release is pending-upgrade",
            id="Helm died",
        ),
        pytest.param(Observed(None, OURS), "there is no Helm release", id="no release"),
        pytest.param(
            Observed(RELEASE, OURS, [live_deployment()], namespaces={"a": {"metadata": {"deletionTimestamp": "now"}}}),
            "namespace a is being deleted",
            id="namespace goes",
        ),
        pytest.param(
            Observed(RELEASE, {"w": marked(crd(), component="thing", step="x")}, [live_deployment()]),
            "definition w is not served",
            id="not served",
        ),
        pytest.param(
            Observed(
                RELEASE,
                OURS,
                [live_deployment()],
                customs=[
                    {
                        "kind": "Widget",
                        "metadata": {"name": "w"},
                        "status": {"conditions": [{"type": "Ready", "status": "False", "message": "no room"}]},
                    }
                ],
            ),
            "Widget w: no room",
            id="operand",
        ),
        pytest.param(
            Observed(RELEASE, OURS, [live_deployment()], webhooks=[WebhookState("K", "n", 1, ignored=False)]),
            "K n lacks the annotation",
            id="a loop to come",
        ),
    ],
)
def test_what_is_not_well_says_why(found: Observed, told: str) -> None:
    row = component_status(wanted(), found)
    assert row.by == "pointsman"
    assert told in "; ".join(row.problems)
    assert told in table([row])


def test_a_pod_is_told_only_where_something_is_not_ready() -> None:
    assert unready(wanted(), Observed(RELEASE, OURS, [live_deployment()], pods=[POD])) == []


def webhook(name: str, kind: str = "MutatingWebhookConfiguration", *, place: str = "mesh", **metadata: Any) -> Any:
    service = {"clientConfig": {"service": {"namespace": place, "name": "istiod"}}}
    return {"kind": kind, "metadata": {"name": name, "generation": 1, **metadata}, "webhooks": [service]}


def test_both_of_istiods_webhooks_are_told_from_others() -> None:
    found = [
        webhook("istio-sidecar-injector"),
        webhook("istio-sidecar-injector-other", place="elsewhere"),
        webhook(
            "istio-validator-mesh", "ValidatingWebhookConfiguration", annotations={"sailoperator.io/ignore": "true"}
        ),
        webhook("cert-manager-webhook"),
    ]
    states = istio_webhooks(found, namespace="mesh")
    assert [(each.name, each.ignored) for each in states] == [
        ("istio-sidecar-injector", False),
        ("istio-validator-mesh", True),
    ]
    assert missing_kinds(states[:1]) == ["ValidatingWebhookConfiguration"]


def test_a_loop_shows_in_the_generation() -> None:
    before = istio_webhooks([webhook("istio-sidecar-injector", generation=5)], namespace="mesh")
    by_hand = istio_webhooks([webhook("istio-sidecar-injector", generation=6)], namespace="mesh")
    loop = istio_webhooks([webhook("istio-sidecar-injector", generation=9)], namespace="mesh")
    assert looping(before, by_hand) == []
    assert looping(before, loop) == loop
    assert looping([], loop) == []


def node(*labels: str, instance: str = "", gpus: str = "0") -> dict[str, Any]:
    found = dict.fromkeys(labels, "x") | ({"node.kubernetes.io/instance-type": instance} if instance else {})
    return {"metadata": {"labels": found}, "status": {"allocatable": {"nvidia.com/gpu": gpus}}}


def test_providers_are_told_by_labels_unless_asked_for() -> None:
    assert find_provider([node("kubernetes.azure.com/cluster")], asked="auto") is AKS
    assert find_provider([node("cks.coreweave.com/cluster")], asked="auto") is COREWEAVE
    assert find_provider([node()], asked="auto") is OTHER
    assert find_provider([node("kubernetes.azure.com/cluster")], asked="coreweave") is COREWEAVE


def test_gpus_and_machines_are_counted() -> None:
    nodes = [
        node("nvidia.com/gpu.present", instance="Standard_ND96isr_H100_v5", gpus="8"),
        node("gpu.nvidia.com/class", gpus="0"),
        node(instance="Standard_D4s_v5", gpus="4"),
    ]
    facts = node_facts(nodes)
    assert (facts.total, facts.gpu_nodes, facts.gpus) == (3, 1, 8)
    assert facts.known_instances(AKS) == ["Standard_ND96isr_H100_v5"]
    assert facts.known_instances(COREWEAVE) == []


def test_aks_load_balancers_probe_by_tcp_on_every_port() -> None:
    gateway = {"kind": "Gateway", "metadata": {"name": "g"}, "spec": {"listeners": [{"port": 80}, {"port": 443}]}}
    made = localised(gateway, AKS)["spec"]["infrastructure"]["annotations"]
    assert made == {
        "service.beta.kubernetes.io/port_80_health-probe_protocol": "tcp",
        "service.beta.kubernetes.io/port_443_health-probe_protocol": "tcp",
    }
    service = {"kind": "Service", "metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
    assert "port_80_health" in str(localised(service, AKS)["metadata"]["annotations"])
    assert localised(gateway, COREWEAVE) == gateway
    inner = {**service, "spec": {"type": "ClusterIP", "ports": [{"port": 80}]}}
    assert localised(inner, AKS) == inner


def facts(**changed: Any) -> PreflightFacts:
    return PreflightFacts(
        **{
            "kubernetes": "v1.33.1",
            "helm": "v3.18.0",
            "allowed": True,
            "provider": AKS,
            "nodes": NodeFacts(1, 1, 8, ("Standard_ND96isr_H100_v5",)),
            "pull_secret": DockerConfig(("r.example.com",)),
            "components": [(wanted(), WELL)],
            **changed,
        }
    )


def test_a_good_cluster_passes() -> None:
    assert {each.verdict for each in preflight(facts())} == {"ok"}


@pytest.mark.parametrize(
    ("changed", "check", "verdict"),
    [
        pytest.param({"kubernetes": "v1.27.9"}, "kubernetes", "fail", id="old Kubernetes"),
        pytest.param({"minimum": "1.34.0"}, "kubernetes", "fail", id="an operator wants a newer one"),
        pytest.param({"helm": "v3.9.0"}, "helm", "fail", id="old helm"),
        pytest.param({"helm": ""}, "helm", "fail", id="no helm"),
        pytest.param({"helm": "embedded, 0.1"}, "helm", "ok", id="embedded helm"),
        pytest.param({"allowed": False}, "rights", "fail", id="no administrator"),
        pytest.param({"provider": OTHER}, "provider", "note", id="unknown provider"),
        pytest.param({"nodes": NodeFacts(3)}, "gpus", "note", id="no GPU"),
        pytest.param({"nodes": NodeFacts(1, 1, 8, ("D4",))}, "instances", "note", id="other machines"),
        pytest.param({"pull_secret": DockerConfig((), ("r",))}, "pull secret", "note", id="no credentials"),
        pytest.param(
            {"components": [(wanted(), Observed(definitions={"widgets.example.com": live_crd()}))]},
            "thing",
            "fail",
            id="foreign",
        ),
        pytest.param(
            {"components": [(wanted(), Observed(namespaces={"x": {"metadata": {"deletionTimestamp": "now"}}}))]},
            "namespace",
            "fail",
            id="terminating",
        ),
    ],
)
def test_each_check_can_fail(changed: dict[str, Any], check: str, verdict: str) -> None:
    assert (check, verdict) in {(each.check, each.verdict) for each in preflight(facts(**changed))}
