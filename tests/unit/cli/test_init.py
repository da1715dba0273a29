"""Which command runs, as the command line and POINTSMAN_COMMAND say it together."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from pointsman.cli import app, main, with_command
from pointsman.core.errors import UserError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("argv", "named", "expected"),
    [
        pytest.param(["--port", "1"], "sim", ["sim", "--port", "1"], id="flags only"),
        pytest.param([], "epp", ["epp"], id="nothing at all"),
        pytest.param(["-h"], "sim", ["sim", "-h"], id="a short flag"),
        pytest.param(["epp", "--v", "1"], "sim", ["epp", "--v", "1"], id="a command goes first"),
        pytest.param(["epp"], "nonsense", ["epp"], id="what is not needed is not read"),
        pytest.param(["--version"], "", ["--version"], id="empty is unset"),
    ],
)
def test_flags_without_a_command_get_the_named_one(argv: list[str], named: str, expected: list[str]) -> None:
    assert with_command(argv, environment={"POINTSMAN_COMMAND": named}) == expected


def test_without_the_variable_nothing_changes() -> None:
    assert with_command(["--version"], environment={}) == ["--version"]


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["--pool-name", "p", "--pool-namespace", "ns", "--zap-encoder", "json", "--grpc-port", "9002"], "epp"),
        (["-v", "4", "--pool-name=p", "--secure-serving=false"], "epp"),
        (["-poolName", "p", "-v", "4", "--zap-encoder", "json", "-grpcPort", "9002", "-grpcHealthPort=9003"], "epp"),
        (["--model", "m", "--port", "8000"], "sim"),
        (["--model=m", "--seed", "-5"], "sim"),
        (["--streaming", "--grpc-port", "9004"], "bbr"),
    ],
)
def test_flags_of_one_server_start_it(argv: list[str], command: str) -> None:
    assert with_command(argv, environment={}) == [command, *argv]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-v", "4"], "--v may be the picker's or the simulator's"),
        (["--pool-name", "p", "--model", "m"], "no server takes them all (epp not --model, sim not --pool-name)"),
        (["--nonsense"], "no server takes them all"),
    ],
)
def test_flags_that_cannot_tell_name_the_variable(argv: list[str], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        with_command(argv, environment={})
    assert "set POINTSMAN_COMMAND to epp or sim" in str(caught.value)


@pytest.mark.parametrize("named", ["simulator", "--help"])
def test_an_unknown_name_is_refused(named: str) -> None:
    with pytest.raises(UserError, match=rf"^POINTSMAN_COMMAND={named} is no command: set it to one of up, .*\bsim\b"):
        with_command(["--port", "1"], environment={"POINTSMAN_COMMAND": named})


def test_the_named_command_gets_the_flags(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("POINTSMAN_COMMAND", "sim")
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "--max-num-seqs" in capsys.readouterr().out


def test_a_person_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("POINTSMAN_COMMAND", "picker")
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pointsman: POINTSMAN_COMMAND=picker ")


def test_picker_takes_a_flag_twice_as_go_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["epp", "--v", "1", "--grpc-port", "1", "--grpc-port=none", "--v", "2"])
    said = capsys.readouterr().err
    assert "multiple times" not in said
    assert "none" in said


def test_help_says_in_one_line_what_each_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    commands = [name for name in app if not name.startswith("-")]
    rows = dict(re.findall(r"^│ (\w+) {2,}(\S.*?) *│$", shown, re.MULTILINE))
    assert rows.keys() >= set(commands)
    assert all(len(rows[name]) > 10 for name in commands)


def commands(where: App, path: str) -> Iterator[tuple[str, App]]:
    """Return every command that does something, with its whole name."""
    if where.default_command is not None:
        yield path, where
    for name in where:
        if not name.startswith("-"):
            yield from commands(where[name], f"{path} {name}")


def test_help_says_what_each_flag_is_for() -> None:
    silent = [
        f"{path} {argument.name}"
        for path, command in commands(app, "pointsman")
        for argument in command.assemble_argument_collection(parse_docstring=True)
        if argument.show and not argument.parameter.help
    ]
    assert silent == ["pointsman sim WORDS"]  # which has a table of flags of its own, shown by its own --help


def test_help_of_the_simulator_names_its_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sim", "--help"])
    shown = capsys.readouterr().out
    assert all(f"pointsman sim {name} " in shown for name in app["sim"] if not name.startswith("-"))


def test_a_component_is_named_in_the_same_way_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["platform", "render", "nobody", "--out", "charts", "--file", str(ROOT / "platform" / "platform.yaml")])
    assert caught.value.code == 2
    assert "nobody" in (said := capsys.readouterr().err) and "Unused" not in said
