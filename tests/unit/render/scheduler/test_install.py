"""Whole installs: names, namespaces and labels of the requirement, what each block adds, and what is left to others."""

from typing import Any

import pytest
from tests.unit.render.scheduler.installs import (
    HERE,
    ISTIO,
    ON,
    THERE,
    WHOLE,
    WITHOUT_POOLS,
    find,
    merged,
    names,
    notice,
    rendered,
    resource,
    sample,
)

from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.policy import Policy
from pointsman.render.scheduler.install import Surroundings, install

GATEWAY = "infra-inference-scheduling-inference-gateway"
PICKER = "gaie-inference-scheduling-epp"
PROXY = "gaie-inference-scheduling-proxy"
POOL = "gaie-inference-scheduling"
NAMED_HERE = {
    *(f"{kind}/{HERE}/{PICKER}" for kind in ("ServiceAccount", "NetworkPolicy", "Service", "Deployment")),
    f"ConfigMap/{HERE}/{PICKER}-config",
}
RIGHTS = {f"{kind}/{THERE}/{PICKER}" for kind in ("Role", "RoleBinding")}
GATE = {f"Gateway/{HERE}/{GATEWAY}", f"HTTPRoute/{HERE}/llm-d-inference-scheduling"}
GRANT = f"ReferenceGrant/{THERE}/allow-scheduler-httproute-{HERE}-install"
FRONT = {f"Service/{THERE}/{PROXY}", f"InferencePool/{THERE}/{POOL}"}


def test_everything_in_two_namespaces() -> None:
    mirror = {f"{kind}/{THERE}/{PICKER}" for kind in ("Service", "DestinationRule")}
    rules = {f"DestinationRule/{THERE}/{PROXY}-lb", f"EnvoyFilter/{HERE}/epp-ext-proc"}
    assert names(rendered(destinationRule=ON)) == NAMED_HERE | RIGHTS | GATE | FRONT | mirror | rules | {GRANT}


def test_every_object_says_whose_it_is() -> None:
    for one in rendered(destinationRule=ON).objects:
        labels = one["metadata"]["labels"]
        assert labels["sim.llm-d.io/schedulerInstall"] == "install"
        assert labels["sim.llm-d.io/schedulerNamespace"] == HERE
        assert labels["app.kubernetes.io/name"] == "install"


def test_the_scheduler_may_be_in_a_third_namespace() -> None:
    found = names(rendered(schedulerNamespace="third"))
    assert not any(f"/{HERE}/" in name for name in found)
    assert f"Deployment/third/{PICKER}" in found
    made = find(rendered(schedulerNamespace="third"), "RoleBinding")
    assert made["subjects"] == [{"kind": "ServiceAccount", "name": PICKER, "namespace": "third"}]


def test_rights_are_where_the_pool_is() -> None:
    found = names(rendered(epp={"poolNamespace": "pools"}))
    assert {f"Role/pools/{PICKER}", f"RoleBinding/pools/{PICKER}", f"InferencePool/pools/{POOL}"} <= found
    grant = find(rendered(epp={"poolNamespace": "pools"}), "ReferenceGrant")
    assert grant["metadata"]["namespace"] == "pools"
    assert grant["spec"]["to"] == [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": POOL}]


def test_one_namespace_needs_no_grant_and_no_mirror() -> None:
    found = rendered(simulatorNamespace=HERE)
    assert found.way == "Native"
    assert not any(name.startswith(("ReferenceGrant/", "EndpointSlice/")) for name in names(found))
    assert sum(name.startswith("Service/") for name in names(found)) == 2


def test_the_gateway_carries_the_label_of_the_requirement() -> None:
    spec = find(rendered(), "Gateway")["spec"]
    assert spec["infrastructure"]["labels"]["app.kubernetes.io/gateway"] == GATEWAY
    assert "ext_proc" in spec["infrastructure"]["annotations"]["sidecar.istio.io/statsInclusionRegexps"]
    (listener,) = spec["listeners"]
    assert listener == {
        "name": "default",
        "port": 80,
        "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": "Same"}},
    }


