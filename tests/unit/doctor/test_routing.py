"""From the client to the backend: Gateways, routes, grants. Each is broken on purpose, and is the first cause named."""

from typing import Any

import pytest
from tests.unit.doctor.breaks import (
    Break,
    Document,
    assert_first_cause,
    change,
    drop,
    pages,
    probes,
    says,
    unready,
    unseen,
)
from tests.unit.doctor.scene import GATEWAY, POOL_CLUSTER, SCHED, SIM, Scene, broken, live_route, route

from pointsman.doctor.cluster.chain import examine
from pointsman.doctor.findings import first_cause

SAME_HOST = {"name": "sim", "namespace": SIM, "port": 8200}


def older(*, name: str = "older", backend: Document | None = None, **spec: Any) -> Break:
    """Another route with the same host and match, made before ours."""

    def break_(scene: Scene) -> None:
        scene.get("HTTPRoute", "llm")["metadata"]["creationTimestamp"] = "2026-11-16T00:00:00Z"
        other = route(name, backend or SAME_HOST)
        other["metadata"]["creationTimestamp"] = "2026-11-15T00:00:00Z"
        other["spec"] |= spec
        scene.add(other)

    return break_


FAULTS = [
    pytest.param(
        (older(), probes(picked=""), lambda s: setattr(s, "counts", {"streams_started": 0})),
        "no other route takes its requests",
        f"rule 0 of HTTPRoute {SCHED}/older",
        f"kubectl delete httproutes.gateway.networking.k8s.io -n {SCHED} older",
        id="an older route with the same match",
    ),
    pytest.param(
        (older(rules=[{"matches": [{"path": {"value": "/x"}}]}, {"backendRefs": [SAME_HOST]}]),),
        "no other route takes its requests",
        f"rule 1 of HTTPRoute {SCHED}/older",
        '[{"op":"remove","path":"/spec/rules/1"}]',
        id="an older route with a rule of the same match",
    ),
    pytest.param(
        (
            change("HTTPRoute", "llm", "metadata", "generation", to=2),
            change("HTTPRoute", "llm", "status", "parents", 0, "conditions", 0, "observedGeneration", to=2),
        ),
        "the route's references are resolved",
        "ResolvedRefs is about generation 1",
        "kubectl describe httproute",
        id="references of before",
    ),
    pytest.param(
        (probes(status=404, why="status 404"),),
        "the answer comes from the picked Pod",
        "status 404",
        f"kubectl get httproute -n {SCHED} llm -o yaml",
        id="no route takes the request",
    ),
    pytest.param(
        (change("Gateway", GATEWAY, "metadata", "name", to="other"),),
        "the Gateway is there",
        GATEWAY,
        "kubectl get gateways",
        id="wrong Gateway name",
    ),
    pytest.param(
        (change("Gateway", GATEWAY, "spec", "gatewayClassName", to="isto"),),
        "a controller makes the Gateway",
        "isto",
        '"gatewayClassName":"istio"',
        id="class with a typo",
    ),
    pytest.param(
        (says("GatewayClass", "istio", "Accepted", "Pending", status="Unknown"),),
        "a controller makes the Gateway",
        "Pending",
        "kubectl describe gatewayclass istio",
        id="class without a controller",
    ),
    pytest.param(
        (says("Gateway", GATEWAY, "Programmed", "AddressNotAssigned"),),
        "the Gateway is programmed",
        "AddressNotAssigned",
        "service-type=ClusterIP",
        id="no load balancer",
    ),
    pytest.param(
        (change("Gateway", GATEWAY, "metadata", "generation", to=2),),
        "the Gateway is programmed",
        "generation 1, the spec is 2",
        "kubectl describe",
        id="Gateway status stale",
    ),
    pytest.param(
        (unready(f"{GATEWAY}-istio-1", "ImagePullBackOff"),),
        "the gateway's Pods are ready",
        "ImagePullBackOff",
        "kubectl describe pod",
        id="gateway does not run",
    ),
    pytest.param(
        (change("HTTPRoute", "llm", "spec", "parentRefs", 0, "name", to="gw"),),
        "a route leads from the Gateway",
        GATEWAY,
        "kubectl get httproutes",
        id="wrong parent",
    ),
    pytest.param(
        (
            change(
                "HTTPRoute",
                "llm",
                "spec",
                "rules",
                0,
                "filters",
                to=[
                    {
                        "type": "ExtensionRef",
                        "extensionRef": {
                            "group": "networking.istio.io",
                            "kind": "EnvoyFilter",
                            "name": "epp-ext-proc-poc",
                        },
                    }
                ],
            ),
            says("HTTPRoute", "llm", "ResolvedRefs", "InvalidFilter", 'unsupported filter type "ExtensionRef"'),
            pages(routes=[]),
            probes(status=404),
        ),
        "the route has no ExtensionRef that Istio refuses",
        "EnvoyFilter epp-ext-proc-poc",
        '"path":"/spec/rules/0/filters/0"',
        id="ExtensionRef to an EnvoyFilter",
    ),
    pytest.param(
        (says("HTTPRoute", "llm", "Accepted", "NotAllowedByListeners"),),
        "the Gateway accepts the route",
        "NotAllowedByListeners",
        '"from":"All"',
        id="listener takes its own namespace only",
    ),
    pytest.param(
        (says("HTTPRoute", "llm", "Accepted", "NoMatchingListenerHostname"),),
        "the Gateway accepts the route",
        "NoMatchingListenerHostname",
        "kubectl get gateway",
        id="hostnames do not meet",
    ),
    pytest.param(
        (drop("ReferenceGrant", "from-scheduler"), says("HTTPRoute", "llm", "ResolvedRefs", "RefNotPermitted")),
        "references to other namespaces are granted",
        f"{SIM}/pool",
        "ReferenceGrant",
        id="missing grant",
    ),
    pytest.param(
        (change("ReferenceGrant", "from-scheduler", "spec", "to", 1, to={"group": "", "kind": "Service"}),),
        "references to other namespaces are granted",
        "InferencePool",
        "ReferenceGrant",
        id="grant for Services only",
    ),
    pytest.param(
        (
            change("HTTPRoute", "llm", "spec", "rules", 0, "backendRefs", 0, "name", to="poll"),
            says("HTTPRoute", "llm", "ResolvedRefs", "BackendNotFound"),
        ),
        "the rule leads to something that exists",
        f"{SIM}/poll is missing",
        '"value":"pool"',
        id="pool name with a typo",
    ),
    pytest.param(
        (
            lambda s: s.get("HTTPRoute", "llm")["spec"]["rules"][0]["backendRefs"].append(
                {
                    "group": "inference.networking.k8s.io",
                    "kind": "InferencePool",
                    "name": "pool2",
                    "namespace": SIM,
                    "weight": 50,
                }
            ),
            lambda s: s.add({**s.get("InferencePool", "pool"), "metadata": {"name": "pool2", "namespace": SIM}}),
        ),
        "the rule has one pool",
        "pool2 (weight 50)",
        "backendRefs",
        id="weighted pools",
    ),
    pytest.param(
        (
            change("HTTPRoute", "llm", "spec", "rules", 0, "filters", to=[{"type": "CORS", "cors": {}}]),
            pages(routes=[live_route(f"{SCHED}.llm.0", POOL_CLUSTER, {})]),
        ),
        "no CORS filter takes the picker away",
        "CORS filter",
        '"path":"/spec/rules/0/filters/0"',
        id="CORS on the rule",
    ),
    pytest.param(
        (change("HTTPRoute", "llm", "spec", "rules", 0, "filters", to=[{"type": "CORS", "cors": {}}]), unseen),
        "no CORS filter takes the picker away",
        "CORS filter",
        "kubectl patch httproutes",
        id="CORS, gateway not seen",
    ),
    pytest.param(
        (says("HTTPRoute", "llm", "ResolvedRefs", "UnsupportedValue", "odd"),),
        "the route's references are resolved",
        "odd",
        "kubectl describe httproute",
        id="references not resolved",
    ),
]


@pytest.mark.parametrize(("breaks", "check", "evidence", "fix"), FAULTS)
def test_the_first_cause_is_named(breaks: tuple[Break, ...], check: str, evidence: str, fix: str) -> None:
    assert_first_cause(breaks, check, evidence, fix)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(older(hostnames=["other.example"]), id="another host"),
        pytest.param(older(rules=[{"matches": [{"path": {"type": "Exact", "value": "/x"}}]}]), id="another path"),
        pytest.param(older(rules=route()["spec"]["rules"]), id="the same pool"),
        pytest.param(older(parentRefs=[{"name": "other"}]), id="another Gateway"),
    ],
)
def test_other_routes_of_other_requests_are_no_trouble(other: Break) -> None:
    assert first_cause(examine(broken(other).cluster())) is None
