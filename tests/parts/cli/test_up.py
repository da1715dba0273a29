"""What `pointsman up` understands and refuses; that it works is proved in tests/envoy/test_up.py."""

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cyclopts import App
from tests.unit.local.test_state import STACK

from pointsman.cli.up import UpOptions, refuse_changes, settings_of
from pointsman.core.errors import PortTaken, UserError
from pointsman.local.ports import any_free


def parse(*arguments: str) -> UpOptions:
    app = App(result_action="return_value")

    @app.default
    def take(options: UpOptions | None = None) -> UpOptions:
        return options or UpOptions()

    parsed: UpOptions = app(list(arguments), exit_on_error=False)
    return parsed


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(UpOptions(), id="defaults"),
        pytest.param(UpOptions(replicas=5, port=1, admin_port=2, fail_open=True, secure_serving=False), id="flags"),
        pytest.param(UpOptions(grpc_port=3, grpc_health_port=4, metrics_port=5, sim_port=6, model="x/y"), id="ports"),
        pytest.param(
            UpOptions(sim_args="--mode echo --seed 1", picker_args="--explain --v 3", config=Path("/c.yaml")),
            id="texts",
        ),
    ],
)
def test_detached_stack_gets_the_same_options(options: UpOptions) -> None:
    assert parse(*options.arguments()) == options
    assert parse(*replace(options, detach=True).arguments()) == options


@pytest.mark.parametrize("replicas", [0, -1, 101])
def test_replicas_out_of_range(replicas: int) -> None:
    with pytest.raises(UserError, match=f"--replicas {replicas} is out of range"):
        UpOptions(replicas=replicas).check()


def test_configuration_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--config .*nothing\.yaml is not a file"):
        UpOptions(config=tmp_path / "nothing.yaml").check()


@pytest.mark.parametrize("flag", ["port", "admin_port", "grpc_port", "grpc_health_port", "metrics_port"])
def test_taken_port_is_named_with_its_flag(flag: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        ports: dict[str, Any] = {"port": 0, "admin_port": 0, flag: taken}
        with pytest.raises(PortTaken, match=rf"port {taken} .* --{flag.replace('_', '-')}$"):
            settings_of(UpOptions(**ports))


def test_ports_of_one_stack_differ() -> None:
    port = any_free()
    with pytest.raises(PortTaken, match="--admin-port"):
        settings_of(UpOptions(port=port, admin_port=port))


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        pytest.param(UpOptions(port=8081), "--port", id="port"),
        pytest.param(UpOptions(model="other"), "--model", id="model"),
        pytest.param(UpOptions(fail_open=True), "--fail-open", id="fail open"),
        pytest.param(UpOptions(models="m,n"), "--models", id="models"),
        pytest.param(UpOptions(config=Path("/c")), "--config", id="config"),
    ],
)
def test_what_cannot_change_while_it_runs(options: UpOptions, flag: str) -> None:
    with pytest.raises(UserError, match=rf"^{flag} cannot change while the stack runs: `pointsman down` first$"):
        refuse_changes(options, stack=STACK)


def test_what_is_the_same_or_not_named_is_no_change() -> None:
    refuse_changes(UpOptions(replicas=9), stack=STACK)
    refuse_changes(UpOptions(port=8080, model="m"), stack=STACK)


FILE = Path(__file__).parents[3] / "config" / "samples" / "sim_v1alpha1_simulatordeployment_minimal.yaml"


def test_file_goes_on_to_the_detached_stack() -> None:
    options = UpOptions(file=FILE, any_ports=True)
    options.check()
    assert parse(*options.arguments()) == options
    assert parse("-f", str(FILE)).file == FILE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(UpOptions(file=FILE, replicas=2), "--replicas cannot be combined with -f: say it in", id="flag"),
        pytest.param(UpOptions(file=FILE, fail_open=True), "--fail-open cannot be combined with -f", id="switch"),
        pytest.param(UpOptions(file=Path("/none.yaml")), r"/none\.yaml: cannot be read", id="no file"),
        pytest.param(UpOptions(any_ports=True), "--any-ports is about Services", id="any ports without a file"),
    ],
)
def test_what_a_file_excludes(options: UpOptions, message: str) -> None:
    with pytest.raises(UserError, match=message):
        options.check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(UpOptions(models="a"), "name two or more", id="one"),
        pytest.param(UpOptions(models=" , "), "name two or more", id="none"),
        pytest.param(UpOptions(models="a,b,a"), "each once", id="twice"),
        pytest.param(UpOptions(models="a,b", model="c"), "--model and --models exclude each other", id="both"),
        pytest.param(UpOptions(models="a,b", fail_open=True), "--fail-open cannot be combined", id="fail open"),
        pytest.param(UpOptions(models="a,b", file=FILE), "--models cannot be combined with -f", id="file"),
    ],
)
def test_which_models_cannot_be(options: UpOptions, message: str) -> None:
    with pytest.raises(UserError, match=message):
        options.check()


def test_models_go_on_to_the_detached_stack() -> None:
    options = UpOptions(models="org/a, b")
    options.check()
    assert options.named_models() == ("org/a", "b")
    assert parse(*options.arguments()) == options
    refuse_changes(UpOptions(models="b,m"), stack=msgspec.structs.replace(STACK, models=("b", "m")))


def test_stack_of_a_file_is_changed_by_its_file() -> None:
    of_file = msgspec.structs.replace(STACK, file=str(FILE), admin="")
    refuse_changes(UpOptions(file=FILE), stack=of_file)
    with pytest.raises(UserError, match=r"--replicas cannot change a stack that is made from a file: edit .*minimal"):
        refuse_changes(UpOptions(replicas=2), stack=of_file)
    with pytest.raises(UserError, match="the stack that runs is made from flags"):
        refuse_changes(UpOptions(file=FILE), stack=STACK)
