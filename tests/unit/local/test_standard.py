"""The stack of `pointsman up` without a file: which resource the flags are, and what this machine lays over it."""

import json
from pathlib import Path
from typing import Any

import pytest

from pointsman.core import flags
from pointsman.core.errors import UserError
from pointsman.local import programs
from pointsman.local.plan import Deployment, StackPlan
from pointsman.local.several import short_names
from pointsman.local.standard import Places, Settings, plan, resource
from pointsman.local.state import Folder
from pointsman.render.envoy.addresses import Address

FOLDER = Folder(Path("/state"))


def here(port: int) -> Address:
    return Address("127.0.0.1", port)


PLACES = Places(
    gateway=here(8080), admin=here(19000), picker_grpc=here(9002), picker_health=here(9003), picker_metrics=here(9090)
)


def settings(**changes: Any) -> Settings:
    basis: dict[str, Any] = {
        "places": PLACES,
        "first_simulator_port": 8200,
        "replicas": 3,
        "model": "m",
        "envoy_workers": 2,
    }
    return Settings(**basis | changes)


def planned(**changes: Any) -> StackPlan:
    return plan(settings(**changes), folder=FOLDER)


def part(role: str, **changes: Any) -> Deployment:
    (found,) = (each for each in planned(**changes).deployments if each.role == role)
    return found


def envoy_of(gateway: Deployment) -> dict[str, Any]:
    ports = {80: here(5), 19000: here(6), 19001: here(7)}
    made = programs.program(gateway, names=["envoy"], homes=[ports], folder=FOLDER, envoy=Path("/bin/envoy"))
    (text,) = made.files.values()
    document: dict[str, Any] = json.loads(text)
    return document


def cluster(gateway: Deployment, name: str) -> dict[str, Any]:
    (found,) = (each for each in envoy_of(gateway)["static_resources"]["clusters"] if each["name"] == name)
    return dict(found)


def test_flags_are_fields_of_the_resource() -> None:
    found = resource(settings(replicas=5, failure_mode="FailOpen", simulator_arguments=("--mode", "echo"))).spec
    assert found.decode is not None and found.epp is not None
    assert (found.decode.replicas, found.decode.args) == (5, ("--model", "m", "--mode", "echo"))
    assert (found.epp.enabled, found.epp.failure_mode) == (True, "FailOpen")


def test_what_no_resource_can_hold_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"^the flags of `pointsman up`: spec\.decode\.args.*4096"):
        resource(settings(simulator_arguments=("x" * 5000,)))


def test_parts_have_the_names_and_ports_that_people_know() -> None:
    found = planned()
    assert [(each.role, each.pod(0)) for each in found.deployments] == [
        ("picker", "picker"),
        ("simulator", "simulator-0"),
        ("gateway", "envoy"),
    ]
    assert part("simulator").first_port == 8200
    assert part("picker").pinned == {9002: here(9002), 9003: here(9003), 9090: here(9090)}
    assert part("gateway").pinned == {80: here(8080), 19001: here(19000)}
    assert (found.entry, found.model, found.failure_mode) == (here(8080), "m", "FailClose")
    assert all(service.headless for service in found.services)  # no port of its own, no hop


@pytest.mark.parametrize("tls", [True, False])
def test_picker_and_gateway_agree_on_tls(tls: bool) -> None:
    arguments = part("picker", picker_tls=tls).arguments
    assert flags.switch(arguments, "secure-serving", default=not tls) is tls
    assert ("transport_socket" in cluster(part("gateway", picker_tls=tls), "pickers")) is tls


def test_picker_gets_a_configuration_only_when_someone_chose_one() -> None:
    assert "--config-file" not in part("picker").arguments
    assert flags.value(part("picker", config=Path("/c.yaml")).arguments, "config-file") == "/c.yaml"
    chosen = part("picker", picker_arguments=("--config-file", "/d.yaml"))
    assert flags.value(chosen.arguments, "config-file") == "/d.yaml"
    assert not chosen.files


def test_flags_of_the_person_come_last() -> None:
    assert flags.value(part("picker", picker_arguments=("--v", "5")).arguments, "v") == "5"
    assert flags.value(part("simulator", simulator_arguments=("--mode", "echo")).arguments, "mode") == "echo"


