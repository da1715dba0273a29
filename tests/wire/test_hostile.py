"""Hostile peers on real sockets: each costs bounded memory, is cut off, and disturbs nobody else.

The listener runs in the test's own loop, so that limits can be small and what the loop sees can be asserted.
"""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hpack import Encoder
from tests.unit.wire.peers import data_frame, split
from tests.waiting import until

from pointsman.core.budget import Budget
from pointsman.core.tls import load_self_signed, server_context
from pointsman.epp.extproc.health import Health
from pointsman.wire.connection import STREAM_BYTES
from pointsman.wire.frames import END_HEADERS, PREFACE, Code, FrameKind, Setting, frame, reset, settings, window_update
from pointsman.wire.grpc import Router
from pointsman.wire.limits import Limits, Rate
from pointsman.wire.listener import Listener

LIMITS = Limits(
    preface_seconds=0.3,
    stalled_seconds=0.5,
    connections=8,
    concurrent_streams=2000,
    pings=Rate(burst=50, per_second=1),
)
CHECK = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/grpc.health.v1.Health/Check"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


class Server:
    """A listener with the health service, and everything that went wrong in its loop."""

    def __init__(self, listener: Listener, errors: list[dict[str, Any]]) -> None:
        self.listener = listener
        self.errors = errors

    async def connect(self, hello: bytes = PREFACE + settings({}), *, address: str = "127.0.0.1") -> "Socket":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port, local_addr=(address, 0))
        writer.write(hello)
        return Socket(reader, writer)


