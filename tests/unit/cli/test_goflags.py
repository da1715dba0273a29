import pytest

from pointsman.cli import _switches
from pointsman.cli.goflags import last_of_each, normalized

SWITCHES = frozenset({"secure-serving", "ha-enable-leader-election"})


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param("--v 1 --a=x --v 5", "--a=x --v 5", id="two values"),
        pytest.param("--s=false --on --s --on", "--s --on", id="switches"),
        pytest.param("--v=1 --b 2 --v 3 --b=4", "--v 3 --b=4", id="both spellings"),
        pytest.param("check FILE --on", "check FILE --on", id="what is no flag"),
        pytest.param("--plugin a:b --v=1 --plugin=c:d --v=2", "--plugin a:b --plugin=c:d --v=2", id="one at a time"),
        pytest.param(
            "--endpoint-target-ports 1,2 --v 1 --endpoint-target-ports=3",
            "--v 1 --endpoint-target-ports=1,2,3",
            id="lists",
        ),
    ],
)
def test_last_of_a_repeated_flag_counts(argv: str, expected: str) -> None:
    assert last_of_each(argv.split()) == expected.split()


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param(["--v", "1", "", "", "--a", "b"], ["--v", "1", "--a", "b"], id="what a condition left"),
        pytest.param(["--config-text", "", "--v", "1"], ["--config-text", "", "--v", "1"], id="a value"),
        pytest.param(["--secure-serving", "", "--v", "1"], ["--secure-serving", "--v", "1"], id="after a switch"),
        pytest.param(["--v=1", "", ""], ["--v=1"], id="at the end"),
        pytest.param([""], [], id="nothing else"),
        pytest.param(["--poolName", "Pool-A", "--grpcPort=1"], ["--pool-name", "Pool-A", "--grpc-port=1"], id="humps"),
        pytest.param(["-config-text", "a: -1"], ["--config-text", "a: -1"], id="one dash"),
        pytest.param(["-v", "3", "-v=4"], ["-v=4"], id="short"),
        pytest.param(["--a", "\n--b"], ["--a", "\n--b"], id="a text that begins with a line"),
    ],
)
def test_what_go_takes(argv: list[str], expected: list[str]) -> None:
    assert normalized(argv, switches=SWITCHES) == expected


@pytest.mark.parametrize("command", ["epp", "operator"])
def test_switches_are_found(command: str) -> None:
    assert "metrics-endpoint-auth" in _switches(command)
    assert not _switches(command) & {"v", "verbosity", "zap-encoder", "grpc-port"}
