"""A hundred simulators in a few processes, behind a real Envoy and a picker that scrapes each of them."""

import asyncio
import os
import signal
import ssl
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from tests.envoy.commands import UP, Run, alive, pids, status
from tests.envoy.load import completion, load

MANY = 100
REQUESTS = 2_000
CLIENTS = 200
SAMPLE = 100
"""Of the last requests, because the picker remembers a thousand decisions."""


def names(count: int) -> set[str]:
    return {f"simulator-{n}" for n in range(count)}


def simulator_pids(document: dict[str, Any]) -> dict[str, int]:
    return {endpoint["name"]: endpoint["pid"] for endpoint in document["endpoints"]}


def resident_megabytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) // 1024


async def burst(url: str) -> dict[str, httpx.Response]:
    """Return the answers by request id, in the order of arrival."""
    answers: dict[str, httpx.Response] = {}
    ids = iter([str(uuid.uuid4()) for _ in range(REQUESTS)])
    tls = ssl.create_default_context()  # unused, but each client would make its own

    async def client() -> None:  # with a pool of its own: one for all spends its time looking for idle connections
        async with httpx.AsyncClient(base_url=url, timeout=60, verify=tls, trust_env=False) as http:
            for request_id in ids:
                headers = {"x-request-id": request_id}
                answers[request_id] = await http.post("/v1/completions", json=completion(), headers=headers)

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())
    return answers


async def test_a_hundred_pods_answer_a_burst_as_picked(run: Run) -> None:
    started = run(*UP, "--replicas", str(MANY), "--sim-args=--inter-token-latency 50ms")
    assert started.returncode == 0, started.stderr
    document = status(run)
    assert {e["name"] for e in document["endpoints"] if e["state"] == "ready" and e["picks"] is not None} == names(MANY)
    (simulators,) = set(simulator_pids(document).values())

    answers = await burst(document["gateway"])
    assert Counter(answer.status_code for answer in answers.values()) == {200: REQUESTS}
    pods = Counter(answer.headers["x-inference-pod"] for answer in answers.values())
    assert pods.keys() <= names(MANY)
    assert len(pods) > MANY * 0.9, pods
    assert resident_megabytes(simulators) < 150

    addresses = {endpoint["address"]: endpoint["name"] for endpoint in document["endpoints"]}
    async with httpx.AsyncClient(base_url=document["picker"]["metrics"]) as http:
        for request_id in list(answers)[-SAMPLE:]:
            (decision,) = (await http.get("/debug/decisions", params={"id": request_id})).json()["decisions"]
            assert answers[request_id].headers["x-inference-pod"] == addresses[decision["picked"][0]]


async def test_scaling_across_processes_loses_no_request_and_leaves_nothing(run: Run) -> None:
    assert run(*UP, "--replicas", "3").returncode == 0
    stages = [status(run)]
    async with load(stages[0]["gateway"], clients=4) as tally:
        for wanted in (20, 100, 5, 30):
            scaled = await asyncio.to_thread(run, "up", "--replicas", str(wanted))
            assert scaled.returncode == 0, scaled.stderr
            stages.append(await asyncio.to_thread(status, run))
            tally.pods.clear()
            await tally.served_by(names(min(wanted, 10)))
            assert tally.pods.keys() <= names(wanted)
    assert tally.answers.keys() == {200}, tally.answers

    few, some, many, less, again = (simulator_pids(stage) for stage in stages)
    assert len(set(few.values())) == 3  # each can be killed by itself
    assert len(set(some.values())) == 4
    assert len(set(many.values())) == 5
    assert few.items() <= some.items() <= many.items()  # who stays is not touched
    assert less == {name: many[name] for name in names(5)}
    assert {name: again[name] for name in names(20)} == some  # spares of a process that was still needed
    assert all(stage["pids"] == stages[0]["pids"] for stage in stages)  # Envoy and the picker

    everyone = set().union(*map(pids, stages))
    assert {pid for pid in everyone if alive(pid)} == pids(stages[-1])
    assert run("down").returncode == 0
    assert not any(alive(pid) for pid in everyone)


async def test_process_of_many_pods_that_dies_takes_all_of_them_and_brings_them_back(run: Run) -> None:
    assert run(*UP, "--replicas", "9").returncode == 0
    before = status(run)
    (victim,) = set(simulator_pids(before).values())
    os.kill(victim, signal.SIGKILL)
    async with asyncio.timeout(20):
        while True:
            after = await asyncio.to_thread(status, run)
            back = all(e["state"] == "ready" and e["picks"] is not None for e in after["endpoints"])
            if back and victim not in simulator_pids(after).values():
                break
    assert simulator_pids(after).keys() == names(9)
    assert [e["address"] for e in after["endpoints"]] == [e["address"] for e in before["endpoints"]]
