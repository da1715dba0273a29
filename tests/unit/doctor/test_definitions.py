"""What must be there before anything else: broken on purpose, and the first cause named."""

import pytest
from tests.unit.doctor.breaks import NO_POOLS, POOLS, Break, Document, add, assert_first_cause, change, drop, says
from tests.unit.doctor.scene import GATEWAY, broken, definition

from pointsman.doctor.cluster.chain import examine
from pointsman.doctor.findings import first_cause


def istiod(name: str, *, namespace: str = "istio-system", enabled: bool = False, revision: str = "") -> Document:
    env = [{"name": "ENABLE_GATEWAY_API_INFERENCE_EXTENSION", "value": "true"}] if enabled else []
    container = {"name": "discovery", "image": "docker.io/istio/pilot:1.28.3-distroless", "env": env}
    labels = {"app": "istiod", **({"istio.io/rev": revision} if revision else {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": 1},
    }


FAULTS = [
    pytest.param(
        (lambda s: s.changes.update(unreachable="connection refused"),),
        "the API server answers",
        "refused",
        "kubectl cluster-info",
        id="API server away",
    ),
    pytest.param(
        (drop("CustomResourceDefinition", "httproutes.gateway.networking.k8s.io"),),
        "the Gateway API is installed",
        "httproutes",
        "standard-install.yaml",
        id="no Gateway API",
    ),
    pytest.param(
        (drop("CustomResourceDefinition", POOLS), drop("InferencePool", "pool")),
        "the inference definitions are installed",
        f"{POOLS} is missing",
        "pointsman crds install",
        id="no inference definitions",
    ),
    pytest.param(
        (
            drop("CustomResourceDefinition", POOLS),
            drop("InferencePool", "pool"),
            add(definition("inferencepools", "inference.networking.x-k8s.io", versions=("v1alpha2",))),
        ),
        "the inference definitions are installed",
        "only inferencepools.inference.networking.x-k8s.io",
        "pointsman crds install",
        id="old definitions alone",
    ),
    pytest.param(
        (change("CustomResourceDefinition", POOLS, "spec", "versions", 0, "name", to="v1alpha2"),),
        "the inference definitions are installed",
        "served as v1alpha2",
        "pointsman crds upgrade",
        id="old version",
    ),
    pytest.param(
        (change("CustomResourceDefinition", POOLS, "metadata", "deletionTimestamp", to="2026-11-16T02:59:00Z"),),
        "the inference definitions are installed",
        "being deleted since",
        "kubectl wait --for=delete",
        id="definition being replaced",
    ),
    pytest.param(
        (says("CustomResourceDefinition", POOLS, "Established", "Installing"),),
        "the inference definitions are installed",
        "Installing",
        "kubectl wait --for=condition=Established",
        id="definition not served yet",
    ),
    pytest.param(
        (says("HTTPRoute", "llm", "ResolvedRefs", "InvalidKind", NO_POOLS),),
        "Istio follows InferencePools",
        "InvalidKind",
        "set env deployment/istiod",
        id="flag off, pool status stale",
    ),
    pytest.param(
        (add(istiod("istiod-canary", namespace="mesh")),),
        "Istio follows InferencePools",
        "ENABLE_GATEWAY_API_INFERENCE_EXTENSION=unset",
        "kubectl -n mesh set env deployment/istiod-canary ENABLE_GATEWAY_API_INFERENCE_EXTENSION=true",
        id="flag off, istiod of another name",
    ),
    pytest.param(
        (
            add(istiod("istiod-new", enabled=True, revision="new"), istiod("istiod-old", revision="old")),
            change("Gateway", GATEWAY, "metadata", "labels", to={"istio.io/rev": "old"}),
        ),
        "Istio follows InferencePools",
        "ENABLE_GATEWAY_API_INFERENCE_EXTENSION=unset",
        "deployment/istiod-old",
        id="flag off in the gateway's revision",
    ),
]


@pytest.mark.parametrize(("breaks", "check", "evidence", "fix"), FAULTS)
def test_the_first_cause_is_named(breaks: tuple[Break, ...], check: str, evidence: str, fix: str) -> None:
    assert_first_cause(breaks, check, evidence, fix)


def test_of_several_istiods_one_that_follows_pools_is_enough() -> None:
    """Without a revision on the Gateway nobody knows which one makes it, and its status says that one does."""
    scene = broken(add(istiod("istiod-old"), istiod("istiod-new", enabled=True)))
    assert first_cause(examine(scene.cluster())) is None
