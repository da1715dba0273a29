"""When a Pod that leaves has nothing left to do, asked of a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pointsman.local.drain import drained
from pointsman.local.plan import Role
from pointsman.local.ports import any_free
from pointsman.local.replicas import PodMember
from pointsman.render.envoy.addresses import Address


@asynccontextmanager
async def serving(bodies: list[bytes], *, asked: list[bytes]) -> AsyncIterator[Address]:
    """Answer each request with the next body, and the last one for ever."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.partition(b" HTTP")[0])
        posted = head.startswith(b"POST")
        body = b"" if posted else bodies.pop(0) if len(bodies) > 1 else bodies[0]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield Address(host, port)


def leaving(role: Role, address: Address) -> PodMember:
    return PodMember(name="a", role=role, address=address, ports={1: address}, healthy=True, leaving=True)


async def test_simulator_has_no_request_left() -> None:
    busy, idle = (b"vllm:num_requests_running %d\nvllm:num_requests_waiting 0\n" % n for n in (2, 0))
    asked: list[bytes] = []
    async with serving([busy, busy, idle], asked=asked) as address, asyncio.timeout(20):
        await drained(leaving("simulator", address))
    assert asked == [b"GET /metrics"] * 3


async def test_gateway_is_told_and_has_no_connection_left() -> None:
    busy, idle = (b"http.gateway.downstream_cx_active: %d\n" % n for n in (1, 0))
    asked: list[bytes] = []
    async with serving([busy, idle], asked=asked) as address, asyncio.timeout(20):
        await drained(leaving("gateway", address))
    assert asked[0] == b"POST /drain_listeners?graceful&skip_exit"
    assert len(asked) == 3


@pytest.mark.parametrize("role", ["simulator", "gateway", "picker"])
async def test_who_is_gone_has_nothing_left(role: Role) -> None:
    async with asyncio.timeout(20):
        await drained(leaving(role, Address("127.0.0.1", any_free())))
