"""What went wrong with scheduler installs of the operator that came before, each shown not to go wrong here.

A row is a defect that people met, as far as it shows in what is rendered. What shows only on a cluster (deletion,
drift, status) is in tests/cluster/test_schedulers.py, and who answers a request in tests/istio and tests/envoy.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.render.scheduler.installs import (
    HERE,
    ISTIO,
    ON,
    THERE,
    WITHOUT_POOLS,
    entries,
    find,
    names,
    notice,
    patches,
    rendered,
    resource,
)

from pointsman.api.crd import scheduler_definition
from pointsman.render.manifests.facts import Facts
from pointsman.render.scheduler.install import Installed, Surroundings, install

PICKER = "gaie-inference-scheduling-epp"
PROXY = "gaie-inference-scheduling-proxy"
FILTERED: dict[str, Any] = {"routing": {"way": "FilterPatch"}}


def elsewhere() -> None:
    found = rendered(schedulerNamespace="third")
    assert f"Deployment/third/{PICKER}" in names(found)


def leaks() -> None:
    """What is in other namespaces is known by the resource, whichever they are: a finalizer goes by it."""
    outside = [one for one in rendered().objects if one["metadata"]["namespace"] != HERE]
    assert outside and all(one["metadata"]["labels"]["sim.llm-d.io/schedulerInstall"] for one in outside)


def switched_off() -> None:
    assert {one["kind"] for one in rendered(epp=None, gateway=None, routing=None, envoyFilter=None).objects} == {
        "Service"
    }


def always_ready() -> None:
    assert {one.condition for one in rendered().components} == {"EPPReady", "GatewayReady", "RouteReady"}


def missing_definitions() -> None:
    for facts, type_, reason in (
        (WITHOUT_POOLS, "PickHonoured", "InferencePoolMissing"),
        (replace(ISTIO, istio=False), "LoadBalancing", "IstioMissing"),
    ):
        holds, said, _ = notice(rendered(facts=facts, destinationRule=ON, envoyFilter=None), type_)
        assert (holds, said) == (False, reason)


def target_port() -> None:
    ports = find(rendered(epp={"port": 8100}), "Service", PICKER, namespace=HERE)["spec"]["ports"]
    (container,) = find(rendered(epp={"port": 8100}), "Deployment")["spec"]["template"]["spec"]["containers"]
    listens = {one["containerPort"] for one in container["ports"]}
    assert {one["targetPort"] for one in ports} <= listens


def role_namespace() -> None:
    found = rendered(epp={"poolNamespace": "pools"})
    assert find(found, "Role")["metadata"]["namespace"] == "pools"


def no_pool() -> None:
    assert find(rendered(), "InferencePool")["spec"]["endpointPickerRef"]["name"] == PICKER


def no_roll() -> None:
    template = find(rendered(), "Deployment")["spec"]["template"]
    assert template["metadata"]["annotations"]["sim.llm-d.io/config-checksum"]


def ignored_parameter() -> None:
    assert "hashBlockSize" not in find(rendered(), "ConfigMap")["data"]["epp-config.yaml"]


def whole_spec_overwritten() -> None:
    """What is applied names one listener and no host: others' are theirs."""
    (listener,) = find(rendered(), "Gateway")["spec"]["listeners"]
    assert listener["name"] == "default"
    assert "hostnames" not in find(rendered(), "HTTPRoute")["spec"]


def grants_everything() -> None:
    (to,) = find(rendered(), "ReferenceGrant")["spec"]["to"]
    assert (to["kind"], to["name"]) == ("InferencePool", "gaie-inference-scheduling")
    two = [install(resource(name, **WHOLE_ON_ISTIO), Surroundings(facts=ISTIO)) for name in ("a", "b")]
    assert len({find(one, "ReferenceGrant")["metadata"]["name"] for one in two}) == 2
    assert not any(name.startswith("ReferenceGrant/") for name in names(rendered(simulatorNamespace=HERE)))


