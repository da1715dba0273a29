"""Clients that take their time, or many connections: they are let go, others notice nothing, answers are never cut."""

import asyncio
import contextlib
import time

import httpx
from tests.bystander import completions, watched
from tests.envoy.conftest import STRICT
from tests.envoy.harness import MODEL, Lab
from tests.envoy.load import completion
from tests.envoy.raw import Line, exchange, status
from tests.waiting import until

from pointsman.local.http import get

SLACK = 25.0
"""What a busy machine may add to a limit."""
SLOW = 200
ENDLESS_HEADERS = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-slow: "
ENDLESS_BODY = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"


async def _drip(lab: Lab, start: bytes, *, delay: float) -> tuple[int, float]:
    """Begin a request and go on by a byte a second; return the answer and after how long the connection was closed."""
    await asyncio.sleep(delay)
    line = await Line.open(lab)
    line.writer.write(start)
    started = time.monotonic()
    dripping = asyncio.create_task(line.drip(b"a", every=1))
    try:
        answer = status(await line.head())
        await line.rest()
        return answer, time.monotonic() - started
    finally:
        dripping.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await dripping
        line.close()


async def test_requests_that_never_end(strict_lab: Lab) -> None:
    starts = [ENDLESS_HEADERS, ENDLESS_BODY] * (SLOW // 2)
    async with completions(strict_lab.url, model=MODEL) as send, watched(send, calm=30), asyncio.TaskGroup() as group:
        # It is their number that counts, not that they come all at once.
        tasks = [group.create_task(_drip(strict_lab, start, delay=2 * n / SLOW)) for n, start in enumerate(starts)]
    assert {task.result()[0] for task in tasks} == {408}
    assert max(task.result()[1] for task in tasks) < STRICT.request_timeout + SLACK


async def test_a_model_may_think_longer_than_any_limit_for_clients(strict_lab: Lab) -> None:
    longest = max(STRICT.request_timeout, STRICT.connection_idle_timeout)
    body = completion(tokens=int(longest / 0.02) + 50) | {"ignore_eos": True}
    started = time.monotonic()
    async with httpx.AsyncClient(base_url=strict_lab.url, timeout=60) as http:
        answer = await http.post("/v1/completions", json=body)
    assert answer.status_code == 200
    assert time.monotonic() - started > longest


async def _takes_nobody(lab: Lab) -> bool:
    """Tell whether a new connection is closed without an answer."""
    return await exchange(lab, b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n") == ""


class Crowd:
    """Connections on which nothing is said, more of them than the gateway takes."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.lines: list[Line] = []

    async def fills(self) -> bool:
        """Come anew; false when the machine was so slow that the first were let go before the last had come."""
        self.close()
        for _ in range(STRICT.connections + 10):
            self.lines.append(await Line.open(self.lab))
        return await _takes_nobody(self.lab)

    def close(self) -> None:
        while self.lines:
            self.lines.pop().close()


async def test_idle_connections_up_to_the_limit(strict_lab: Lab) -> None:
    """Who has a connection keeps it; who comes new gets in when the idle ones have been let go; probes always do."""
    crowd = Crowd(strict_lab)
    with contextlib.closing(crowd):
        async with completions(strict_lab.url, model=MODEL) as send:
            async with watched(send, calm=30):
                await until(crowd.fills)
                admin = await get(strict_lab.admin, "/ready")
                assert admin is not None and admin.status == 200
            await until(strict_lab.answers, within=STRICT.connection_idle_timeout + SLACK)
        assert {await line.rest() for line in crowd.lines} == {b""}


BROKEN = {
    "not HTTP": (b"GARBAGE\r\n\r\n", 400),
    "no host": (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
    "two lengths": (
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
        400,
    ),
    "a long header": (b"GET /v1/models HTTP/1.1\r\nhost: x\r\na: %b\r\n\r\n" % (b"x" * 33_000), 431),
    "many headers": (b"GET /v1/models HTTP/1.1\r\nhost: x\r\n%b\r\n" % (b"a: b\r\n" * 101), 431),
    "an encoding": (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: foo\r\n\r\n", 501),
    "HTTP/1.0": (b"GET /v1/models HTTP/1.0\r\nhost: x\r\n\r\n", 426),
    "a tunnel": (b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n", 404),
}


async def test_what_is_not_http_is_told_so(strict_lab: Lab) -> None:
    """By Envoy itself, with no picker in between that could be late."""
    answers = {name: status(await exchange(strict_lab, data)) for name, (data, _) in BROKEN.items()}
    assert answers == {name: expected for name, (_, expected) in BROKEN.items()}
