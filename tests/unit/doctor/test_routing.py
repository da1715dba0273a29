"""From the client to the backend: Gateways, routes, grants. Each is broken on purpose, and is the first cause named."""

import pytest
from tests.unit.doctor.breaks import (
    Break,
    assert_first_cause,
    change,
    drop,
    pages,
    probes,
    says,
    unready,
    unseen,
)
from tests.unit.doctor.scene import GATEWAY, POOL_CLUSTER, SCHED, SIM, live_route

FAULTS = [
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
