"""`pointsman demo`: see the pick decide. Starts a stack, sends requests, shows pick and answer side by side, stops.

The exit code is the proof: 0 only if every request was answered by the very endpoint that the picker chose. Ports are
the kernel's and the state folder is temporary, so that a demo disturbs no stack that runs, and leaves nothing.
"""

import asyncio
import http.client
import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pointsman.cli.up import UpOptions, settings_of
from pointsman.core.errors import Unavailable
from pointsman.local import envoy, follow
from pointsman.local.http import get
from pointsman.local.running import until_ready
from pointsman.local.stack import Supervisor
from pointsman.local.standard import Settings
from pointsman.local.state import Folder, StackState
from pointsman.render.envoy.addresses import Address

_PROMPT = "The points are set before the train arrives."
_SLOW_ENOUGH_TO_OVERLAP = "--time-to-first-token 150ms --inter-token-latency 5ms"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request; those of a `group` are sent at the same time."""

    group: str
    prompt: str
    stream: bool = False


@dataclass(frozen=True, kw_only=True)
class DemoOutcome:
    """What became of a request."""

    case: Case
    status: int
    events: int
    picked: str | None
    reason: str
    answered: str | None

    @property
    def agrees(self) -> bool:
        """Whether the endpoint that answered is the one that was picked."""
        return self.status == 200 and self.picked is not None and self.picked == self.answered


def cases() -> list[Case]:
    """Return the requests of the demo."""
    different = [f"Line {number}: {_PROMPT}" for number in range(4)]
    return [
        *(Case(group="same prompt, one by one", prompt=_PROMPT) for _ in range(3)),
        *(Case(group="different prompts, at once", prompt=prompt) for prompt in different),
        *(Case(group="same prompt, streamed, at once", prompt=_PROMPT, stream=True) for _ in range(3)),
    ]


def verdict(outcomes: Sequence[DemoOutcome]) -> tuple[str, int]:
    """Return the closing sentence and the exit code."""
    agreed = sum(outcome.agrees for outcome in outcomes)
    if outcomes and agreed == len(outcomes):
        return f"all {agreed} requests were answered by the endpoint that was picked", 0
    return f"{len(outcomes) - agreed} of {len(outcomes)} requests were not answered by the endpoint that was picked", 1


def demo(*, replicas: int = 3, fail_open: bool = False, picker_args: str = "") -> int:
    """Start a stack, send requests, show which endpoint was picked, why, and which one answered.

    Parameters
    ----------
    replicas
        Simulators to run.
    fail_open
        When no picker answers, serve from any endpoint instead of answering 503.
    picker_args
        Additional flags for the picker, as one string, such as '--record decisions.jsonl'.

    """
    options = UpOptions(
        replicas=replicas,
        port=0,
        admin_port=0,
        grpc_port=0,
        grpc_health_port=0,
        metrics_port=0,
        sim_port=0,
        fail_open=fail_open,
        sim_args=_SLOW_ENOUGH_TO_OVERLAP,
        picker_args=picker_args,
    )
    options.check()
    # Without a terminal there is no width to ask for, and a log line may be as long as its reason.
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140)
    program, settings = envoy.find(os.environ, say=console.print), settings_of(options)
    folder = Folder(Path(tempfile.mkdtemp(prefix="pointsman-demo-")))
    folder.acquire()
    outcomes = asyncio.run(_run(settings, program=program, folder=folder, console=console))
    folder.retire()
    shutil.rmtree(folder.path)  # not when a part failed to start: the error names its log
    console.print(_table(outcomes))
    sentence, code = verdict(outcomes)
    console.print(sentence)
    return code


async def _run(settings: Settings, *, program: Path, folder: Folder, console: Console) -> list[DemoOutcome]:
    supervisor = Supervisor(folder=folder, envoy=program, clock=time.monotonic, say=console.print)
    plans = follow.wishes(settings, folder=folder)
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run(plans))
        try:
            stack = await until_ready(folder)
            return await _send(stack, settings=settings)
        finally:
            supervisor.stop()


async def _send(stack: StackState, *, settings: Settings) -> list[DemoOutcome]:
    names = {replica.address: replica.name for replica in stack.replicas}
    outcomes: list[DemoOutcome] = []
    for batch in batches(cases()):
        async with asyncio.TaskGroup() as group:
            sent = [group.create_task(_one(case, settings=settings, names=names)) for case in batch]
        outcomes += [task.result() for task in sent]
    return outcomes


def batches(all_cases: Iterable[Case]) -> list[list[Case]]:
    """Return the cases in the order and company in which they are sent."""
    result: list[list[Case]] = []
    for case in all_cases:
        if case.group.endswith("at once") and result and result[-1][0].group == case.group:
            result[-1].append(case)
        else:
            result.append([case])
    return result


async def _one(case: Case, *, settings: Settings, names: dict[str, str]) -> DemoOutcome:
    request_id = str(uuid.uuid4())
    status, events, answered = await asyncio.to_thread(
        _post, settings.places.gateway, case=case, request_id=request_id, model=settings.model
    )
    answer = await get(settings.places.picker_metrics, f"/debug/decisions?id={request_id}")
    if answer is None:
        raise Unavailable("the picker does not say what it decided")
    decisions = json.loads(answer.body)["decisions"]
    picked = names.get(decisions[0]["picked"][0]) if decisions else None
    reason = decisions[0]["reason"] if decisions else "the picker was not asked"
    return DemoOutcome(case=case, status=status, events=events, picked=picked, reason=reason, answered=answered)


def _post(gateway: Address, *, case: Case, request_id: str, model: str) -> tuple[int, int, str | None]:
    """Return the status, the number of server-sent events, and who answered."""
    body = {"model": model, "prompt": case.prompt, "max_tokens": 16, "stream": case.stream}
    connection = http.client.HTTPConnection(gateway.host, gateway.port, timeout=30)
    try:
        headers = {"content-type": "application/json", "x-request-id": request_id}
        connection.request("POST", "/v1/completions", body=json.dumps(body), headers=headers)
        answer = connection.getresponse()
        events = sum(line.startswith(b"data: ") for line in answer)
        return answer.status, events, answer.getheader("x-inference-pod")
    finally:
        connection.close()


def _table(outcomes: Sequence[DemoOutcome]) -> Table:
    table = Table()
    for heading in ("request", "picked", "why", "answered", ""):
        table.add_column(heading, overflow="fold")
    for outcome in outcomes:
        what = outcome.case.group.removesuffix(", at once") + (f" ({outcome.events} events)" if outcome.events else "")
        mark = Text("✓", style="green") if outcome.agrees else Text("✗", style="red")
        answered = outcome.answered or f"nobody ({outcome.status})"
        table.add_row(what, outcome.picked or "nobody", outcome.reason, answered, mark)
    return table
