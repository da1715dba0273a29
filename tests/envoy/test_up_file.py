"""`pointsman up -f`: a SimulatorDeployment on one machine: the picked Pod answers, and edits cost no request."""

import asyncio
import itertools
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import yaml
from tests.envoy.commands import Run, alive, pids
from tests.waiting import wait_until

from pointsman.local.observe import observe
from pointsman.local.state import Folder

SAMPLES = Path(__file__).parents[2] / "config" / "samples"
PREFILL, DECODE = "ms-sim-llm-d-modelservice-prefill", "ms-sim-llm-d-modelservice-decode"
GATEWAY = "infra-sim-inference-gateway"


class File:
    """The resource of a test's stack, and what became of it."""

    def __init__(self, path: Path, *, sample: str) -> None:
        self.path = path
        self._folder = Folder(path.parent / "pointsman")
        shutil.copy(SAMPLES / f"sim_v1alpha1_simulatordeployment_{sample}.yaml", path)

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        document = yaml.safe_load(self.path.read_text())
        change(document["spec"])
        self.path.write_text(yaml.safe_dump(document))

    def status(self) -> dict[str, Any]:
        """Return what `pointsman status --json` prints, without a process for each look."""
        stack = self._folder.stack()
        assert stack is not None
        return {**msgspec.to_builtins(stack), "endpoints": msgspec.to_builtins(asyncio.run(observe(stack)))}

    def names(self, *, of: str = "") -> list[str]:
        return [row["name"] for row in self.status()["endpoints"] if row["name"].startswith(of)]

    def log(self) -> str:
        return (self._folder.logs / "up.log").read_text()

    def ready(self, *, of: str, count: int) -> bool:
        """Say whether exactly so many Pods of a Deployment are there, ready and known to the picker."""
        rows = [row for row in self.status()["endpoints"] if row["name"].startswith(of)]
        return len(rows) == count and all(row["state"] == "ready" and row["picks"] is not None for row in rows)


StartFile = Callable[[str], File]


@pytest.fixture
def up(run: Run, tmp_path: Path) -> StartFile:
    def start(sample: str) -> File:
        file = File(tmp_path / "stack.yaml", sample=sample)
        started = run("up", "--detach", "--any-ports", "-f", str(file.path))
        assert started.returncode == 0, started.stderr
        return file

    return start


def ask(http: httpx.Client, prompt: str) -> httpx.Response:
    return http.post("/v1/completions", json={"model": "random", "prompt": prompt, "max_tokens": 4})


