"""The decisions in Envoy's bootstrap document that cost requests when they are lost.

That Envoy accepts the document and obeys it is proved in tests/envoy; here the official protobuf classes check the
spelling of every field, and each test names one consequence.
"""

from typing import Any

import pytest
from tests.unit.render.bootstraps import is_bootstrap

from pointsman.epp.body.parsers import DEFAULT, PARSERS
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.bootstrap import bootstrap
from pointsman.render.envoy.gateway import FailureMode, FilePool, Gateway, PickerPulse
from pointsman.render.envoy.limits import GatewayLimits
from pointsman.render.envoy.paths import INFERENCE

MODES: tuple[FailureMode, ...] = ("FailClose", "FailOpen")


def gateway(**changes: Any) -> Gateway:
    basis: dict[str, Any] = {
        "listen": Address("127.0.0.1", 8080),
        "admin": Address("127.0.0.1", 19000),
        "pickers": (Address("127.0.0.1", 9002),),
        "pool": FilePool("/state/endpoints.json"),
    }
    return Gateway(**basis | changes)


def managers(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        listener["name"]: listener["filter_chains"][0]["filters"][0]["typed_config"]
        for listener in document["static_resources"]["listeners"]
    }


def cluster(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in document["static_resources"]["clusters"] if c["name"] == name)
    return found


def ext_proc(document: dict[str, Any]) -> dict[str, Any]:
    for manager in managers(document).values():
        for item in manager["http_filters"]:
            if item["name"] == "envoy.filters.http.ext_proc":
                config: dict[str, Any] = item["typed_config"]
                return config
    raise AssertionError("nobody asks the picker")


def override_host(document: dict[str, Any]) -> dict[str, Any]:
    policy = cluster(document, "model-servers")["load_balancing_policy"]["policies"][0]
    config: dict[str, Any] = policy["typed_extension_config"]["typed_config"]
    return config


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_every_field_exists_in_the_official_classes(mode: FailureMode, tls: bool) -> None:
    assert is_bootstrap(bootstrap(gateway(failure_mode=mode, picker_tls=tls)))


def test_fail_close_sends_everything_through_the_picker() -> None:
    modes = ext_proc(bootstrap(gateway()))["processing_mode"]
    assert modes == {
        "request_header_mode": "SEND",
        "request_body_mode": "FULL_DUPLEX_STREAMED",
        "request_trailer_mode": "SEND",
        "response_header_mode": "SEND",
        "response_body_mode": "FULL_DUPLEX_STREAMED",
        "response_trailer_mode": "SEND",
    }


def test_fail_open_keeps_the_answer_out_of_the_pickers_hands() -> None:
    modes = ext_proc(bootstrap(gateway(failure_mode="FailOpen")))["processing_mode"]
    assert (modes["response_body_mode"], modes["response_trailer_mode"]) == ("NONE", "SKIP")


@pytest.mark.parametrize("mode", MODES)
def test_pick_travels_as_metadata_and_the_served_endpoint_travels_back(mode: FailureMode) -> None:
    document = bootstrap(gateway(failure_mode=mode))
    options = ext_proc(document)["metadata_options"]
    assert options["receiving_namespaces"]["untyped"] == ["envoy.lb"]
    assert options["forwarding_namespaces"]["untyped"] == ["envoy.lb"]
    config = override_host(document)
    path = {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}
    assert config["override_host_sources"] == [{"metadata": path}]  # never the header: a client can write that
    assert config["selected_host_key"]["path"] == [{"key": "x-gateway-destination-endpoint-served"}]


@pytest.mark.parametrize(("mode", "policy"), [("FailClose", "subset"), ("FailOpen", "round_robin")])
def test_only_fail_open_serves_a_pick_that_names_nobody(mode: FailureMode, policy: str) -> None:
    fallback = override_host(bootstrap(gateway(failure_mode=mode)))["fallback_policy"]["policies"][0]
    assert fallback["typed_extension_config"]["name"] == f"envoy.load_balancing_policies.{policy}"


def routes(manager: dict[str, Any]) -> list[dict[str, Any]]:
    return [route for host in manager["route_config"]["virtual_hosts"] for route in host["routes"]]


@pytest.mark.parametrize("mode", MODES)
def test_forged_headers_are_gone_before_anybody_reads_them(mode: FailureMode) -> None:
    first = managers(bootstrap(gateway(failure_mode=mode)))["gateway"]["http_filters"][0]
    removed = [item["remove"] for item in first["typed_config"]["mutations"]["request_mutations"]]
    assert "x-gateway-destination-endpoint" in removed


@pytest.mark.parametrize("mode", MODES)
def test_only_routes_to_what_is_picked_ask_the_picker(mode: FailureMode) -> None:
    """Not the listener: Envoy's own answers, which have no route, would wait for the picker."""
    document = bootstrap(gateway(failure_mode=mode))
    asking = [each for each in managers(document).values() if any(f.get("disabled") for f in each["http_filters"])]
    assert len(asking) == 1
    for route in routes(asking[0]):
        around = "headers" in route["match"] or "direct_response" in route
        assert ("envoy.filters.http.ext_proc" in route.get("typed_per_filter_config", {})) == (not around)


