"""HTTP/1.1 for httpx, as thin as an operator needs it: kept connections, whole requests, streamed answers.

httpx keeps what it is good at (addresses, credentials, decoding); what is replaced is the layer below, whose pool,
state machine and neutral sockets took three quarters of a request's CPU, and that was half of what an operator used.

A connection serves one answer at a time and goes back to the idle ones when that is read to its end; whatever else
happens (an error, a caller that leaves early), it is closed. An answer that is not read stops the reading of its socket
after `_AHEAD` bytes. An answer must say where it ends: one that ends with the connection counts as broken, since nobody
could tell it from one that was cut.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, cast

import httptools
import httpx2

_AHEAD = 1 << 20


class Transport(httpx2.AsyncBaseTransport):
    """The connections to whatever servers are asked."""

    def __init__(self, *, tls: ssl.SSLContext | None, idle: float = 60.0) -> None:
        self._tls = tls
        self._trusted = idle  # seconds for which a connection may rest; API servers keep them for 90 and more
        self._idle: dict[tuple[str, int], deque[_Connection]] = {}  # the longest rested first
        self._closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return the answer's head; the body follows as it is read."""
        limits = request.extensions.get("timeout", {})
        content = await request.aread()
        connection = await self._connection(request.url, within=limits.get("connect"))
        try:
            connection.ask(_head_of(request) + content)
            status, headers = await connection.head(within=limits.get("read"))
        except BaseException:
            connection.close()
            raise
        body = _Body(self, connection, within=limits.get("read"))
        return httpx2.Response(status, headers=headers, stream=body)

    async def aclose(self) -> None:
        """Close what is idle, and from now on what is given back."""
        self._closed = True
        for connection in (each for idle in self._idle.values() for each in idle):
            connection.close()

    def give_back(self, connection: "_Connection") -> None:
        """Keep a connection whose answer was read, or close it, and those that rested too long."""
        if self._closed or not connection.reusable:
            connection.close()
            return
        connection.rested_at = now = asyncio.get_running_loop().time()
        idle = self._idle.setdefault(connection.origin, deque())
        idle.append(connection)
        while now - idle[0].rested_at > self._trusted:
            idle.popleft().close()

    async def _connection(self, url: httpx2.URL, *, within: float | None) -> "_Connection":
        secure = url.scheme == "https"
        origin = (url.host, url.port or (443 if secure else 80))
        idle = self._idle.get(origin, ())
        loop = asyncio.get_running_loop()
        while idle:
            connection = self._idle[origin].pop()  # the one that rested least
            if connection.reusable and loop.time() - connection.rested_at < self._trusted:
                return connection
            connection.close()
        try:
            async with asyncio.timeout(within):
                _, made = await loop.create_connection(
                    lambda: _Connection(origin), *origin, ssl=self._tls if secure else None
                )
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"no connection to {url.host} within {within:g} s") from None
        except (OSError, ssl.SSLError) as error:
            raise httpx2.ConnectError(str(error) or type(error).__name__) from error
        return made


class _Connection(asyncio.Protocol):
    """One socket, and the answer that comes from it."""

    def __init__(self, origin: tuple[str, int]) -> None:
        self.origin = origin
        self.rested_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_head = False
        self._pieces: deque[bytes] = deque()
        self._waiting = 0  # bytes in them
        self._paused = False
        self._done = True
        self._kept = True
        self._fault: httpx2.TransportError | None = None

    @property
    def reusable(self) -> bool:
        """Whether the next request may go here."""
        return self._done and self._kept and self._fault is None and not self._pieces

    def ask(self, message: bytes) -> None:
        """Send a request."""
        assert self._transport is not None
        self._done = self._has_head = False
        self._transport.write(message)

    async def head(self, *, within: float | None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Return the answer's status and headers."""
        while not self._has_head:
            await self._more(within)
        return self._parser.get_status_code(), self._headers

    async def piece(self, *, within: float | None) -> bytes:
        """Return the next part of the body; nothing after the last."""
        while not self._pieces:
            if self._done:
                return b""
            await self._more(within)
        piece = self._pieces.popleft()
        self._waiting -= len(piece)
        if self._paused and not self._pieces:
            self._paused = False
            assert self._transport is not None
            self._transport.resume_reading()
        return piece

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    async def _more(self, within: float | None) -> None:
        if self._fault is not None:
            raise self._fault
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(within):
                await self._waiter
        except TimeoutError:
            raise httpx2.ReadTimeout(f"nothing came within {within:g} s") from None
        finally:
            self._waiter = None

    def _break(self, why: str) -> None:
        self._fault = httpx2.RemoteProtocolError(why)
        self.close()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's over TLS does not descend from it

    def data_received(self, data: bytes) -> None:
        if self._done:
            self._break("an answer that nobody asked for")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._break(str(error))
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fault = self._fault or httpx2.ReadError(str(exc or "the server closed the connection"))
        self._wake()

    # httptools

    def on_message_begin(self) -> None:
        if self._done:
            self._break("an answer that nobody asked for")
        else:
            self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._has_head = self._parser.get_status_code() >= 200  # what comes before that is not the answer

    def on_body(self, data: bytes) -> None:
        if self._done:
            return
        self._pieces.append(data)
        self._waiting += len(data)
        if self._waiting > _AHEAD and not self._paused:
            assert self._transport is not None
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._has_head and not self._done:
            self._done = True
            self._kept = self._parser.should_keep_alive()


class _Body(httpx2.AsyncByteStream):
    """An answer's body; its connection is given back at the end, and hung up when the reader leaves before."""

    def __init__(self, transport: Transport, connection: _Connection, *, within: float | None) -> None:
        self._transport = transport
        self._connection: _Connection | None = connection
        self._within = within

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._connection is not None and (piece := await self._connection.piece(within=self._within)):
            yield piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.give_back(connection)


def _head_of(request: httpx2.Request) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % field for field in request.headers.raw])
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (request.method.encode(), request.url.raw_path, lines)