def test_envoy_tries_a_list_of_endpoints_from_a_file_and_runs_so_many_workers() -> None:
    gateway = part("gateway", envoy_workers=3)
    source = cluster(gateway, "model-servers")["eds_cluster_config"]["eds_config"]["path_config_source"]
    assert source["path"] == str(FOLDER.envoy_endpoints_file) == str(planned().pool_file)
    assert flags.value(gateway.arguments, "concurrency") == "3"
    assert gateway.arguments.count("--concurrency") == 1


def test_another_number_of_simulators_is_the_same_revision_of_everything() -> None:
    assert [each.group for each in planned().deployments] == [each.group for each in planned(replicas=9).deployments]


@pytest.mark.parametrize(("mode", "listeners"), [("FailClose", 1), ("FailOpen", 2)])
def test_gateway_does_as_the_failure_mode_says(mode: str, listeners: int) -> None:
    found = envoy_of(part("gateway", failure_mode=mode))["static_resources"]["listeners"]
    assert len([each for each in found if each["name"] != "ready"]) == listeners


def test_each_of_several_models_has_simulators_and_a_picker_of_its_own() -> None:
    found = planned(models=("org/A.1", "b"))
    assert [(each.role, each.pod(0)) for each in found.deployments] == [
        ("picker", "picker-a-1"),
        ("simulator", "simulator-a-1-0"),
        ("picker", "picker-b"),
        ("simulator", "simulator-b-0"),
        ("router", "router"),
        ("gateway", "envoy"),
    ]
    assert found.models == ("org/A.1", "b") and found.model == "org/A.1"
    assert [flags.value(each.arguments, "model") for each in found.of("simulator")] == ["org/A.1", "b"]
    for pickers, simulators in zip(found.of("picker"), found.of("simulator"), strict=True):
        others = [each for each in found.of("simulator") if each is not simulators]
        assert pickers.selects.items() <= simulators.labels.items()
        assert all(not pickers.selects.items() <= other.labels.items() for other in others)
    first, second = found.of("picker")
    assert (first.pinned[9002], second.pinned) == (here(9002), {}), "the ports that people know are the first one's"


def test_envoy_asks_the_router_and_then_the_picker_of_the_model() -> None:
    (gateway,) = planned(models=("a", "b")).of("gateway")
    resources = envoy_of(gateway)["static_resources"]
    files = {
        each["name"]: each["eds_cluster_config"]["eds_config"]["path_config_source"]["path"].rpartition("/")[2]
        for each in resources["clusters"]
        if each["type"] == "EDS"
    }
    assert files == {
        "model-servers": "envoy-endpoints.json",
        "pickers-0": "gaie-sim-epp-0-9002.json",
        "pickers-1": "gaie-sim-epp-1-9002.json",
        "body-based-router": "router-9004.json",
    }
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    assert [each["name"].rpartition(".")[2] for each in manager["http_filters"]] == [
        "header_mutation", "body-based-router", "ext_proc", "router",
    ]  # fmt: skip
    removed = manager["http_filters"][0]["typed_config"]["mutations"]["request_mutations"]
    assert {"remove": "x-gateway-model-name"} in removed, "a client cannot say it"
    *routes, refusal = manager["route_config"]["virtual_hosts"][0]["routes"]
    assert "direct_response" in refusal
    asked = [(_model(each), _picker(each)) for each in routes if each["match"]["path_separated_prefix"] == "/v1/models"]
    assert asked == [("a", "pickers-0"), ("b", "pickers-1"), ("", "pickers-0")]


def _model(route: dict[str, Any]) -> str:
    return "".join(each["string_match"]["exact"] for each in route["match"].get("headers", ()))


def _picker(route: dict[str, Any]) -> str:
    service = route["typed_per_filter_config"]["envoy.filters.http.ext_proc"]["overrides"]["grpc_service"]
    return str(service["envoy_grpc"]["cluster_name"])


def test_short_names_are_such_as_pods_can_have_and_no_two_alike() -> None:
    models = ("meta-llama/Llama-3.1-8B", "other/llama-3.1-8b", "Ü/ü", "x" * 80, "a/!")
    assert short_names(models) == ["llama-3-1-8b", "llama-3-1-8b-1", "2", "x" * 30, "4"]
