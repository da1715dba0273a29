"""`pointsman up`, `status` and `down` as a person uses them, each stack in a state folder and on ports of its own."""

import os
import signal
import socket
from pathlib import Path

import httpx
from tests.envoy.commands import UP, Run, alive, pids, status
from tests.envoy.load import completion
from tests.waiting import wait_until


def served_by(url: str, *, count: int) -> set[str]:
    """Return who answers: of requests until that are so many, or a hundred, and then five more."""
    found: set[str] = set()
    with httpx.Client(base_url=url, timeout=20) as http:
        last = 5
        for sent in range(100):
            answer = http.post("/v1/completions", json=completion())
            assert answer.status_code == 200
            found.add(answer.headers["x-inference-pod"])
            if len(found) < count:
                last = sent + 5
            elif sent >= last:
                break
    return found


def test_up_scale_and_down(run: Run) -> None:
    started = run(*UP, "--replicas", "2")
    assert started.returncode == 0, started.stderr
    first = status(run)
    assert first["gateway"] in started.stdout
    assert [endpoint["state"] for endpoint in first["endpoints"]] == ["ready", "ready"]
    assert all(endpoint["address"].startswith("127.0.0.1:") for endpoint in first["endpoints"])
    assert served_by(first["gateway"], count=2) == {"simulator-0", "simulator-1"}

    again = run("up")
    assert (again.returncode, "runs already" in again.stdout) == (0, True)

    assert run("up", "--replicas", "4").returncode == 0
    more = status(run)
    assert len(more["endpoints"]) == 4
    assert served_by(more["gateway"], count=4) == {f"simulator-{n}" for n in range(4)}
    assert run("up", "--replicas", "1").returncode == 0
    less = status(run)
    assert served_by(less["gateway"], count=1) == {"simulator-0"}
    assert {key: less["pids"][key] for key in ("envoy", "picker")} == first["pids"]  # neither was restarted

    everyone = pids(less)
    stopped = run("down")
    assert (stopped.returncode, stopped.stdout) == (0, "the stack is stopped\n")
    assert not any(alive(pid) for pid in everyone)
    assert run("status", "--json").returncode == 1


def test_nothing_outlives_a_supervisor_that_is_killed(run: Run) -> None:
    assert run(*UP).returncode == 0
    document = status(run)
    everyone = pids(document)
    assert all(alive(pid) for pid in everyone)
    os.kill(document["pid"], signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in everyone))
    assert run("status", "--json").returncode == 1
    assert run(*UP).returncode == 0  # and what it left behind is in nobody's way


def test_simulator_that_dies_leaves_the_picker_and_comes_back(run: Run) -> None:
    assert run(*UP, "--replicas", "2").returncode == 0
    before = status(run)
    victim = before["endpoints"][0]
    os.kill(victim["pid"], signal.SIGKILL)

    def without_it() -> bool:
        rows = httpx.get(f"{before['picker']['metrics']}/debug/endpoints").json()["endpoints"]
        return [row["name"] for row in rows] == ["simulator-1"]

    wait_until(without_it)

    def back() -> bool:
        endpoint = status(run)["endpoints"][0]
        return bool(endpoint["state"] == "ready" and endpoint["picks"] is not None)

    wait_until(back)
    after = status(run)["endpoints"][0]
    assert (after["address"], after["pid"] != victim["pid"]) == (victim["address"], True)
    assert served_by(before["gateway"], count=2) == {"simulator-0", "simulator-1"}


def test_taken_port_is_one_sentence_and_leaves_nothing(run: Run) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        refused = run("up", "--port", str(port), "--detach")
    assert refused.returncode == 2
    assert refused.stderr == (
        f"pointsman: port {port} for the gateway is taken by another process: stop it, or choose another with --port\n"
    )
    assert run("status").stdout.startswith("no stack runs")


def test_what_cannot_start_is_one_sentence_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    refused = run(*UP, "--sim-args=--mode nonsense")
    assert refused.returncode == 1
    assert refused.stderr.startswith("pointsman: simulator-0 does not start: ")
    assert len(refused.stderr.splitlines()) == 1
    assert run("status").stdout.startswith("no stack runs")
