"""The GET client against real sockets: what is wrong with a peer is None, never an exception."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pointsman.core.http.client import Answer
from pointsman.local.http import get
from pointsman.local.ports import any_free
from pointsman.render.envoy.addresses import Address

MOST = 64 << 20


@asynccontextmanager
async def peer(reply: bytes, *, hang: bool = False) -> AsyncIterator[Address]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        if hang:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", Answer(200, b"ok"), id="length"),
        pytest.param(
            b"HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
            Answer(503, b"no"),
            id="chunked",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok", None, id="cut short"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", None, id="not HTTP"),
        pytest.param(b"", None, id="nothing"),
    ],
)
async def test_what_comes_back(reply: bytes, answer: Answer | None) -> None:
    async with peer(reply) as address:
        assert await get(address, "/") == answer


async def test_what_never_ends_is_given_up() -> None:
    """It is the limit that ends it, long before the time does."""
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (1 << 40))
        with contextlib.suppress(ConnectionError):
            while sent < 8 * MOST:
                writer.write(bytes(1 << 20))
                sent += 1 << 20
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(pour, "127.0.0.1", 0) as server:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        assert await get(address, "/", timeout=60) is None
    assert sent < 2 * MOST


async def test_nobody_listens() -> None:
    assert await get(Address("127.0.0.1", any_free()), "/") is None


async def test_slow_peer_is_given_up() -> None:
    async with peer(b"HTTP/1.1 200 OK\r\n", hang=True) as address:
        assert await get(address, "/", timeout=0.05) is None
