"""A well-behaved client beside an attack: what it notices is part of every test of an attack.

`watched` first measures a calm baseline, then keeps sending while the block runs, and judges at the end: no errors, and
a p99 of at most three times the bystander's own baseline. The baseline is taken in the same test, so a busy machine
slows both down. Below `NOISE` a difference says more about the machine than about us, so a baseline counts as at
least that much. A machine that becomes busier during the attack is measured by a thread that only sleeps: each of
the processes on an exchange's way may be woken as late as that.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
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

    @property
    def limit(self) -> float:
        """The p99 that it may have at most."""
        return FACTOR * max(p99(self.calm), NOISE, WAKES * p99(self.lags))

    def judge(self) -> None:
        """Fail when the attack was noticed."""
        assert self.during, "the bystander sent nothing during the attack"
        assert not self.errors, f"the bystander saw errors: {self}"
        assert p99(self.during) <= self.limit, f"the bystander waited: {self}"

    def __str__(self) -> str:
        return (
            f"{len(self.during)} exchanges, errors {dict(self.errors)}, p99 {p99(self.during) * 1000:.0f} ms "
            f"(calm {p99(self.calm) * 1000:.0f} ms, the machine {p99(self.lags) * 1000:.0f} ms, "
            f"limit {self.limit * 1000:.0f} ms)"
        )


@asynccontextmanager
async def watched(
    send: Send, *, clients: int = 2, pause: float = 0.01, calm: int = 60, least: int = 20
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

    with _sleeper(seen.lags):
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())
            try:
                yield seen
            finally:
                over = True
    print(f"bystander: {seen}")
    seen.judge()


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