class Load:
    """Requests all the while, on connections that stay and on new ones."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.statuses: Counter[object] = Counter()
        self.pods: Counter[str] = Counter()

    @contextmanager
    def running(self) -> Iterator["Load"]:
        over = threading.Event()
        threads = [threading.Thread(target=self._send, args=(over, keep)) for keep in (True, False)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _send(self, over: threading.Event, keep: bool) -> None:
        with httpx.Client(base_url=self.url, timeout=30) as http:
            for number in itertools.count():
                if over.wait(0.05):
                    return
                try:
                    answer = ask(http, f"{keep} {number}") if keep else self._once(number)
                except httpx.HTTPError as error:
                    self.statuses[repr(error)] += 1
                else:
                    self.statuses[answer.status_code] += 1
                    self.pods[answer.headers.get("x-inference-pod", "nobody")] += 1

    def _once(self, number: int) -> httpx.Response:
        with httpx.Client(base_url=self.url, timeout=30) as http:
            return ask(http, f"once {number}")


class Streaming:
    """One answer that takes its time."""

    def __init__(self, url: str, *, tokens: int) -> None:
        self._lines: list[str] = []
        body = {"model": "random", "prompt": "slowly", "max_tokens": tokens, "ignore_eos": True, "stream": True}
        self._thread = threading.Thread(target=self._read, args=(f"{url}/v1/completions", body))
        self._thread.start()
        wait_until(lambda: bool(self._lines))

    def events(self) -> int:
        """Return how many came, once it has ended."""
        self._thread.join()
        assert self._lines[-1] == "data: [DONE]"
        return len(self._lines)

    def _read(self, url: str, body: dict[str, Any]) -> None:
        with httpx.stream("POST", url, json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                if line:
                    self._lines.append(line)


def test_full_sample_is_edited_while_it_serves_and_leaves_nothing(run: Run, up: StartFile) -> None:
    file = up("full")
    first = file.status()
    assert sorted(name.rpartition("-")[0][:-6] for name in file.names()) == [DECODE, DECODE, PREFILL, PREFILL]
    assert {service.partition(":")[0] for service in first["services"]} == {
        *("gaie-sim-epp", "gaie-inference-scheduling-proxy", DECODE, PREFILL, GATEWAY, f"{GATEWAY}-istio")
    }
    picked_is_who_answers(first)

    with Load(first["gateway"]).running() as load:
        file.edit(lambda spec: spec["decode"].update(replicas=4))
        wait_until(lambda: file.ready(of=DECODE, count=4))
        before = set(file.names(of=DECODE))
        assert before > {row["name"] for row in first["endpoints"] if row["name"].startswith(DECODE)}

        file.edit(lambda spec: spec["decode"].update(replicas=1, args=["--inter-token-latency", "50ms"]))
        wait_until(lambda: file.ready(of=DECODE, count=1) and not before & set(file.names()))

        streaming = Streaming(first["gateway"], tokens=200)
        file.edit(lambda spec: spec["inferenceGateway"]["istio"].update(enabled=False))
        file.edit(lambda spec: (spec.pop("prefill"), spec["loadBalancing"].update(algorithm="RANDOM")))
        wait_until(lambda: not file.names(of=PREFILL) and f"{GATEWAY}-istio:8080" not in file.status()["services"])
        wait_until(lambda: all(not name.startswith(f"{GATEWAY}-istio") for name in file.status()["pids"]))
        assert streaming.events() == 200 + 2  # though its gateway was replaced; with the reason of its end and the end
    assert set(load.statuses) == {200}
    assert set(load.pods) >= before  # every Pod that there was has answered
    after = file.status()
    assert after["gateway"] == first["gateway"]
    picked_is_who_answers(after)

    assert run("down").returncode == 0
    wait_until(lambda: not any(alive(pid) for pid in pids(after)))  # the supervisor itself may still be on its way out


def picked_is_who_answers(document: dict[str, Any]) -> None:
    """Compare what the picker says it decided with the Pod that answered, by each gateway that there is."""
    by_address = {row["address"]: row["name"] for row in document["endpoints"]}
    gateways = [place for name, place in document["services"].items() if name.startswith(GATEWAY)]
    assert gateways
    with httpx.Client(base_url=document["picker"]["metrics"]) as picker:
        for gateway, number in itertools.product(gateways, range(4)):
            with httpx.Client(base_url=f"http://{gateway}", timeout=30) as http:
                answer = ask(http, f"{gateway} {number} and some more text")
            assert answer.status_code == 200
            found = picker.get("/debug/decisions", params={"id": answer.headers["x-request-id"]}).json()["decisions"]
            assert by_address[found[0]["picked"][0]] == answer.headers["x-inference-pod"]


def test_minimal_sample_is_two_simulators_behind_a_port(run: Run, up: StartFile) -> None:
    file = up("minimal")
    document = file.status()
    assert document["gateway"] == f"http://{document['services']['gaie-inference-scheduling-proxy:8200']}"
    assert document["picker"] == {}
    with Load(document["gateway"]).running() as load:
        wait_until(lambda: set(load.pods) == set(file.names()))
        file.edit(lambda spec: spec.update(replicas=3))
        wait_until(lambda: set(load.pods) == set(file.names()) and len(load.pods) == 3)
        gone = set(file.names())
        file.edit(lambda spec: spec.update(epp={"enabled": True}, decode={"enabled": True, "replicas": 1}))
        wait_until(lambda: not gone & set(file.names()))
    assert set(load.statuses) == {200}
    assert [name.startswith(DECODE) for name in file.names()] == [True]
    file.edit(lambda spec: spec.update(inferenceGateway={"enabled": True, "standard": {"enabled": True, "port": 8081}}))
    wait_until(lambda: f"{GATEWAY}:8081" in file.status()["services"] and file.log().count("is applied") == 3)
    picked_is_who_answers(file.status())  # by a port that was not there before


def test_gateway_follows_what_the_resource_says_of_its_picker(up: StartFile) -> None:
    file = up("minimal")
    gateway = {"enabled": True, "standard": {"enabled": True}}
    picker = {"enabled": True, "failureMode": "FailClose", "args": ["--secure-serving", "--v", "3"]}
    file.edit(lambda spec: spec.update(epp=picker, inferenceGateway=gateway))
    wait_until(lambda: file.log().count("is applied") == 1)
    document = file.status()
    assert document["failure_mode"] == "FailClose"
    picked_is_who_answers(document)


def test_edit_that_is_wrong_changes_nothing_and_is_told(run: Run, up: StartFile) -> None:
    file = up("minimal")
    before = file.status()
    file.edit(lambda spec: spec.update(replicsa=5))
    wait_until(lambda: "spec.replicsa: unknown field: did you mean 'replicas'?" in file.log())
    assert file.status()["pids"] == before["pids"]
    again = run("up", "-f", str(file.path))
    assert (again.returncode, "did you mean 'replicas'?" in again.stderr) == (2, True)


def test_part_that_does_not_start_takes_nothing_away(up: StartFile) -> None:
    file = up("prefill_decode")
    url = file.status()["gateway"]
    file.edit(lambda spec: spec["decode"].update(args=["--mode", "nonsense"]))
    wait_until(lambda: file.log().count("does not start: ") == 1)
    file.edit(lambda spec: spec["prefill"].update(replicas=3))  # what is still wrong stays so
    wait_until(lambda: file.log().count("does not start: ") == 2)
    with httpx.Client(base_url=url) as http:
        assert {ask(http, str(number)).status_code for number in range(8)} == {200}
    file.edit(lambda spec: spec["decode"].update(args=[], replicas=1))
    wait_until(lambda: len(file.names(of=DECODE)) == 1 and len(file.names(of=PREFILL)) == 3)
    with httpx.Client(base_url=url) as http:
        assert ask(http, "and now").headers["x-inference-pod"] in file.names(of=DECODE)


def test_file_that_is_wrong_is_one_sentence(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "stack.yaml"
    file.write_text(
        "apiVersion: sim.llm-d.io/v1alpha1\nkind: SimulatorDeployment\nmetadata: {name: x}\nspec: {epp: 3}\n"
    )
    refused = run("up", "-f", str(file))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"pointsman: {file}: spec.epp: ")
    assert len(refused.stderr.splitlines()) == 1
