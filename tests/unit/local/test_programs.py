"""The command lines of the parts; that they work is proved in tests/envoy."""

import json
from pathlib import Path

from tests.unit.local.test_standard import FOLDER, here, part

from pointsman.local.plan import Deployment
from pointsman.local.processes import Program
from pointsman.local.programs import picker_endpoints, program, relay


def made(deployment: Deployment, *, names: tuple[str, ...] = ("simulator-0",), first: int = 8200) -> Program:
    homes = [{port: here(first + at) for port in deployment.ports} for at in range(len(names))]
    return program(deployment, names=names, homes=homes, folder=FOLDER, envoy=Path("/bin/envoy"))


def test_simulator_knows_its_name_and_takes_more_flags_and_stays_on_loopback() -> None:
    found = made(part("simulator", simulator_arguments=("--mode", "echo")))
    assert found.name == "simulator-0"
    assert found.environment["POD_NAME"] == "simulator-0"
    assert found.command[-8:] == ("--model", "m", "--mode", "echo", "--host", "127.0.0.1", "--port", "8200")


def test_simulators_of_one_process_have_a_name_each() -> None:
    found = made(part("simulator"), names=("simulator-3", "simulator-4", "simulator-5"))
    assert found.name == "simulator-3..simulator-5"
    assert found.environment["POD_NAME"] == "simulator-3,simulator-4,simulator-5"
    assert found.command[-4:] == ("--port", "8200", "--pods", "3")


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
    assert "--disable-hot-restart" in made(part("gateway"), names=("envoy",)).command
    assert "--use-dynamic-base-id" in relay(admin=here(1), folder=FOLDER, envoy=Path("/bin/envoy")).command


def test_gateway_listens_where_it_was_placed_and_reads_its_pickers_from_a_file() -> None:
    ports = {80: here(5), 19000: here(6), 19001: here(7)}
    found = program(part("gateway"), names=["envoy"], homes=[ports], folder=FOLDER, envoy=Path("/bin/envoy"))
    ((path, text),) = found.files.items()
    assert path == Path("/state/config/envoy/envoy.json")
    assert str(path) in found.command
    document = json.loads(text)
    assert document["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 7}
    assert document["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] == 5
    assert "/state/endpoints/gaie-sim-epp-9002.json" in text


def test_picker_learns_names_and_addresses() -> None:
    (row,) = picker_endpoints([("a", here(1))])["endpoints"]
    assert (row["name"], row["address"], row["port"]) == ("a", "127.0.0.1", 1)
