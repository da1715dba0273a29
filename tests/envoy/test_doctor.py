"""`pointsman doctor` on a real stack that is broken on purpose: the first cause is named, the rest is not guessed."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.envoy.commands import UP, Run, status

SAMPLES = Path(__file__).parents[2] / "config" / "samples"


@pytest.fixture
def stack(run: Run) -> Iterator[dict[str, Any]]:
    assert run(*UP, "--replicas", "2").returncode == 0
    yield status(run)
    run("down")


@contextmanager
def hanging(pid: int) -> Iterator[None]:
    """Let a process hang: who supervises it sees it run."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # its supervisor may have had enough of it
            os.kill(pid, signal.SIGCONT)


def examined(run: Run) -> tuple[int, dict[str, Any]]:
    ran = run("doctor", "--local", "--json")
    return ran.returncode, json.loads(ran.stdout)


def test_without_a_cluster_there_is_only_this_machine(run: Run, tmp_path: Path) -> None:
    ran = run("doctor", "--kubeconfig", str(tmp_path / "none"))
    assert (ran.returncode, "no usable cluster configuration" in ran.stderr) == (2, True)
    ran = run("verify", "prefix-cache", "--local")
    assert (ran.returncode, "no stack runs" in ran.stderr) == (2, True)
    ran = run("doctor", "--local", "--fix")
    assert (ran.returncode, "leave out --fix" in ran.stderr) == (2, True)


def test_no_stack(run: Run) -> None:
    code, found = examined(run)
    assert (code, found["firstCause"]) == (1, "stack runs")
    assert found["checks"][0]["fix"] == "pointsman up --detach"
    assert {one["verdict"] for one in found["checks"][1:]} == {"skipped"}


def test_a_stack_that_is_well_and_one_whose_parts_hang(run: Run, stack: dict[str, Any]) -> None:
    code, found = examined(run)
    assert (code, found["verdict"], found["firstCause"]) == (0, "ok", None), found
    said = run("doctor", "--local")
    assert said.stdout.splitlines()[-1] == "all is well"
    for experiment, pods in (("prefix-cache", 1), ("round-robin", 2)):
        ran = run("verify", experiment, "--local", "--json", "--pause", "0")
        result = json.loads(ran.stdout)
        assert (ran.returncode, result["verdict"], len(result["pods"])) == (0, "passed", pods), result
    with hanging(stack["pids"]["picker"]):
        code, found = examined(run)
        assert (code, found["firstCause"]) == (1, "the picker serves"), found
        (log,) = (one["fix"].split()[-1] for one in found["checks"] if one["check"] == "the picker serves")
        assert Path(log).is_file()
    with hanging(stack["pids"]["envoy"]):
        code, found = examined(run)
        assert (code, found["firstCause"]) == (1, "Envoy answers"), found
        verdicts = {one["check"]: one["verdict"] for one in found["checks"]}
        assert verdicts["the filter comes before the router"] == "skipped"


def test_a_model_server_that_hangs_is_named(run: Run, stack: dict[str, Any]) -> None:
    with hanging(stack["endpoints"][0]["pid"]):
        deadline = time.monotonic() + 40
        while True:  # until its figures are old, or its supervisor has given it up
            code, found = examined(run)
            (cause,) = (one for one in found["checks"] if one["check"] == found["firstCause"]) if code else (None,)
            if cause is not None and "simulator-0" in cause["evidence"]:
                break
            assert time.monotonic() < deadline, found
        assert cause["check"] in {"model servers run", "the picker's endpoints are fresh"}
        assert "simulator-0" in cause["fix"]
        assert Path(cause["fix"].split()[-1]).is_file()


@pytest.mark.parametrize("name", ["minimal", "full"])
def test_stacks_from_a_resource(run: Run, name: str) -> None:
    """One has neither picker nor gateway, the other two gateways and servers for prefill; both are well."""
    up = run("up", "--detach", "--any-ports", "-f", str(SAMPLES / f"sim_v1alpha1_simulatordeployment_{name}.yaml"))
    assert up.returncode == 0, up.stderr
    code, found = examined(run)
    assert (code, found["firstCause"]) == (0, None), found


def test_fail_open_hides_nothing(run: Run) -> None:
    assert run(*UP, "--replicas", "2", "--fail-open").returncode == 0
    assert examined(run)[0] == 0
    with hanging(status(run)["pids"]["picker"]):
        code, found = examined(run)
        assert (code, found["firstCause"]) == (1, "the picker serves"), found
