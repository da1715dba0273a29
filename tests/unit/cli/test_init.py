"""Which command runs, as the command line and POINTSMAN_COMMAND say it together."""

import re

import pytest

from pointsman.cli import app, main, with_command
from pointsman.core.errors import UserError


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
