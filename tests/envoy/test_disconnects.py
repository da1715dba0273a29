"""Clients that hang up by the hundred: only they notice.

Every request of FailOpen passes from one tier of Envoy to the other. While that hop was one HTTP/2 connection, its own
guard against rapid resets took the clients' hanging up for an attack, and ended it with every answer under way.
"""

import asyncio
import socket
import struct

import httpx
from tests.bystander import completions, watched
from tests.envoy.conftest import StartLab
from tests.envoy.harness import MODEL, Lab
from tests.envoy.load import completion

ABORTS = 1500
AT_ONCE = 10
STREAMS = 10
SLOW = ("--inter-token-latency", "50ms", "--max-num-seqs", "1024")
_LINGER = struct.pack("ii", 1, 0)
_BODY = b'{"model": "%s", "prompt": "gone", "max_tokens": 100, "ignore_eos": true}' % MODEL.encode()
_REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(_BODY) + _BODY


async def _hang_up(lab: Lab) -> None:
    """Send a request and leave before the answer."""
    _, writer = await asyncio.open_connection(lab.gateway.host, lab.gateway.port)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)  # a reset, not an end
    writer.write(_REQUEST)
    await asyncio.sleep(0.02)
    writer.transport.abort()


async def _many_hang_up(lab: Lab) -> None:
    async def client() -> None:
        for _ in range(ABORTS // AT_ONCE):
            await _hang_up(lab)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(client())


async def _stream(http: httpx.AsyncClient, *, begun: asyncio.Semaphore, over: asyncio.Event) -> int:
    """Read one answer after another until it is over, and count those that were cut."""
    cut = 0
    while not over.is_set():
        body = completion(tokens=60, stream=True) | {"ignore_eos": True}
        try:
            async with http.stream("POST", "/v1/completions", json=body) as answer:
                begun.release()
                lines = [line async for line in answer.aiter_lines() if line]
            cut += lines[-1:] != ["data: [DONE]"]
        except httpx.HTTPError:
            cut += 1
    return cut


async def test_answers_under_way_survive_thousands_of_clients_that_hang_up(start_lab: StartLab) -> None:
    lab = await start_lab(failure_mode="FailOpen", simulator=SLOW)
    begun, over = asyncio.Semaphore(0), asyncio.Event()
    async with (
        completions(lab.url, model=MODEL) as send,
        httpx.AsyncClient(base_url=lab.url, timeout=60) as http,
        asyncio.TaskGroup() as group,
    ):
        streams = [group.create_task(_stream(http, begun=begun, over=over)) for _ in range(STREAMS)]
        for _ in streams:
            await begun.acquire()
        try:
            async with watched(send, clients=4, calm=30):
                await _many_hang_up(lab)
        finally:
            over.set()
    assert [task.result() for task in streams] == [0] * STREAMS
