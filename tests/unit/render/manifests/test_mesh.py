"""What a mesh and the Gateway API are told."""

from typing import Any

import pytest
import yaml
from tests.unit.render.stacks import ALGORITHMS, ISTIO, ISTIO_ONLY, MESH, ON, find, named, of_kind, rendered

from pointsman.render.envoy.paths import INFERENCE
from pointsman.render.manifests.facts import Facts

GATEWAY = "infra-sim-inference-gateway"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_rule_of_the_requirement(algorithm: str) -> None:
    rule = find(rendered(ISTIO, loadBalancing=ON | {"algorithm": algorithm}).objects, "DestinationRule")
    assert rule["apiVersion"] == "networking.istio.io/v1beta1"
    assert rule["metadata"]["name"] == "gaie-inference-scheduling-proxy-lb"
    assert rule["spec"] == {
        "host": "gaie-inference-scheduling-proxy.llm-d-sim.svc.cluster.local",
        "trafficPolicy": {"loadBalancer": {"simple": algorithm}},
    }


def test_a_pool_of_connections() -> None:
    objects = rendered(ISTIO, loadBalancing=ON | {"connectionPool": {"http1MaxPendingRequests": 5}}).objects
    policy = find(objects, "DestinationRule")["spec"]["trafficPolicy"]
    assert policy["connectionPool"] == {"http": {"http1MaxPendingRequests": 5, "maxRequestsPerConnection": 1}}


def test_the_rule_is_for_the_service_there_is() -> None:
    facts = Facts(istio=True, domain="example.internal")
    rule = find(rendered(facts, loadBalancing=ON, service={"name": "mine"}).objects, "DestinationRule")
    assert (rule["metadata"]["name"], rule["spec"]["host"]) == ("mine-lb", "mine.llm-d-sim.svc.example.internal")


def test_istio_is_told_replicas_image_and_resources() -> None:
    amounts = {"limits": {"cpu": "1"}}
    instance = ON | {"replicas": 3, "image": "proxy:1", "resources": amounts, "port": 8081}
    objects = rendered(MESH, inferenceGateway=ON | {"istio": instance}).objects
    gateway = find(objects, "Gateway", GATEWAY)["spec"]
    assert gateway["gatewayClassName"] == "istio"
    assert [one["port"] for one in gateway["listeners"]] == [8081]
    options = find(objects, "ConfigMap", gateway["infrastructure"]["parametersRef"]["name"])["data"]
    overlay = yaml.safe_load(options["deployment"])["spec"]
    assert overlay["replicas"] == 3
    assert overlay["template"]["spec"]["containers"] == [
        {"name": "istio-proxy", "image": "proxy:1", "resources": amounts}
    ]
    assert yaml.safe_load(options["service"]) == {"spec": {"type": "ClusterIP"}}


def test_istio_is_told_of_devices() -> None:
    instance = ON | {"resources": {"claims": [{"name": "nic"}]}}
    options = find(rendered(MESH, inferenceGateway=ON | {"istio": instance}).objects, "ConfigMap")["data"]
    pod = yaml.safe_load(options["deployment"])["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "nic", "resourceClaimTemplateName": "nic"}]


def test_pods_that_istio_makes_have_the_labels_that_people_read_logs_by() -> None:
    labels = find(rendered(MESH, **ISTIO_ONLY).objects, "Gateway")["spec"]["infrastructure"]["labels"]
    assert labels.items() >= {"component": "gateway", "app.kubernetes.io/gateway": GATEWAY}.items()


@pytest.mark.parametrize(
    ("facts", "spec", "backend"),
    [
        pytest.param(MESH, {"epp": ON}, ("InferencePool", "gaie-sim"), id="picker and pool"),
        pytest.param(MESH, {}, ("Service", "gaie-inference-scheduling-proxy"), id="no picker"),
        pytest.param(ISTIO, {"epp": ON}, ("Service", "gaie-inference-scheduling-proxy"), id="no pool"),
    ],
)
@pytest.mark.parametrize("gateway", [ISTIO_ONLY, {"gateway": ON}], ids=["inferenceGateway", "gateway"])
def test_a_route_leads_to_the_pool_if_a_picker_has_one(
    facts: Facts, spec: dict[str, Any], backend: tuple[str, str], gateway: dict[str, Any]
) -> None:
    rules = find(rendered(facts, **spec, **gateway).objects, "HTTPRoute")["spec"]["rules"]
    assert rules
    for rule in rules:
        (only,) = rule["backendRefs"]
        assert (only["kind"], only["name"]) == backend
        assert rule["timeouts"] == {"request": "0s"}


def test_a_route_has_the_paths_that_clients_may_ask_for() -> None:
    rules = find(rendered(MESH, **ISTIO_ONLY).objects, "HTTPRoute")["spec"]["rules"]
    assert all(len(rule["matches"]) <= 8 for rule in rules), "the first Gateway API that is v1 takes no more"
    matches = [match["path"] for rule in rules for match in rule["matches"]]
    assert [match["value"] for match in matches] == list(INFERENCE)
    assert {match["type"] for match in matches} == {"PathPrefix"}  # by segments, says the Gateway API


def test_a_service_backend_has_the_services_port() -> None:
    objects = rendered(ISTIO, service={"port": 80}, decode=ON | {"port": 8300}, **ISTIO_ONLY).objects
    rules = find(objects, "HTTPRoute")["spec"]["rules"]
    assert {backend["port"] for rule in rules for backend in rule["backendRefs"]} == {80}


def test_the_old_block_has_its_own_class_and_name() -> None:
    facts = Facts(gateway_api=True, gateway_classes=frozenset({"other"}))
    objects = rendered(facts, gateway=ON | {"className": "other", "routeName": "old"}).objects
    assert find(objects, "Gateway", "old")["spec"]["gatewayClassName"] == "other"
    (parent,) = find(objects, "HTTPRoute", "old")["spec"]["parentRefs"]
    assert (parent["kind"], parent["name"]) == ("Gateway", "old")


def test_the_old_block_and_its_successor_can_both_be_there_under_two_names() -> None:
    objects = rendered(MESH, gateway=ON | {"routeName": "old"}, **ISTIO_ONLY).objects
    assert [one for one in named(objects) if one.startswith("Gateway/")] == [f"Gateway/{GATEWAY}", "Gateway/old"]
    assert len(of_kind(objects, "HTTPRoute")) == 2
