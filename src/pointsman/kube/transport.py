"""Our connections below httpx, as thin as an operator needs them: kept, whole requests, streamed answers.

httpx stays for what lightkube builds on it: credentials (tokens that a file or a program renews are an `httpx2.Auth`),
addresses, decoding. What is replaced is the layer below, whose pool, state machine and neutral sockets took three
quarters of a request's CPU, and that was half of what an operator used.

A connection (`core.http.pull`) serves one answer at a time and goes back to the idle ones when that is read to its end;
whatever else happens (an error, a caller that leaves early), it is closed. A head is bounded here; a body is bounded by
whoever reads it (`kube.client`), since a watch has no end.
"""

import asyncio
import contextlib
import math
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterator

import httpx2

from pointsman.core.http.limits import AnswerLimits
from pointsman.core.http.pull import Pull

_LIMITS = AnswerLimits(body_bytes=math.inf)


class _Connection(Pull):
    """A connection, and since when it rests."""

    def __init__(self, origin: tuple[str, int]) -> None:
        super().__init__(limits=_LIMITS)
        self.origin = origin
        self.rested_at = 0.0


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
            with _as_httpx():
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

    def give_back(self, connection: _Connection) -> None:
        """Keep a connection whose answer was read, or close it, and those that rested too long."""
        if self._closed or not connection.reusable:
            connection.close()
            return
        connection.rested_at = now = asyncio.get_running_loop().time()
        idle = self._idle.setdefault(connection.origin, deque())
        idle.append(connection)
        while now - idle[0].rested_at > self._trusted:
            idle.popleft().close()

    async def _connection(self, url: httpx2.URL, *, within: float | None) -> _Connection:
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


class _Body(httpx2.AsyncByteStream):
    """An answer's body; its connection is given back at the end, and hung up when the reader leaves before."""

    def __init__(self, transport: Transport, connection: _Connection, *, within: float | None) -> None:
        self._transport = transport
        self._connection: _Connection | None = connection
        self._within = within

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx():
            while self._connection is not None and (piece := await self._connection.piece(within=self._within)):
                yield piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.give_back(connection)


@contextlib.contextmanager
def _as_httpx() -> Iterator[None]:
    """Give what went wrong on a connection the name that it has in httpx."""
    try:
        yield
    except TimeoutError as error:
        raise httpx2.ReadTimeout(str(error)) from None
    except ConnectionError as error:
        raise httpx2.ReadError(str(error)) from None


def _head_of(request: httpx2.Request) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % field for field in request.headers.raw])
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (request.method.encode(), request.url.raw_path, lines)