class Socket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder = Encoder()
        self.stream = -1

    def check(self) -> bytes:
        """Return a whole health check as bytes."""
        self.stream += 2
        head = frame(FrameKind.HEADERS, END_HEADERS, self.stream, self.encoder.encode(CHECK))
        return head + data_frame(self.stream, b"\0\0\0\0\0", end=True)

    async def rest(self) -> bytes:
        """Return all bytes until the server closes."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), timeout=10)
        return b""

    async def healthy(self) -> bool:
        """Do one health check, as a well-behaved peer would."""
        self.writer.write(self.check())
        return await self.answered()

    async def answered(self) -> bool:
        """Wait for the answer to a check."""
        seen = b""
        while b"grpc-status" not in seen:
            part = await asyncio.wait_for(self.reader.read(65_536), timeout=10)
            if not part:
                return False
            seen += part
        return True


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
    health = Health()
    health.set(serving=True)
    listener = Listener(Router(health.methods(), limits=LIMITS), limits=LIMITS, budget=Budget())
    async with asyncio.TaskGroup() as tasks:
        await listener.bind(host="127.0.0.1", port=0, flag="--grpc-port", spawn=tasks.create_task)
        yield Server(listener, errors)
        await listener.drain(seconds=0.1)
    await asyncio.sleep(0.05)
    assert errors == [], "no exception reaches the event loop"


def last_code(data: bytes) -> Code:
    return [f for f in split(data) if f.kind == FrameKind.GOAWAY][-1].code


async def test_rapid_resets_take_turns_with_everybody_else(server: Server) -> None:
    """The flood is read to its end and costs the other nothing: it gets its answer long before."""
    good, bad = await server.connect(), await server.connect()
    assert await good.healthy()
    block = Encoder().encode(CHECK)
    streams = range(1, 20_001, 2)
    flood = b"".join(frame(FrameKind.HEADERS, END_HEADERS, n, block) + reset(n, Code.CANCEL) for n in streams)
    bad.stream = 20_001
    bad.writer.write(flood + bad.check())
    answered: list[str] = []

    async def ask(socket: Socket, name: str) -> None:
        assert await (socket.healthy() if name == "good" else socket.answered())
        answered.append(name)

    await asyncio.gather(ask(bad, "bad"), ask(good, "good"))
    assert answered == ["good", "bad"]
    assert not server.listener.limit_hits


async def test_ping_flood(server: Server) -> None:
    good, bad = await server.connect(), await server.connect()
    bad.writer.write(frame(FrameKind.PING, 0, 0, b"flooding") * 1000)
    assert last_code(await bad.rest()) == Code.ENHANCE_YOUR_CALM
    assert await good.healthy()


async def test_a_peer_that_says_nothing_is_let_go(server: Server) -> None:
    quiet = await server.connect(hello=b"PRI * HT")
    assert last_code(await quiet.rest()) == Code.ENHANCE_YOUR_CALM
    assert server.listener.limit_hits["preface_seconds"] == 1


async def test_a_browser_is_let_go_at_once(server: Server) -> None:
    lost = await server.connect(hello=b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert last_code(await lost.rest()) == Code.PROTOCOL_ERROR


async def test_a_peer_that_never_reads_is_not_read_either_and_then_cut(server: Server) -> None:
    good = await server.connect()
    slow = socket.create_connection(("127.0.0.1", server.listener.port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.setblocking(False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hello = PREFACE + settings({Setting.INITIAL_WINDOW_SIZE: 2**31 - 1}) + window_update(0, 2**31 - 1 - 65_535)
    flood = Socket.__new__(Socket)
    flood.encoder, flood.stream = Encoder(), -1
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(slow, hello)
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(60):
            while not server.listener.limit_hits["stalled_seconds"]:
                await loop.sock_sendall(slow, b"".join(flood.check() for _ in range(500)))
    slow.close()
    assert server.listener.limit_hits["stalled_seconds"] == 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 60_000, f"grew by {grown} KiB"
    assert await good.healthy()


async def test_a_window_that_never_opens_is_bounded(server: Server) -> None:
    """Answers that may not leave keep their streams open: as many as a connection may have, and no more."""
    good = await server.connect()
    bad = await server.connect(hello=PREFACE + settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    bad.writer.write(b"".join(bad.check() for _ in range(3000)))
    await until(lambda: server.listener.limit_hits["concurrent_streams"] == 3000 - LIMITS.concurrent_streams)
    assert server.listener.open_streams == LIMITS.concurrent_streams
    assert server.listener.budget.held > LIMITS.concurrent_streams * STREAM_BYTES
    assert await good.healthy()
    bad.writer.close()
    await until(lambda: server.listener.open_streams == 0)
    assert server.listener.budget.held == 0, "all of it is let go with the connection"


async def test_a_handshake_that_does_not_come_to_an_end_is_cut() -> None:
    limits = replace(LIMITS, handshake_seconds=0.3)
    listener = Listener(Router({}, limits=limits), limits=limits, budget=Budget())
    tls = server_context()
    load_self_signed(tls)
    async with asyncio.TaskGroup() as tasks:
        await listener.bind(host="127.0.0.1", port=0, flag="--grpc-port", tls=tls, spawn=tasks.create_task)
        half_open = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(20)]
        for reader, writer in half_open:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), timeout=5) == b""
            writer.close()
        await listener.drain(seconds=0.1)


async def test_who_never_asked_for_anything_makes_room(server: Server) -> None:
    old = await server.connect()
    assert await old.healthy()
    idle = [await server.connect() for _ in range(7)]
    await until(lambda: len(server.listener.peers) == 8)
    newcomers = [await server.connect() for _ in range(7)]
    for newcomer in newcomers:
        assert await newcomer.healthy()
    for each in idle:
        await each.rest()  # ends: it was closed
    assert await old.healthy(), "one that is used stays"
    assert not server.listener.limit_hits["connections"]


async def test_who_has_no_stream_open_makes_room(server: Server) -> None:
    kept = [await server.connect() for _ in range(8)]
    assert all([await each.healthy() for each in kept])
    assert await (await server.connect()).healthy()
    await kept[0].rest()  # ends
    assert all([await each.healthy() for each in kept[1:]])


async def test_streams_that_are_open_are_cut_only_for_a_newcomer_from_elsewhere(server: Server) -> None:
    kept = [await server.connect() for _ in range(8)]
    for each in kept:
        each.writer.write(each.check()[: -len(data_frame(1, b"\0\0\0\0\0"))])  # begins, and stays open
    await until(lambda: server.listener.open_streams == 8)
    assert await (await server.connect()).rest() == b"", "turned away"
    assert server.listener.limit_hits["connections"] == 1
    assert await (await server.connect(address="127.0.0.2")).healthy()
    assert server.listener.open_streams == 7, "one of the address that had most is cut"
    assert await (await server.connect(address="127.0.0.2")).healthy()
    assert server.listener.open_streams == 7, "the first of its own has nothing open, and makes room for the next"
