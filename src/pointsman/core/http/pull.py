"""A connection whose answers are read piece by piece, by someone who may be slower than the server.

An answer that is not read stops the reading of its socket after `_AHEAD` bytes, so it waits at the server. An answer
must say where it ends: one that ends with the connection counts as broken, since nobody could tell it from one that was
cut. A connection is `reusable` when its answer has been read to the end and the server takes another.
"""

import asyncio
from typing import cast

from pointsman.core.http.exchange import Exchange
from pointsman.core.http.limits import AnswerLimits

_AHEAD = 1 << 20


class Pull(asyncio.Protocol):
    """One socket, and the answer that comes from it."""

    def __init__(self, *, limits: AnswerLimits) -> None:
        self._exchange = Exchange(limits)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False
        self._lost = ""

    @property
    def reusable(self) -> bool:
        """Whether the next question may go here."""
        exchange = self._exchange
        return exchange.complete and exchange.stays and not (self._lost or exchange.fault or exchange.held)

    def ask(self, request: bytes) -> None:
        """Send a question."""
        assert self._transport is not None
        self._exchange.ask()
        self._transport.write(request)

    async def head(self, *, within: float | None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Return the answer's status and headers. Raises TimeoutError and ConnectionError."""
        exchange = self._exchange
        while not exchange.has_head:
            await self._more(within)
        return exchange.status, exchange.headers

    async def piece(self, *, within: float | None) -> bytes:
        """Return the next part of the body; nothing after the last. Raises TimeoutError and ConnectionError."""
        exchange = self._exchange
        while not exchange.held:
            if exchange.complete:
                return b""
            await self._more(within)
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return exchange.take()

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    async def _more(self, within: float | None) -> None:
        reason = self._exchange.fault or self._lost
        if reason:
            raise ConnectionError(reason)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(within):
                await self._waiter
        except TimeoutError:
            raise TimeoutError(f"nothing came within {within:g} s") from None
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's over TLS does not descend from it

    def data_received(self, data: bytes) -> None:
        """Keep what came, and ask for no more than a reader can take."""
        exchange = self._exchange
        exchange.receive(data)
        if exchange.fault:
            self.close()
        elif exchange.held > _AHEAD and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let whoever waits know."""
        self._lost = self._lost or str(exc or "the server closed the connection")
        self._wake()
