"""Asking servers, with a bound on everything that they can make us hold: `Poll` for answers that are handed on as they
come, `Line` for those that somebody waits for, `fetch` for a single question on a connection of its own.

A question is a prepared request (`messages.request`), an answer a status and a whole body. What `Exchange` finds fault
with ends the connection. None of them retries. A `Poll` and a `Line` know no clock, whoever asked decides how long to
wait, and `close` makes sure that nothing is heard afterwards; `fetch` takes its deadline for everything together, from
the name's address to the last byte. Answers that are too long to be held whole are read with `pull`.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import NamedTuple, cast

from pointsman.core.http.exchange import Exchange
from pointsman.core.http.limits import AnswerLimits


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes


class Poll(asyncio.Protocol):
    """A kept connection to one server, which is asked one question after another."""

    __slots__ = ("_done", "_exchange", "_lost", "_transport")

    def __init__(
        self, *, limits: AnswerLimits, done: Callable[[int, bytes], None], lost: Callable[[str], None]
    ) -> None:
        self._exchange = Exchange(limits)
        self._done = done
        self._lost: Callable[[str], None] | None = lost
        self._transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        """Whether it can be asked. A transport that is closing may not have told us yet."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes) -> None:
        """Send a question; the connection must be open, and the last question answered."""
        assert self._transport is not None
        self._exchange.ask()
        self._transport.write(request)

    def close(self) -> None:
        """End the connection without another word to anyone."""
        self._lost = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, unless we were closed while connecting."""
        self._transport = cast("asyncio.Transport", transport)
        if self._lost is None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Collect an answer."""
        exchange = self._exchange
        exchange.receive(data)
        if exchange.fault:
            self._give_up(exchange.fault)
        elif exchange.complete:
            self._answer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end as the end of a body that says no other; report it in any case."""
        self._transport = None
        if exc is None and self._exchange.ended():
            self._answer()
        lost, self._lost = self._lost, None
        if lost is not None:
            lost("it closed the connection" if exc is None else str(exc))

    def _answer(self) -> None:
        if self._lost is None:
            return
        exchange = self._exchange
        if not exchange.stays:
            self._give_up("")  # first, so that the next question opens a new connection
        self._done(exchange.status, exchange.take())

    def _give_up(self, reason: str) -> None:
        lost = self._lost
        self.close()
        if lost is not None:
            lost(reason)


class Line:
    """A kept connection that one caller at a time waits on."""

    def __init__(self, *, limits: AnswerLimits) -> None:
        self._answer: asyncio.Future[Answer] | None = None
        self._poll = Poll(limits=limits, done=self._done, lost=self._lost)

    @property
    def open(self) -> bool:
        """Whether it can be asked."""
        return self._poll.open

    async def dial(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        """Connect. Raises OSError when nobody is there."""
        await asyncio.get_running_loop().create_connection(lambda: self._poll, host, port, ssl=tls)

    async def ask(self, request: bytes) -> Answer:
        """Return the answer. Raises ConnectionError when there is none."""
        if not self._poll.open:
            raise ConnectionError("it closed the connection")
        self._answer = asyncio.get_running_loop().create_future()
        self._poll.ask(request)
        return await self._answer

    def close(self) -> None:
        """Hang up."""
        self._poll.close()

    def _done(self, status: int, body: bytes) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(status, body))

    def _lost(self, reason: str) -> None:
        if reason and self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(reason))


async def fetch(
    request: bytes,
    *,
    host: str,
    port: int,
    seconds: float,
    limits: AnswerLimits,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Ask one question on a connection of its own.

    Raises OSError when there is no answer: TimeoutError when there was none in time.
    """
    line = Line(limits=limits)
    try:
        async with asyncio.timeout(seconds):
            await line.dial(host, port, tls=tls)
            return await line.ask(request)
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    finally:
        line.close()