def test_the_service_of_the_picker_leads_to_its_port() -> None:
    ports = find(rendered(epp={"port": 8100}), "Service", PICKER, namespace=HERE)["spec"]["ports"]
    assert {(one["port"], one["targetPort"], one["appProtocol"]) for one in ports} >= {
        (8100, 9002, "http2"),
        (9002, 9002, "http2"),
    }
    pool = find(rendered(epp={"port": 8100}), "InferencePool")["spec"]["endpointPickerRef"]
    assert (pool["name"], pool["port"]["number"]) == (PICKER, 8100)


def test_a_target_port_left_out_is_the_services() -> None:
    (port,) = find(rendered(proxyService={"port": 8000}), "Service", PROXY)["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (8000, 8000)
    assert find(rendered(proxyService={"port": 8000}), "InferencePool")["spec"]["targetPorts"] == [{"number": 8000}]


BLOCKS = [
    ("epp", {"EnvoyFilter", "Deployment", "ServiceAccount", "Role", "InferencePool"}, {"envoyFilter": None}),
    ("gateway", {"Gateway"}, {"routing": None}),
    ("routing", {"HTTPRoute", "ReferenceGrant", "EnvoyFilter", "EndpointSlice"}, {}),
    ("envoyFilter", {"EnvoyFilter"}, {}),
    ("destinationRule", set(), {}),
]


@pytest.mark.parametrize(("block", "kinds", "more"), BLOCKS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("how", ["null", "disabled"])
def test_a_block_that_is_off_adds_nothing(block: str, kinds: set[str], more: dict[str, Any], how: str) -> None:
    change: dict[str, Any] = {"destinationRule": ON, **more, block: None if how == "null" else {"enabled": False}}
    if block == "gateway" and how == "null":
        change["routing"] = None
    found = {one["kind"] for one in rendered(**change).objects}
    assert not found & kinds


def test_what_a_simulator_deployment_has_is_not_made_again() -> None:
    taken = frozenset({("Service", THERE, PROXY), ("DestinationRule", THERE, f"{PROXY}-lb")})
    found = rendered(around={"taken": taken}, destinationRule=ON)
    assert not {f"Service/{THERE}/{PROXY}", f"DestinationRule/{THERE}/{PROXY}-lb"} & names(found)
    assert notice(found, "ProxyService")[:2] == (True, "Existing")
    assert notice(found, "LoadBalancing")[:2] == (True, "Existing")


def pool(name: str, number: int) -> dict[str, Any]:
    return {"metadata": {"name": POOL}, "spec": {"endpointPickerRef": {"name": name, "port": {"number": number}}}}


def test_somebody_elses_pool_is_used_if_it_asks_our_picker() -> None:
    found = rendered(around={"pool": pool(PICKER, 9002)})
    assert f"InferencePool/{THERE}/{POOL}" not in names(found)
    assert notice(found, "Pool")[:2] == (True, "Existing")
    holds, reason, message = notice(rendered(around={"pool": pool("gaie-sim-epp", 8100)}), "Pool")
    assert (holds, reason) == (False, "OtherPicker")
    assert f"asks Service gaie-sim-epp, port 8100: set its endpointPickerRef to {PICKER}, port 9002" in message


def test_without_pools_the_picker_follows_labels() -> None:
    found = rendered(facts=WITHOUT_POOLS)
    args = find(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[:2] == ["--endpoint-selector", "llm-d.ai/role=decode,llm-d.ai/inferenceServing=true"]
    assert args[args.index("--pool-namespace") + 1] == THERE
    assert "InferencePool" not in {one["kind"] for one in found.objects}


def test_several_pickers_elect_one() -> None:
    found = rendered(epp={"replicas": 2})
    args = find(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--ha-enable-leader-election" in args
    leases = [one for one in find(found, "Role")["rules"] if one["resources"] == ["leases"]]
    assert [one["verbs"] for one in leases] == [["create"], ["get", "update"]]
    assert all(name.startswith(f"epp-{THERE}-{POOL}.") for name in leases[1]["resourceNames"])


def test_a_picker_knows_who_it_is_and_hangs_for_two_seconds_at_most() -> None:
    (container,) = find(rendered(), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"NAMESPACE", "POD_NAME"} <= {one["name"] for one in container["env"]}
    probe = container["readinessProbe"]
    assert (probe["periodSeconds"], probe["timeoutSeconds"], probe["failureThreshold"]) == (1, 1, 2)
    assert "--health-checking" in container["args"]


def test_its_pods_are_nobody_elses() -> None:
    """A SimulatorDeployment of the same name in the same namespace must not select them."""
    labels = find(rendered(), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels["app"] == PICKER
    assert labels["llm-d.ai/component"] != "epp"
    assert labels["sim.llm-d.io/stack"] == "schedulerinstall_install"


def test_a_changed_profile_rolls_the_picker() -> None:
    def checksum(profile: str) -> str:
        template = find(rendered(epp={"configProfile": profile}), "Deployment")["spec"]["template"]
        return str(template["metadata"]["annotations"]["sim.llm-d.io/config-checksum"])

    assert len({checksum(one) for one in ("default", "proxy-performance", "proxy-performance-by-backend")}) == 3


def test_a_picker_with_tls_has_a_rule_that_says_so() -> None:
    plain = find(rendered(), "DestinationRule")["spec"]["trafficPolicy"]
    tls = find(rendered(epp={"args": ["--secure-serving"]}), "DestinationRule")["spec"]["trafficPolicy"]
    assert "tls" not in plain
    assert tls["tls"] == {"mode": "SIMPLE", "insecureSkipVerify": True}
    assert plain["outlierDetection"] == tls["outlierDetection"]
    assert plain["outlierDetection"]["consecutiveGatewayErrors"] == 1


SLICE = {
    "addressType": "IPv4",
    "endpoints": [
        {"addresses": ["10.0.0.2"], "conditions": {"ready": True, "serving": True, "terminating": False}, "zone": "a"},
        {"addresses": ["10.0.0.1"], "conditions": {"ready": False, "serving": True, "terminating": True}},
    ],
}


def test_the_mirror_has_the_endpoints_of_the_pickers_service() -> None:
    found = rendered(around={"slices": (SLICE,)}, epp={"port": 8100})
    mirror = find(found, "EndpointSlice")
    assert mirror["metadata"]["labels"]["kubernetes.io/service-name"] == PICKER
    assert mirror["ports"] == [{"name": "grpc-ext-proc", "port": 9002, "protocol": "TCP", "appProtocol": "http2"}]
    assert [(one["addresses"], one["conditions"]["ready"]) for one in mirror["endpoints"]] == [
        (["10.0.0.1"], False),
        (["10.0.0.2"], True),
    ]
    front = find(found, "Service", PICKER, namespace=THERE)["spec"]
    assert "selector" not in front
    assert (front["ports"][0]["port"], front["ports"][0]["name"]) == (8100, mirror["ports"][0]["name"])


def test_the_mirror_has_a_slice_for_each_family() -> None:
    six = {"addressType": "IPv6", "endpoints": [{"addresses": ["fd00::1"], "conditions": {"ready": True}}]}
    found = rendered(around={"slices": (SLICE, six)})
    mirrors = [one for one in found.objects if one["kind"] == "EndpointSlice"]
    assert {(one["addressType"], one["metadata"]["name"]) for one in mirrors} == {
        ("IPv4", f"{PICKER}-ipv4"),
        ("IPv6", f"{PICKER}-ipv6"),
    }


def test_without_istio_the_gateway_is_an_envoy_of_our_own() -> None:
    found = rendered(facts=Facts())
    assert found.way == "OwnEnvoy"
    assert {f"Deployment/{HERE}/{GATEWAY}", f"Service/{HERE}/{GATEWAY}", f"Service/{THERE}/{PROXY}-pods"} <= names(
        found
    )
    assert not {"Gateway", "HTTPRoute", "EnvoyFilter", "DestinationRule"} & {one["kind"] for one in found.objects}
    assert found.gateway_url == f"http://{GATEWAY}.{HERE}.svc.cluster.local:80"
    config = find(found, "ConfigMap", GATEWAY)["data"]["envoy.yaml"]
    assert f"{PICKER}.{HERE}.svc.cluster.local" in config and f"{PROXY}-pods.{THERE}.svc.cluster.local" in config


def test_where_there_is_no_way_the_route_is_as_asked_and_the_condition_says_so() -> None:
    found = rendered(routing={"backendType": "Service"}, envoyFilter=None)
    assert found.way is None
    assert notice(found, "PickHonoured")[:2] == (False, "NobodyAsksThePicker")
    (backend,) = find(found, "HTTPRoute")["spec"]["rules"][0]["backendRefs"]
    assert (backend["kind"], backend["name"], backend["namespace"]) == ("Service", PROXY, THERE)


def test_without_filters_it_says_what_is_left_open() -> None:
    holds, reason, message = notice(rendered(envoyFilter=None), "PickerGuard")
    assert (holds, reason) == (False, "EnvoyFilterDisabled")
    assert "a request to one that hangs waits until the client gives up: set envoyFilter.enabled" in message
    assert notice(rendered(), "PickerGuard")[:2] == (True, "Guarded")


@pytest.mark.parametrize("name", ["", "_minimal"])
def test_the_samples_are_allowed_and_have_a_way(name: str) -> None:
    found = install(sample(name), Surroundings(facts=ISTIO))
    assert (found.breaches, found.way) == ((), "EndpointSlice")


BEYOND = [
    ({"epp": {"image": "evil.example/picker:1"}}, Policy(), "spec.epp.image is evil.example/picker:1"),
    ({"epp": {"replicas": 101}}, Policy(), "spec.epp.replicas is 101"),
    ({"gateway": {"serviceType": "LoadBalancer"}}, Policy(), "spec.gateway.serviceType is LoadBalancer"),
    ({"gateway": {"className": "other"}}, Policy(), "spec.gateway.className is other"),
    ({"gateway": {"image": "evil.example/e"}}, Policy(allowed_images=("docker.io/",)), "spec.gateway.image is evil"),
    (
        {},
        Policy(install_namespaces=("open",)),
        f"spec.simulatorNamespace is {THERE}, and the operator allows installs to",
    ),
    ({"schedulerNamespace": "x"}, Policy(install_namespaces=(THERE,)), "spec.schedulerNamespace is x"),
    (
        {"routing": {"parentGateway": {"name": "g", "namespace": "gates"}}},
        Policy(install_namespaces=(THERE,)),
        "spec.routing.parentGateway.namespace is gates",
    ),
]


@pytest.mark.parametrize(("change", "policy", "words"), BEYOND)
def test_beyond_the_policy(change: dict[str, Any], policy: Policy, words: str) -> None:
    (breach,) = rendered(policy=policy, **change).breaches
    assert breach.message.startswith(words)


def test_within_the_policy() -> None:
    assert rendered(policy=Policy(install_namespaces=(THERE,))).breaches == ()
    assert rendered(policy=Policy(external_services=True), gateway={"serviceType": "LoadBalancer"}).breaches == ()


def test_same_in_same_out() -> None:
    spec = resource(**merged(WHOLE, {}))
    assert install(spec, Surroundings(facts=ISTIO)) == install(spec, Surroundings(facts=ISTIO))
