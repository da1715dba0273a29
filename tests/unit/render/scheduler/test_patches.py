"""The EnvoyFilter of each way: what it touches, in which order, completely, and nothing else."""

from typing import Any

import pytest
from tests.unit.render.scheduler.installs import (
    HERE,
    THERE,
    entries,
    find,
    notice,
    patches,
    pool_ref,
    rendered,
    route,
)

from pointsman.render.scheduler.patches import FORGET

OURS = {f"{HERE}.llm-d-inference-scheduling.{n}" for n in (0, 1)}
NATIVE = "envoy.filters.http.ext_proc"
OWN = f"llm-d.ext-proc.{HERE}.install"
SIX = {
    "request_header_mode": "SEND",
    "request_body_mode": "FULL_DUPLEX_STREAMED",
    "request_trailer_mode": "SEND",
    "response_header_mode": "SEND",
    "response_body_mode": "FULL_DUPLEX_STREAMED",
    "response_trailer_mode": "SEND",
}
WAYS: dict[str, dict[str, Any]] = {
    "Native": {"simulatorNamespace": HERE},
    "EndpointSlice": {},
    "RoutePatch": {"routing": {"way": "RoutePatch"}},
    "FilterPatch": {"routing": {"way": "FilterPatch"}},
}
every_way = pytest.mark.parametrize("way", WAYS)


@every_way
def test_the_way_is_the_one_that_is_meant(way: str) -> None:
    assert rendered(**WAYS[way]).way == way


@every_way
def test_forged_headers_go_before_anybody_asks_and_on_our_routes_only(way: str) -> None:
    found = rendered(**WAYS[way])
    first, *rest = patches(found, "HTTP_FILTER")
    assert (first["patch"]["operation"], first["patch"]["value"]["name"]) == ("INSERT_FIRST", FORGET)
    assert first["patch"]["value"]["typed_config"]["mutations"] == {}
    assert all(one["patch"]["operation"] == "INSERT_BEFORE" for one in rest)
    assert entries(found).keys() == OURS
    for said in entries(found).values():
        removed = [one["remove"] for one in said[FORGET]["mutations"]["request_mutations"]]
        assert "x-gateway-destination-endpoint" in removed


@every_way
def test_istios_own_filter_is_never_touched(way: str) -> None:
    for one in patches(rendered(**WAYS[way])):
        assert one["patch"]["operation"] in {"INSERT_FIRST", "INSERT_BEFORE", "MERGE"}
        assert one["match"]["context"] == "GATEWAY"
        if one["applyTo"] == "HTTP_FILTER":
            assert one["patch"]["value"]["name"] != NATIVE


@every_way
def test_the_pickers_cluster_notices_a_dead_or_hung_picker(way: str) -> None:
    found = [one for one in patches(rendered(**WAYS[way]), "CLUSTER") if "health_checks" in one["patch"]["value"]]
    (guard,) = found
    where = HERE if way != "EndpointSlice" else THERE
    host = f"gaie-inference-scheduling-epp.{where}.svc.cluster.local"
    assert guard["match"]["cluster"] == {"service": host, "portNumber": 9002}
    assert guard["patch"]["value"]["common_lb_config"] == {"healthy_panic_threshold": {"value": 0}}
    assert "connection_keepalive" in str(guard["patch"]["value"]["typed_extension_protocol_options"])


def test_a_picker_that_says_nothing_of_its_health_is_not_asked() -> None:
    found = rendered(epp={"args": ["--health-checking=false"]})
    (guard,) = patches(found, "CLUSTER")
    assert "health_checks" not in guard["patch"]["value"]
    assert "connection_keepalive" in str(guard["patch"]["value"])


@every_way
def test_the_filter_is_where_the_gateway_is_and_for_its_pods(way: str) -> None:
    document = find(rendered(**WAYS[way]), "EnvoyFilter")
    assert document["metadata"]["namespace"] == HERE
    labels = document["spec"]["workloadSelector"]["labels"]
    assert labels == {"gateway.networking.k8s.io/gateway-name": "infra-inference-scheduling-inference-gateway"}


def test_a_gateway_of_others_is_patched_where_it_is() -> None:
    parent = {"name": "theirs", "namespace": "gates"}
    document = find(rendered(gateway=None, routing={"parentGateway": parent}, around={"gateway": GATE}), "EnvoyFilter")
    assert document["metadata"]["namespace"] == "gates"
    assert document["spec"]["workloadSelector"]["labels"] == {"gateway.networking.k8s.io/gateway-name": "theirs"}


GATE = {"metadata": {"name": "theirs", "namespace": "gates"}, "spec": {"gatewayClassName": "istio"}}


def test_pods_may_be_selected_by_other_labels() -> None:
    document = find(rendered(envoyFilter={"workloadSelector": {"app": "gw"}, "name": "mine"}), "EnvoyFilter")
    assert (document["metadata"]["name"], document["spec"]["workloadSelector"]) == ("mine", {"labels": {"app": "gw"}})


@pytest.mark.parametrize("way", ["Native", "EndpointSlice"])
def test_where_istio_asks_by_itself_no_route_says_how(way: str) -> None:
    assert all(said.keys() == {FORGET} for said in entries(rendered(**WAYS[way])).values())