@pytest.mark.parametrize("mode", MODES)
def test_no_route_cuts_a_long_answer_and_every_route_can_send_the_body_again(mode: FailureMode) -> None:
    document = bootstrap(gateway(failure_mode=mode, retry_buffer_bytes=123))
    onwards = [route for m in managers(document).values() for route in routes(m) if "route" in route]
    assert {route["route"]["timeout"] for route in onwards} == {"0s"}
    assert {route["request_body_buffer_limit"] for route in onwards} == {123}


@pytest.mark.parametrize("mode", MODES)
def test_clients_reach_the_paths_that_are_listed_and_no_other(mode: FailureMode) -> None:
    *allowed, rest = routes(managers(bootstrap(gateway(failure_mode=mode, paths=("/v1/x", "/y/"))))["gateway"])
    assert [route["match"] for route in allowed] == [
        {"path_separated_prefix": "/v1/x"},
        {"path_separated_prefix": "/y"},
    ]
    assert (rest["match"], rest["direct_response"]["status"]) == ({"prefix": "/"}, 404)
    everything, _ = routes(managers(bootstrap(gateway(failure_mode=mode, paths=("/",))))["gateway"])
    assert everything["match"] == {"prefix": "/"}


def test_what_a_parser_reads_may_be_asked_for() -> None:
    """The picker's default parsers and the gateway's default paths are two lists of one thing."""
    suffixes = {suffix for name in DEFAULT for suffix in PARSERS[name].suffixes}
    for suffix in suffixes:
        assert any(
            f"/{suffix}/".startswith(f"{path}/") or f"/v1/{suffix}/".startswith(f"{path}/") for path in INFERENCE
        )


def test_the_inner_tier_takes_whatever_the_outer_one_took() -> None:
    found = managers(bootstrap(gateway(failure_mode="FailOpen")))
    outer, inner = found["gateway"], found["asks-the-picker"]
    assert inner["max_request_headers_kb"] > outer["max_request_headers_kb"]
    counts = [each["common_http_protocol_options"]["max_headers_count"] for each in (inner, outer)]
    assert counts[0] > counts[1]
    assert "request_timeout" not in inner and "request_headers_timeout" not in inner


def test_each_request_has_a_connection_of_its_own_between_the_tiers() -> None:
    (options,) = cluster(bootstrap(gateway(failure_mode="FailOpen")), "asks-the-picker")[
        "typed_extension_protocol_options"
    ].values()
    assert options["explicit_http_config"] == {"http_protocol_options": {}}


def test_probes_and_the_admin_are_not_among_the_connections_that_are_limited() -> None:
    document = bootstrap(gateway(ready=Address("127.0.0.1", 19001), limits=GatewayLimits(connections=7)))
    (monitor,) = document["overload_manager"]["resource_monitors"]
    assert monitor["typed_config"]["max_active_downstream_connections"] == 7
    assert document["admin"]["ignore_global_conn_limit"]
    exempt = {each["name"] for each in document["static_resources"]["listeners"] if "ignore_global_conn_limit" in each}
    assert exempt == {"ready"}


def test_hung_picker_is_bounded_by_keepalive_and_health() -> None:
    pickers = cluster(bootstrap(gateway(pulse=PickerPulse(keepalive_interval=0.5, health_interval=2))), "pickers")
    (options,) = pickers["typed_extension_protocol_options"].values()
    assert options["explicit_http_config"]["http2_protocol_options"]["connection_keepalive"]["interval"] == "0.5s"
    (check,) = pickers["health_checks"]
    assert (check["interval"], check["no_traffic_interval"]) == ("2s", "2s")
    assert pickers["common_lb_config"]["healthy_panic_threshold"] == {"value": 0}


def test_several_pickers_share_the_cluster_and_plaintext_has_no_transport_socket() -> None:
    two = (Address("127.0.0.1", 9002), Address("127.0.0.1", 9102))
    pickers = cluster(bootstrap(gateway(pickers=two, picker_tls=False)), "pickers")
    assert len(pickers["load_assignment"]["endpoints"][0]["lb_endpoints"]) == 2
    assert "transport_socket" not in pickers


def test_second_attempt_goes_around_the_picker() -> None:
    document = bootstrap(gateway(failure_mode="FailOpen"))
    inner = managers(document)["asks-the-picker"]
    around, ask = routes(inner)
    assert around["match"]["headers"][0]["range_match"]["start"] == 2
    assert "typed_per_filter_config" not in around
    assert "envoy.filters.http.ext_proc" in ask["typed_per_filter_config"]
    (mapper,) = inner["local_reply_config"]["mappers"]
    marker = mapper["headers_to_add"][0]["header"]["key"]
    outer_route, *_ = routes(managers(document)["gateway"])
    assert outer_route["route"]["retry_policy"]["retriable_headers"][0]["name"] == marker
    assert all(marker in route["response_headers_to_remove"] for route in (around, ask, outer_route))
