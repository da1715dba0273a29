"""The command lines of the parts; that they work is proved in tests/envoy."""

import json
from pathlib import Path
from typing import Any

import pytest

from pointsman.local.plan import Deployment
from pointsman.local.processes import Program
from pointsman.local.programs import Settings, picker_endpoints, program, relay, standard
from pointsman.local.state import Folder
from pointsman.render.envoy.addresses import Address

FOLDER = Folder(Path("/state"))


def here(port: int) -> Address:
    return Address("127.0.0.1", port)


def settings(**changes: Any) -> Settings:
    basis: dict[str, Any] = {
        "gateway": here(8080),
        "admin": here(19000),
        "picker_grpc": here(9002),
        "picker_health": here(9003),
        "picker_metrics": here(9090),
        "first_simulator_port": 8200,
        "replicas": 3,
        "model": "m",
        "envoy": Path("/bin/envoy"),
        "envoy_workers": 2,
    }
    return Settings(**basis | changes)


def part(role: str, **changes: Any) -> Deployment:
    (found,) = (each for each in standard(settings(**changes), folder=FOLDER).deployments if each.role == role)
    return found


def made(deployment: Deployment, *, names: tuple[str, ...] = ("simulator-0",), first: int = 8200) -> Program:
    homes = [deployment.pinned or {8200: here(first + at)} for at in range(len(names))]
    return program(deployment, names=names, homes=homes, folder=FOLDER, envoy=Path("/bin/envoy"))


def test_simulator_knows_its_name_and_takes_more_flags_and_stays_on_loopback() -> None:
    found = made(part("simulator", simulator_arguments=("--mode", "echo")))
    assert found.name == "simulator-0"
    assert found.environment["POD_NAME"] == "simulator-0"
    assert found.command[-9:] == ("sim", "--model", "m", "--mode", "echo", "--host", "127.0.0.1", "--port", "8200")


def test_simulators_of_one_process_have_a_name_each() -> None:
    found = made(part("simulator"), names=("simulator-3", "simulator-4", "simulator-5"))
    assert found.name == "simulator-3..simulator-5"
    assert found.environment["POD_NAME"] == "simulator-3,simulator-4,simulator-5"
    assert found.command[-4:] == ("--port", "8200", "--pods", "3")


@pytest.mark.parametrize(("tls", "flag"), [(True, "--secure-serving=true"), (False, "--secure-serving=false")])
def test_picker_and_gateway_agree_on_tls(tls: bool, flag: str) -> None:
    chosen = settings(picker_tls=tls)
    assert flag in made(part("picker", picker_tls=tls), names=("picker",)).command
    assert chosen.to_gateway(endpoints_file=Path("/e.json")).picker_tls is tls


def test_picker_gets_its_configuration_only_when_there_is_one() -> None:
    assert "--config-file" not in made(part("picker"), names=("picker",)).command
    command = made(part("picker", config=Path("/c.yaml")), names=("picker",)).command
    assert command[command.index("--config-file") + 1] == "/c.yaml"


def test_picker_listens_where_it_was_placed_whatever_its_flags_say() -> None:
    deployment = Deployment(
        name="epp",
        role="picker",
        replicas=1,
        ports=(9002, 9003, 9090),
        arguments=("--grpc-port", "9002", "--v=2", "--config-file", "/config/c.yaml"),
        files={"/config/c.yaml": "kind: X"},
    )
    ports = {9002: here(1), 9003: here(2), 9090: here(3)}
    found = program(deployment, names=["epp-0"], homes=[ports], folder=FOLDER, envoy=Path("/bin/envoy"))
    own = "/state/config/epp-0/c.yaml"
    assert found.command[4:] == (
        *("--v=2", "--config-file", own, "--drain-timeout", "10s", "--host", "127.0.0.1"),
        *("--grpc-port", "1", "--grpc-health-port", "2", "--metrics-port", "3"),
        *("--endpoints-file", f"/state/endpoints/{deployment.group}.yaml"),
    )
    assert found.files == {Path(own): "kind: X"}


def test_envoy_shares_the_machine_with_other_envoys() -> None:
    for found in (
        made(part("gateway"), names=("envoy",)),
        relay(admin=here(1), folder=FOLDER, envoy=Path("/bin/envoy")),
    ):
        assert "--use-dynamic-base-id" in found.command


def test_gateway_listens_where_it_was_placed_and_reads_its_pickers_from_a_file() -> None:
    found = made(part("gateway", gateway=here(5), admin=here(6)), names=("envoy",))
    ((path, text),) = found.files.items()
    assert str(path) in found.command
    document = json.loads(text)
    assert document["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 6}
    assert document["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] == 5
    assert "/state/endpoints/picker-9002.json" in text


def test_picker_learns_names_and_addresses() -> None:
    (row,) = picker_endpoints([("a", here(1))])["endpoints"]
    assert (row["name"], row["address"], row["port"]) == ("a", "127.0.0.1", 1)
