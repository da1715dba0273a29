"""What must be there before anything else: broken on purpose, and the first cause named."""

import pytest
from tests.unit.doctor.breaks import NO_POOLS, POOLS, Break, add, assert_first_cause, change, drop, says
from tests.unit.doctor.scene import definition

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
]


@pytest.mark.parametrize(("breaks", "check", "evidence", "fix"), FAULTS)
def test_the_first_cause_is_named(breaks: tuple[Break, ...], check: str, evidence: str, fix: str) -> None:
    assert_first_cause(breaks, check, evidence, fix)