WHOLE_ON_ISTIO: dict[str, Any] = {"epp": ON, "gateway": ON, "routing": ON | {"backendType": "InferencePool"}}


def fights_for_the_service() -> None:
    assert f"Service/{THERE}/{PROXY}" not in names(rendered(proxyService={"enabled": False}))
    taken = frozenset({("Service", THERE, PROXY)})
    assert f"Service/{THERE}/{PROXY}" not in names(rendered(around={"taken": taken}))


def several_pickers() -> None:
    found = rendered(epp={"replicas": 2})
    (container,) = find(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"NAMESPACE", "POD_NAME"} <= {one["name"] for one in container["env"]}
    assert "--ha-enable-leader-election" in container["args"]
    assert any("leases" in rule["resources"] for rule in find(found, "Role")["rules"])


def not_in_the_schema() -> None:
    (version,) = scheduler_definition()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["required"] == ["simulatorNamespace"]
    assert len(spec["x-kubernetes-validations"]) == 3


def fixed_domain() -> None:
    found = rendered(facts=replace(ISTIO, domain="corp.example"), destinationRule=ON)
    hosts = [one["spec"]["host"] for one in found.objects if one["kind"] == "DestinationRule"]
    assert len(hosts) == 2 and all(host.endswith(".svc.corp.example") for host in hosts)
    assert "cluster.local" not in str(patches(found))


def bare_gateway() -> None:
    gateway = find(rendered(gateway={"routesFrom": "All"}), "Gateway")
    assert gateway["spec"]["listeners"][0]["allowedRoutes"] == {"namespaces": {"from": "All"}}
    assert gateway["spec"]["infrastructure"]["labels"]
    assert gateway["metadata"]["annotations"]["networking.istio.io/service-type"] == "ClusterIP"


def no_columns() -> None:
    (version,) = scheduler_definition()["spec"]["versions"]
    assert version["additionalPrinterColumns"]
    assert "observedGeneration" in version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


def replaced_filter() -> None:
    for change in ({}, FILTERED, {"routing": {"way": "RoutePatch"}}):
        assert "REPLACE" not in {one["patch"]["operation"] for one in patches(rendered(**change))}
    found = rendered(routing={"backendType": "Service"})
    assert found.way == "FilterPatch"  # a filter of our own, so the picker is asked although no pool is led to


def lost_metadata() -> None:
    for said in entries(rendered()).values():
        assert "envoy.filters.http.ext_proc" not in said  # Istio's own entry stays
    _, asking = patches(rendered(**FILTERED), "HTTP_FILTER")
    assert asking["patch"]["value"]["typed_config"]["metadata_options"]["receiving_namespaces"]["untyped"] == [
        "envoy.lb"
    ]


def modes(found: Installed) -> list[dict[str, str]]:
    return [
        entry["overrides"]["processing_mode"]
        for said in entries(found).values()
        for name, entry in said.items()
        if "ext" in name
    ]


def skipped_headers() -> None:
    found = modes(rendered(**FILTERED)) + modes(rendered(routing={"way": "RoutePatch"}))
    assert len(found) == 4 and {one["request_header_mode"] for one in found} == {"SEND"}
    assert {one["response_header_mode"] for one in found} == {"SEND"}  # so that what is in flight is counted down


def buffered_body() -> None:
    found = modes(rendered(**FILTERED)) + modes(rendered(routing={"way": "RoutePatch"}))
    assert {one["request_body_mode"] for one in found} == {"FULL_DUPLEX_STREAMED"}
    assert {one["request_trailer_mode"] for one in found} == {"SEND"}


def hidden_by_failing_open() -> None:
    _, asking = patches(rendered(**FILTERED), "HTTP_FILTER")
    assert asking["patch"]["value"]["typed_config"]["message_timeout"] == "1000s"
    closed = entries(rendered(**FILTERED, epp={"failureMode": "FailClose"}))
    allowed = {e["overrides"]["failure_mode_allow"] for said in closed.values() for n, e in said.items() if "ext" in n}
    assert allowed == {False}


