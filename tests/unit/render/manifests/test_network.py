"""Who reaches a picker: gateways, and for metrics whoever has a token."""

from typing import Any

import pytest
from tests.unit.render.stacks import (
    BARE,
    CASES,
    EVERYTHING,
    ISTIO,
    MESH,
    ON,
    Case,
    container,
    find,
    of_kind,
    pod_labels,
    rendered,
    resource,
    selects,
)

from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.policy import Policy
from pointsman.render.manifests.stack import stack

PICKER = "gaie-sim-epp"
GATEWAY_POD = {"gateway.networking.k8s.io/gateway-name": "anything"}
HERE = "llm-d-sim"


def admits(policy: Object, port: int, *, namespace: str, labels: dict[str, str], of_namespace: dict[str, str]) -> bool:
    """Tell whether a NetworkPolicy lets a Pod in, as its specification says."""

    def matches(selector: Object, given: dict[str, str]) -> bool:
        expressions = selector.get("matchExpressions", [])
        assert all(one["operator"] == "Exists" for one in expressions)
        wanted: dict[str, str] = selector.get("matchLabels", {})
        return wanted.items() <= given.items() and all(one["key"] in given for one in expressions)

    def is_peer(peer: Object) -> bool:
        there = peer.get("namespaceSelector")
        inside = namespace == policy["metadata"]["namespace"] if there is None else matches(there, of_namespace)
        return inside and matches(peer.get("podSelector", {}), labels)

    return any(
        port in {one["port"] for one in rule["ports"]} and ("from" not in rule or any(map(is_peer, rule["from"])))
        for rule in policy["spec"]["ingress"]
    )


def allowed(policy: Object, **who: Any) -> set[int]:
    who = {"namespace": HERE, "labels": {}, "of_namespace": {}} | who
    return {port for port in (9002, 9003, 9090, 15008, 1) if admits(policy, port, **who)}


def picker_policy(decided: Policy = Policy(), facts: Any = BARE, /) -> Object:  # noqa: B008 - frozen
    return find(stack(resource(epp=ON), facts, decided).objects, "NetworkPolicy")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_about_the_picker_and_nobody_else(case: Case) -> None:
    objects = case.render().objects
    policies = of_kind(objects, "NetworkPolicy")
    chosen = [
        container(one)["name"]
        for policy in policies
        for one in of_kind(objects, "Deployment")
        if selects(policy["spec"]["podSelector"]["matchLabels"], one)
    ]
    has_picker = case.resource.spec.epp is not None and case.resource.spec.epp.enabled
    assert chosen == (["epp"] if has_picker else [])


def test_the_gateways_of_the_stack_may_ask() -> None:
    objects = rendered(**EVERYTHING).objects
    policy = find(objects, "NetworkPolicy")
    gateways = [one for one in of_kind(objects, "Deployment") if container(one)["name"] == "envoy"]
    assert len(gateways) == 2
    for one in gateways:
        assert allowed(policy, labels=pod_labels(one)) == {9002, 9003, 9090}


def test_a_gateway_that_istio_makes_may_ask() -> None:
    objects = rendered(MESH, **EVERYTHING).objects
    labels = find(objects, "Gateway")["spec"]["infrastructure"]["labels"]
    assert allowed(find(objects, "NetworkPolicy"), labels=labels) >= {9002, 9003}


def test_gateways_of_other_namespaces_may_ask_unless_narrowed() -> None:
    there = {"namespace": "ingress", "labels": GATEWAY_POD, "of_namespace": {"team": "a"}}
    assert allowed(picker_policy(), **there) == {9002, 9003, 9090}
    assert allowed(picker_policy(Policy(gateway_namespaces=(("team", "a"),))), **there) == {9002, 9003, 9090}
    assert allowed(picker_policy(Policy(gateway_namespaces=(("team", "b"),))), **there) == {9090}


@pytest.mark.parametrize("namespace", [HERE, "elsewhere"])
def test_any_other_pod_gets_to_metrics_at_most(namespace: str) -> None:
    decided = Policy(metrics_namespaces=(("monitors", "true"),))
    assert allowed(picker_policy(), namespace=namespace) == {9090}
    assert allowed(picker_policy(decided), namespace=namespace) == set()
    assert allowed(picker_policy(decided), namespace=namespace, of_namespace={"monitors": "true"}) == {9090}


def test_simulators_of_the_stack_do_not_ask_pickers() -> None:
    objects = rendered(**EVERYTHING).objects
    asking = [one for one in of_kind(objects, "Deployment") if container(one)["name"] in {"prefill", "decode"}]
    assert [allowed(find(objects, "NetworkPolicy"), labels=pod_labels(one)) for one in asking] == [{9090}, {9090}]


def test_the_tunnel_of_an_ambient_mesh_is_for_gateways() -> None:
    policy = picker_policy(Policy(), ISTIO)
    assert 15008 in allowed(policy, labels=GATEWAY_POD) and 15008 not in allowed(policy)
    assert 15008 not in allowed(picker_policy(), labels=GATEWAY_POD)


def test_switched_off_there_is_none() -> None:
    made = stack(resource(epp=ON), BARE, Policy(network_policies=False)).objects
    assert not of_kind(made, "NetworkPolicy")
