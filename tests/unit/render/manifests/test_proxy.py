"""Gateways that are Envoys of our own: what they are told, and how they start and stop."""

from typing import Any

import pytest
import yaml
from tests.unit.render.bootstraps import is_bootstrap
from tests.unit.render.stacks import (
    ALGORITHMS,
    BARE,
    CASES,
    ISTIO,
    ISTIO_ONLY,
    MESH,
    ON,
    POOL,
    STANDARD,
    Case,
    container,
    find,
    of_kind,
    rendered,
)

from pointsman.render.manifests.objects import CHECKSUM, Object
from pointsman.render.manifests.proxy import CONFIG_KEY
from pointsman.render.manifests.stack import Stack

GATEWAY = "infra-sim-inference-gateway"


def bootstraps(stack: Stack) -> dict[str, Object]:
    maps = of_kind(stack.objects, "ConfigMap")
    return {
        one["metadata"]["name"]: yaml.safe_load(one["data"][CONFIG_KEY]) for one in maps if CONFIG_KEY in one["data"]
    }


def clusters(stack: Stack) -> dict[str, Object]:
    (document,) = bootstraps(stack).values()
    return {one["name"]: one for one in document["static_resources"]["clusters"]}


def addressed(cluster: Object) -> list[tuple[str, int]]:
    endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    found = [one["endpoint"]["address"]["socket_address"] for one in endpoints]
    return [(one["address"], one["port_value"]) for one in found]


def listening(document: Object) -> set[tuple[str, int]]:
    found = [one.get("address", {}).get("socket_address") for one in document["static_resources"]["listeners"]]
    return {(one["address"], one["port_value"]) for one in found if one}


@pytest.mark.parametrize("case", [one for one in CASES if bootstraps(one.render())], ids=lambda case: case.name)
def test_the_official_classes_know_every_field(case: Case) -> None:
    for document in bootstraps(case.render()).values():
        assert is_bootstrap(document)


def test_the_admin_is_for_the_pod_alone() -> None:
    (document,) = bootstraps(rendered(epp=ON, **STANDARD)).values()
    admin = document["admin"]["address"]["socket_address"]
    assert (admin["address"], admin["port_value"]) == ("127.0.0.1", 19001)
    assert listening(document) == {("0.0.0.0", 80), ("0.0.0.0", 19000)}
    (deployment,) = (
        one for one in of_kind(rendered(**STANDARD).objects, "Deployment") if one["metadata"]["name"] == GATEWAY
    )
    assert [one["containerPort"] for one in container(deployment)["ports"]] == [80, 19000]


def test_with_a_picker_the_pick_is_obeyed_and_without_there_is_nobody_to_ask() -> None:
    asking = clusters(rendered(epp=ON, **STANDARD))
    assert addressed(asking["pickers"]) == [("gaie-sim-epp.llm-d-sim.svc.cluster.local", 9002)]
    assert asking["picked"]["type"] == "ORIGINAL_DST"
    assert not {"pickers", "picked"} & clusters(rendered(**STANDARD)).keys()


@pytest.mark.parametrize(("mode", "tiers"), [("FailOpen", 2), ("FailClose", 1)])
def test_gateway_and_pool_follow_the_failure_mode(mode: str, tiers: int) -> None:
    stack = rendered(POOL, epp=ON | {"failureMode": mode}, **STANDARD)
    (document,) = bootstraps(stack).values()
    assert len([one for one in document["static_resources"]["listeners"] if one["name"] != "ready"]) == tiers
    assert find(stack.objects, "InferencePool")["spec"]["endpointPickerRef"]["failureMode"] == mode
    assert stack.failure_mode == mode


