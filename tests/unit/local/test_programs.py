from pathlib import Path
from typing import Any

import pytest

from pointsman.local.programs import Settings, envoy, picker, picker_endpoints, simulators
from pointsman.render.addresses import Address


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


def test_simulator_knows_its_name_and_takes_more_flags() -> None:
    program = simulators(settings(simulator_arguments=("--mode", "echo")), names=["simulator-0"], first=here(8200))
    assert program.name == "simulator-0"
    assert program.environment["POD_NAME"] == "simulator-0"
    assert program.command[-8:] == ("pointsman", "sim", "--port", "8200", "--model", "m", "--mode", "echo")


def test_simulators_of_one_process_have_a_name_each() -> None:
    program = simulators(settings(), names=["simulator-3", "simulator-4", "simulator-5"], first=here(8200))
    assert program.name == "simulator-3..simulator-5"
    assert program.environment["POD_NAME"] == "simulator-3,simulator-4,simulator-5"
    assert program.command[-6:] == ("--port", "8200", "--model", "m", "--pods", "3")


@pytest.mark.parametrize(("tls", "flag"), [(True, "--secure-serving=true"), (False, "--secure-serving=false")])
def test_picker_and_gateway_agree_on_tls(tls: bool, flag: str) -> None:
    chosen = settings(picker_tls=tls)
    assert flag in picker(chosen, endpoints_file=Path("/e.yaml")).command
    assert chosen.to_gateway(endpoints_file=Path("/e.json")).picker_tls is tls


def test_picker_gets_its_configuration_only_when_there_is_one() -> None:
    assert "--config-file" not in picker(settings(), endpoints_file=Path("/e")).command
    command = picker(settings(config=Path("/c.yaml")), endpoints_file=Path("/e")).command
    assert command[command.index("--config-file") + 1] == "/c.yaml"


def test_envoy_shares_the_machine_with_other_envoys() -> None:
    assert "--use-dynamic-base-id" in envoy(settings(), bootstrap_file=Path("/b.json")).command


def test_picker_learns_names_and_addresses() -> None:
    (row,) = picker_endpoints([("a", here(1))])["endpoints"]
    assert (row["name"], row["address"], row["port"]) == ("a", "127.0.0.1", 1)
