"""One keep-alive HTTP/1.1 connection that asks one question after another.

A question is a prepared request; an answer is a status and a body, handed to `done` outside the parser. One question at
a time: who answers unasked, too much, or not in HTTP loses the connection. It knows no clock; whoever asked decides how
long to wait, and `close` makes sure that nothing is heard afterwards.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

_HEAD_BYTES = 64 << 10


class Connection(asyncio.Protocol):
    """A connection to one endpoint."""

    __slots__ = (
        "_answers", "_asked", "_delimited", "_done", "_lost", "_max", "_parser", "_parts", "_received", "_stays",
        "_transport",
    )  # fmt: skip

    def __init__(self, *, max_bytes: int, done: Callable[[int, bytes], None], lost: Callable[[str], None]) -> None:
        self._max = max_bytes + _HEAD_BYTES
        self._done = done
        self._lost: Callable[[str], None] | None = lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._asked = False
        self._answers = 0
        self._stays = False
        self._delimited = False  # the head said where the body ends
        self._received = 0

    @property
    def open(self) -> bool:
        """Whether it can be asked. A transport that is closing may not have told us yet."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes) -> None:
        """Send a question; the connection must be open, and the last question answered."""
        assert self._transport is not None and not self._asked
        self._asked = True
        self._answers = 0
        self._received = 0
        self._transport.write(request)

    def close(self) -> None:
        """End the connection without another word to anyone."""
        self._lost = None
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, unless we were closed while connecting."""
        self._transport = cast(asyncio.Transport, transport)
        if self._lost is None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Collect an answer."""
        self._received += len(data)
        if not self._asked:
            self._give_up("it sent something that nobody asked for")
            return
        if self._received > self._max:
            self._give_up(f"its answer is larger than {self._max} bytes")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserCallbackError):
            self._give_up("its answer is not HTTP")
            return
        if self._answers > 1:
            self._give_up("it answered more than once")
        elif self._answers:
            self._answer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end as the end of a body that says no other; report it in any case."""
        self._transport = None
        if self._asked and not self._delimited and self._parts and exc is None:
            self._answer()
        lost, self._lost = self._lost, None
        if lost is not None:
            lost("it closed the connection" if exc is None else str(exc))

    # -- the parser's side --------------------------------------------------------------------------------------

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Note whether the body's end is known."""
        if name.lower() in {b"content-length", b"transfer-encoding"}:
            self._delimited = True

    def on_body(self, body: bytes) -> None:
        """Collect a piece."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Note the end, and whether there can be another answer (the parser knows only now); 1xx is not an end."""
        self._answers += self._parser.get_status_code() >= 200
        self._stays = self._parser.should_keep_alive()

    def _answer(self) -> None:
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        self._asked = self._delimited = False
        if self._lost is None:
            return
        if not self._stays:
            self._give_up("")  # first, so that the next question opens a new connection
        self._done(self._parser.get_status_code(), body)

    def _give_up(self, reason: str) -> None:
        lost = self._lost
        self.close()
        if lost is not None:
            lost(reason)