def test_gateway_speaks_tls_to_a_picker_that_serves_it() -> None:
    plain = clusters(rendered(epp=ON, **STANDARD))["pickers"]
    secure = clusters(rendered(epp=ON | {"args": ["--secure-serving"]}, **STANDARD))["pickers"]
    (healthy,) = plain["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert healthy["endpoint"]["health_check_config"] == {"port_value": 9003}
    assert ("transport_socket" in plain, "transport_socket" in secure) == (False, True)
    assert "health_check_config" not in str(secure)  # that port is plaintext


@pytest.mark.parametrize(
    ("spec", "port"),
    [
        pytest.param({}, 8200, id="no stages"),
        pytest.param({"service": {"port": 9000}}, 9000, id="no stages, another port"),
        pytest.param({"decode": ON | {"port": 8300}}, 8300, id="decode on its own port"),
        pytest.param({"prefill": ON | {"port": 8400}}, 8400, id="prefill alone"),
    ],
)
def test_the_pods_are_found_by_the_headless_service(spec: dict[str, Any], port: int) -> None:
    stack = rendered(**STANDARD, **spec)
    (name,) = [one["metadata"]["name"] for one in stack.objects if one["metadata"]["name"].endswith("-pods")]
    headless = find(stack.objects, "Service", name)["spec"]
    servers = clusters(stack)["model-servers"]
    assert headless["clusterIP"] == "None"
    assert addressed(servers) == [(f"{name}.llm-d-sim.svc.cluster.local", port)]
    assert servers["type"] == "STRICT_DNS"
    assert [one["targetPort"] for one in headless["ports"]] == [port]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("facts", [BARE, ISTIO], ids=["bare", "istio"])
def test_balancing_is_the_clusters_own_policy(facts: Any, algorithm: str) -> None:
    stack = rendered(facts, loadBalancing=ON | {"algorithm": algorithm}, **STANDARD)
    (policy,) = clusters(stack)["model-servers"]["load_balancing_policy"]["policies"]
    expected = algorithm.replace("CONN", "REQUEST").lower()
    assert policy["typed_extension_config"]["name"] == f"envoy.load_balancing_policies.{expected}"


def test_limits_of_connections() -> None:
    limits = {"http1MaxPendingRequests": 7, "maxRequestsPerConnection": 3}
    servers = clusters(rendered(loadBalancing=ON | {"connectionPool": limits}, **STANDARD))["model-servers"]
    assert servers["circuit_breakers"]["thresholds"][0]["max_pending_requests"] == 7
    (options,) = servers["typed_extension_protocol_options"].values()
    assert options["common_http_protocol_options"]["max_requests_per_connection"] == 3


def test_balancing_that_is_not_enabled_changes_nothing() -> None:
    assert rendered(loadBalancing={"algorithm": "RANDOM"}, **STANDARD) == rendered(**STANDARD)


def test_another_configuration_rolls_the_pods_and_another_size_does_not() -> None:
    def checksum(**spec: Any) -> str:
        objects = rendered(**STANDARD, **spec).objects
        return str(find(objects, "Deployment", GATEWAY)["spec"]["template"]["metadata"]["annotations"][CHECKSUM])

    assert checksum() == checksum(replicas=7)
    assert len({checksum(), checksum(epp=ON), checksum(loadBalancing=ON | {"algorithm": "RANDOM"})}) == 3


def test_both_gateways_start_envoy_by_its_path_on_the_image_of_their_kind() -> None:
    for spec, name, image in (
        (STANDARD, GATEWAY, "cr.kgateway.dev/kgateway-dev/envoy-wrapper:v2.1.1"),
        (ISTIO_ONLY, f"{GATEWAY}-istio", "docker.io/istio/proxyv2:1.28.1"),
    ):
        only = container(find(rendered(**spec).objects, "Deployment", name))
        assert (only["command"], only["image"]) == (["/usr/local/bin/envoy"], image)
        assert only["args"][:2] == ["--config-path", f"/etc/envoy/{CONFIG_KEY}"]
        (mount,) = (one for one in only["volumeMounts"] if one["name"] == "config")
        assert mount["mountPath"] == "/etc/envoy"


def test_port_80_needs_no_privilege() -> None:
    pod = find(rendered(**STANDARD).objects, "Deployment", GATEWAY)["spec"]["template"]["spec"]
    assert pod["securityContext"]["sysctls"] == [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]


def test_it_drains_before_it_stops_and_within_its_grace() -> None:
    pod = find(rendered(**STANDARD).objects, "Deployment", GATEWAY)["spec"]["template"]["spec"]
    command = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert "/dev/tcp/127.0.0.1/19001" in command and "/drain_listeners?graceful" in command
    assert int(command.rpartition("sleep ")[2]) < pod["terminationGracePeriodSeconds"]


def test_where_istio_makes_the_gateway_we_make_none() -> None:
    assert bootstraps(rendered(MESH, epp=ON, **ISTIO_ONLY)) == {}
