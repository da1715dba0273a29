"""A well-behaved client beside an attack: what it notices is part of every test of an attack.

`watched` first measures a calm baseline, then keeps sending while the block runs, and judges at the end: no errors, and
a p99 of at most three times the bystander's own baseline. The baseline is taken in the same test, so a busy machine
slows both down. Below `NOISE` a difference says more about the machine than about us, so a baseline counts as at
least that much. A machine that becomes busier during the attack is measured twice: by a thread that only sleeps (each
of the processes on an exchange's way may be woken as late as that), and by how long our processes were ready to run
and had no core (`starved`).
"""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

Send = Callable[[], Awaitable[None]]
"""One exchange; it raises when the bystander was not served as it should be."""

NOISE = 0.2
FACTOR = 3
WAKES = 8  # gateway, picker, gateway, model server, gateway, picker, gateway, client
PATIENCE = 30.0
_NAP = 0.01


def p99(times: list[float]) -> float:
    """Return the time that 99 of 100 exchanges did not exceed."""
    return sorted(times)[int(len(times) * 0.99)] if times else 0.0


@dataclass
class Bystander:
    """What the client saw, in calm and during the attack."""

    calm: list[float] = field(default_factory=list)
    during: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    lags: list[float] = field(default_factory=list)  # how late the machine wakes somebody, during the attack
    starved: float = 1.0  # how much longer our processes took than they had to, for want of a core

    @property
    def limit(self) -> float:
        """The p99 that it may have at most."""
        return FACTOR * max(p99(self.calm), NOISE * self.starved, WAKES * p99(self.lags))

    def judge(self) -> None:
        """Fail when the attack was noticed."""
        assert self.during, "the bystander sent nothing during the attack"
        assert not self.errors, f"the bystander saw errors: {self}"
        assert p99(self.during) <= self.limit, f"the bystander waited: {self}"

    def __str__(self) -> str:
        return (
            f"{len(self.during)} exchanges, errors {dict(self.errors)}, p99 {p99(self.during) * 1000:.0f} ms "
            f"(calm {p99(self.calm) * 1000:.0f} ms, the machine {p99(self.lags) * 1000:.0f} ms late, "
            f"{self.starved:.1f} times as slow, limit {self.limit * 1000:.0f} ms)"
        )


@asynccontextmanager
async def watched(
    send: Send, *, clients: int = 2, pause: float = 0.025, calm: int = 60, least: int = 20
) -> AsyncIterator[Bystander]:
    """Run the block, which attacks, beside a client that must not notice."""
    seen = Bystander()
    for _ in range(calm):
        seen.calm.append(await _time(send, seen))
        await asyncio.sleep(pause)
    assert not seen.errors, f"there is no calm to compare with: {seen}"
    over = False

    async def client() -> None:
        while not over or len(seen.during) < least:
            seen.during.append(await _time(send, seen))
            await asyncio.sleep(pause)

    before = _scheduled()
    with _sleeper(seen.lags):
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())
            try:
                yield seen
            finally:
                over = True
    seen.starved = _starved(before, _scheduled())
    print(f"bystander: {seen}")
    seen.judge()


Shares = dict[Path, tuple[int, int]]


def _scheduled() -> Shares:
    """Return how long each thread of what we started has run, and has waited for a core, in nanoseconds."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = stat.read_text().rpartition(") ")[2].split()[1]
            parents.setdefault(int(parent), []).append(int(stat.parent.name))
    ours: list[int] = [os.getpid()]
    found: Shares = {}
    for pid in ours:
        ours += parents.get(pid, ())
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                run, waited, _ = thread.read_text().split()
                found[thread] = int(run), int(waited)
    return found


def _starved(before: Shares, after: Shares) -> float:
    """Return how many times as long as they ran our processes took for it."""
    run = sum(now[0] - before.get(thread, (0, 0))[0] for thread, now in after.items())
    waited = sum(now[1] - before.get(thread, (0, 0))[1] for thread, now in after.items())
    return (run + waited) / run if run > 0 else 1.0


@contextmanager
def _sleeper(lags: list[float]) -> Iterator[None]:
    """Note while the block runs how much later than asked for a thread is woken."""
    over = threading.Event()

    def sleep() -> None:
        while not over.is_set():
            asked = time.monotonic() + _NAP
            over.wait(_NAP)
            lags.append(max(0.0, time.monotonic() - asked))

    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def _time(send: Send, seen: Bystander) -> float:
    started = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE):
            await send()
    except Exception as error:  # whatever it is, the bystander was not served
        seen.errors[f"{type(error).__name__}: {error}"[:200]] += 1
    return time.monotonic() - started


@asynccontextmanager
async def completions(url: str, *, model: str, tokens: int = 2) -> AsyncIterator[Send]:
    """Return what sends a small completion and wants 200 and the name of the Pod that answered."""
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, verify=False, trust_env=False) as http:

        async def send() -> None:
            answer = await http.post(
                "/v1/completions", json={"model": model, "prompt": "a bystander", "max_tokens": tokens}
            )
            if answer.status_code != 200 or "x-inference-pod" not in answer.headers:
                raise AssertionError(f"{answer.status_code} {answer.text[:100]}")

        yield send


def resident_mib(pid: int, *, peak: bool = False) -> float:
    """Return how much memory a process holds, or held at most."""
    name = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no {name}")