def every_route() -> None:
    for change in ({}, FILTERED, {"routing": {"way": "RoutePatch"}}):
        for one in patches(rendered(**change), "HTTP_ROUTE"):
            name = one["match"]["routeConfiguration"]["vhost"]["route"]["name"]
            assert name.startswith(f"{HERE}.llm-d-inference-scheduling.")


def fixed_address() -> None:
    for change in ({}, FILTERED, {"routing": {"way": "RoutePatch"}}):
        found = patches(rendered(**change))
        assert all(one["patch"]["operation"] == "MERGE" for one in found if one["applyTo"] == "CLUSTER")
        assert "STATIC" not in str(found)


def log_lines() -> None:
    """Proof is who answered; the gateway is told to show what it asked, too, which Istio hides by default."""
    annotations = find(rendered(), "Gateway")["spec"]["infrastructure"]["annotations"]
    assert ".*ext_proc.*" in annotations["sidecar.istio.io/statsInclusionRegexps"]


def rights_it_does_not_hold() -> None:
    verbs = {verb for rule in find(rendered(epp={"replicas": 2}), "Role")["rules"] for verb in rule["verbs"]}
    assert verbs == {"list", "watch", "create", "get", "update"}  # of which the last three are for leases


def namespaces_unchecked() -> None:
    """Nothing is made in a namespace that nobody named; that one is missing is told on the cluster."""
    assert {one["metadata"]["namespace"] for one in rendered().objects} == {HERE, THERE}


def silent_takeover() -> None:
    """Every object carries its labels in what is applied, so an object that is there gets them, or is refused."""
    assert all(one["metadata"]["labels"] for one in rendered().objects)


def unwatched() -> None:
    from pointsman.operator.kinds import INSTALLED

    kinds = {(kind.api_version, kind.kind) for kind in INSTALLED}
    slices = ({"addressType": "IPv4", "endpoints": []},)
    made = [*rendered(destinationRule=ON, around={"slices": slices}).objects, *rendered(facts=Facts()).objects]
    assert {(one["apiVersion"], one["kind"]) for one in made} == kinds


ROWS: dict[str, Callable[[], None]] = {
    "33 a resource outside the scheduler's namespace": elsewhere,
    "34 objects of other namespaces leak": leaks,
    "35 what is switched off stays": switched_off,
    "36 ready whatever is not": always_ready,
    "37 missing definitions are passed over": missing_definitions,
    "38 objects are not watched": unwatched,
    "39 the Service leads to another port": target_port,
    "40 rights in the wrong namespace": role_namespace,
    "41 no pool": no_pool,
    "42 a changed configuration rolls nothing": no_roll,
    "43 a parameter that nobody reads": ignored_parameter,
    "44 labels and owners are lost on what is there": silent_takeover,
    "45 whole specs are overwritten": whole_spec_overwritten,
    "46 a grant for everything, and one for all": grants_everything,
    "47 two resources fight for the Service": fights_for_the_service,
    "48 rights beyond the operator's own": rights_it_does_not_hold,
    "49 several pickers do not know of each other": several_pickers,
    "50 what is invalid is retried for ever": not_in_the_schema,
    "51 namespaces are not looked at": namespaces_unchecked,
    "52 cluster.local is written down": fixed_domain,
    "53 a Gateway without anything": bare_gateway,
    "54 no columns, no generation": no_columns,
    "55 a filter is replaced that is not there": replaced_filter,
    "56 Istio's filter loses its metadata": lost_metadata,
    "57 headers are skipped": skipped_headers,
    "58 bodies are buffered": buffered_body,
    "59 failing open hides it all": hidden_by_failing_open,
    "60 requests in flight are never counted down": skipped_headers,
    "61 every route of the gateway is patched": every_route,
    "62 an address is written down": fixed_address,
    "63 log lines as proof": log_lines,
}


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    ROWS[row]()