@pytest.mark.parametrize(("way", "name"), [("RoutePatch", NATIVE), ("FilterPatch", OWN)])
def test_an_entry_is_complete(way: str, name: str) -> None:
    cluster = f"outbound|9002||gaie-inference-scheduling-epp.{HERE}.svc.cluster.local"
    found = rendered(**WAYS[way], epp={"failureMode": "FailClose"})
    for said in entries(found).values():
        overrides = said[name]["overrides"]
        assert overrides["grpc_service"] == {"envoy_grpc": {"cluster_name": cluster}}
        assert overrides["processing_mode"] == SIX
        assert overrides["failure_mode_allow"] is False


@pytest.mark.parametrize(("way", "name"), [("RoutePatch", NATIVE), ("FilterPatch", OWN)])
def test_in_fail_open_the_answer_stays_out_of_the_pickers_hands(way: str, name: str) -> None:
    for said in entries(rendered(**WAYS[way])).values():
        overrides = said[name]["overrides"]
        assert overrides["failure_mode_allow"] is True
        assert overrides["processing_mode"] == SIX | {"response_body_mode": "NONE", "response_trailer_mode": "SKIP"}


def test_our_own_filter_is_off_but_for_our_routes_and_takes_picks() -> None:
    found = rendered(**WAYS["FilterPatch"])
    _, asking = patches(found, "HTTP_FILTER")
    value = asking["patch"]["value"]
    assert (value["name"], value["disabled"]) == (OWN, True)
    chain = asking["match"]["listener"]["filterChain"]["filter"]
    assert chain["subFilter"] == {"name": "envoy.filters.http.router"}
    namespaces = value["typed_config"]["metadata_options"]
    assert namespaces["receiving_namespaces"] == namespaces["forwarding_namespaces"] == {"untyped": ["envoy.lb"]}
    assert value["typed_config"]["message_timeout"] == "1000s"


def test_the_services_own_cluster_is_made_to_follow() -> None:
    found = rendered(**WAYS["FilterPatch"])
    (obey,) = (one for one in patches(found, "CLUSTER") if "load_balancing_policy" in one["patch"]["value"])
    host = f"gaie-inference-scheduling-proxy.{THERE}.svc.cluster.local"
    assert obey["match"]["cluster"] == {"service": host, "portNumber": 8200}
    text = str(obey["patch"]["value"])
    assert "override_host" in text and "'header'" not in text  # a client could have written the header


def test_two_installs_on_one_gateway_have_filters_of_their_own() -> None:
    _, asking = patches(rendered(**WAYS["FilterPatch"]), "HTTP_FILTER")
    assert asking["patch"]["value"]["name"].endswith(f".{HERE}.install")


CORS = {"filters": [{"type": "CORS", "cors": {"allowOrigins": ["*"]}}]}


def test_a_cors_filter_on_anothers_route_is_repaired() -> None:
    theirs = route([{"backendRefs": [pool_ref()]}, {"backendRefs": [pool_ref()], **CORS}])
    found = rendered(around={"others": (theirs,)})
    assert notice(found, "RoutesHonoured")[:2] == (True, "Repaired")
    repaired = entries(found)
    assert repaired.keys() == OURS | {f"{HERE}.mine.1"}  # and not rule 0, which is in order
    overrides = repaired[f"{HERE}.mine.1"][NATIVE]["overrides"]
    host = f"gaie-inference-scheduling-epp.{THERE}.svc.cluster.local"
    assert overrides["grpc_service"] == {"envoy_grpc": {"cluster_name": f"outbound|9002||{host}"}}


TROUBLE = [
    pytest.param(
        [{"backendRefs": [pool_ref()], **CORS}], "CORS", "remove the filter", {"envoyFilter": None}, id="cors"
    ),
    pytest.param(
        [{"name": "chat", "backendRefs": [pool_ref()], **CORS}],
        "CORS",
        "remove the filter, or the rule's name",
        {},
        id="cors on a rule with a name",
    ),
    pytest.param(
        [{"backendRefs": [pool_ref(weight=50), pool_ref("other", weight=50)]}],
        "WeightedPools",
        "rule 0 of HTTPRoute sched/mine leads to 2 pools, and the gateway asks the picker of the last one for all of "
        "them: make a rule for each pool",
        {},
        id="weighted pools",
    ),
]


@pytest.mark.parametrize(("rules", "reason", "words", "change"), TROUBLE)
def test_a_route_for_which_picks_do_not_count_is_refused(
    rules: list[dict[str, Any]], reason: str, words: str, change: dict[str, Any]
) -> None:
    found = rendered(around={"others": (route(rules),)}, **change)
    holds, said, message = notice(found, "RoutesHonoured")
    assert (holds, said) == (False, reason)
    assert words in message


QUIET = [
    pytest.param(route([{"backendRefs": [pool_ref()]}]), id="in order"),
    pytest.param(route([{"backendRefs": [{"kind": "Service", "name": "x"}], **CORS}]), id="to a Service"),
    pytest.param(route([{"backendRefs": [pool_ref("other")], **CORS}]), id="another pool"),
    pytest.param(
        route([{"backendRefs": [pool_ref()], **CORS}]) | {"spec": {"parentRefs": []}}, id="not on our gateway"
    ),
    pytest.param(route([]), id="no rules"),
]


@pytest.mark.parametrize("theirs", QUIET)
def test_other_routes_are_nobodys_business(theirs: dict[str, Any]) -> None:
    found = rendered(around={"others": (theirs,)})
    assert notice(found, "RoutesHonoured")[:2] == (True, "NoTrouble")
    assert entries(found).keys() == OURS
