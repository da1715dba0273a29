"""A bounded load generator with counts: so many clients, each with one request at a time, until told to stop."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
from tests.envoy.harness import MODEL
from tests.waiting import until

TIMEOUT = 30.0
PAUSE = 0.05
"""Seconds of a client between two requests: without, a load takes every core for as long as a test waits."""


@dataclass
class Tally:
    """What the clients saw."""

    answers: Counter[int | str] = field(default_factory=Counter)
    """By status, or by the name of the error when there was none."""
    pods: Counter[str] = field(default_factory=Counter)
    times: list[tuple[float, int | str]] = field(default_factory=list)
    """When each answer ended, and what it was."""
    slowest: float = 0.0
    stop: bool = False

    @property
    def total(self) -> int:
        return sum(self.answers.values())

    def add(self, outcome: int | str, *, pod: str | None, started: float) -> None:
        now = time.monotonic()
        self.answers[outcome] += 1
        self.times.append((now, outcome))
        self.slowest = max(self.slowest, now - started)
        if pod:
            self.pods[pod] += 1

    async def grows(self, count: int) -> None:
        """Wait for so many more answers: the tests count requests, not seconds."""
        goal = self.total + count

        async def reached() -> bool:
            return self.total >= goal

        await until(reached)

    async def served_by(self, pods: Collection[str]) -> None:
        """Wait until each of these has answered."""

        async def all_did() -> bool:
            return self.pods.keys() >= set(pods)

        await until(all_did)

    def __str__(self) -> str:
        pods = dict(sorted(self.pods.items()))
        return f"{self.total} requests {dict(self.answers)} by {pods}, slowest {self.slowest:.2f} s"


def completion(*, size: int = 1000, tokens: int = 2, stream: bool = False) -> dict[str, object]:
    prompt = uuid.uuid4().hex + "x" * size
    return {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "stream": stream}


@asynccontextmanager
async def load(
    url: str, *, clients: int = 8, size: int = 1000, tokens: int = 2, stream: bool = False
) -> AsyncIterator[Tally]:
    """Send requests while the block runs, then let the last ones end."""
    tally = Tally()

    async def client() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, verify=False, trust_env=False) as http:
            while not tally.stop:
                await _one(http, tally, body=completion(size=size, tokens=tokens, stream=stream), stream=stream)
                await asyncio.sleep(PAUSE)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
        try:
            yield tally
        finally:
            tally.stop = True
    print(tally)


async def _one(http: httpx.AsyncClient, tally: Tally, *, body: dict[str, object], stream: bool) -> None:
    started = time.monotonic()
    try:
        answer = await http.post("/v1/completions", json=body)
    except httpx.HTTPError as error:
        tally.add(type(error).__name__, pod=None, started=started)
        return
    outcome: int | str = answer.status_code
    if stream and answer.status_code == 200 and not answer.text.endswith("data: [DONE]\n\n"):
        outcome = "cut short"
    tally.add(outcome, pod=answer.headers.get("x-inference-pod"), started=started)
