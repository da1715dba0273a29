"""The socket of one peer: a shell around `Connection`, in turns with everybody else's, and on the server's budget.

Owns the transport, the task of an awaited answer, and how much may wait unread on either side: input stops while it is
others' turn or too many requests are in line; no answer is made for a peer that has not read the one before; whoever
reads nothing at all for too long is cut off.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol, cast

from pointsman.core.budget import Account, Budget, Exhausted
from pointsman.core.http.connection import Clock, Connection
from pointsman.core.http.limits import Limits
from pointsman.core.http.messages import Response
from pointsman.core.http.requests import Request
from pointsman.core.inbox import Inbox
from pointsman.core.logs import get_logger

Handler = Callable[[Request], Response | Awaitable[Response | None] | None]
Fault = Callable[[int, str], Response]

_LOG = get_logger(__name__)
_NO_ROOM = "the server holds as many bytes for its clients as it may: try again later"


class Transport(Protocol):
    """The part of asyncio.Transport that we use."""

    def write(self, data: bytes, /) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def can_write_eof(self) -> bool: ...
    def write_eof(self) -> None: ...


class House(Protocol):
    """What all peers of a server share."""

    clock: Clock
    inbox: Inbox
    budget: Budget
    peers: "set[Peer]"

    def spawn(self, answer: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run an awaited answer."""


class Door(Protocol):
    """The port that a peer came in by."""

    limits: Limits
    handler: Handler
    fault: Fault
    http2: Callable[[], asyncio.Protocol] | None
    draining: bool
    idle: "dict[Peer, None]"

    def admit(self, peer: "Peer") -> bool:
        """Return whether there is a place for it."""

    def leave(self, peer: "Peer") -> None:
        """Free its place."""


class Peer(asyncio.Protocol):
    """One accepted connection."""

    def __init__(self, door: Door, *, house: House) -> None:
        self.door = door
        self.connection = Connection(self, limits=door.limits, clock=house.clock)
        self.admitted = False  # the listener counts it
        self._house = house
        self._transport: Transport | None = None
        self._unread = True  # nothing was received so far
        self._paused = False  # too many requests are in line
        self._dispatching = False
        self._in_line = False  # the next request waits for its turn
        self._task: asyncio.Task[None] | None = None
        self._account: Account | None = None  # of what is held from one read to the next
        self._choked_at = 0.0  # since when the peer has too much to read and takes none of it
        self._unread_bytes = 0  # that it had when we last looked

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        if not self.door.admit(self):
            self._transport.abort()
            return
        self.connection.write = self._transport.write
        self.connection.retiring = self.door.draining
        self._await_request()
        self._house.peers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter
        self._transport = None
        self._leave()
        if self._task is not None:
            self._task.cancel()
        self.connection.lost()

    def pause_writing(self) -> None:
        self._choked_at = self._house.clock.now()
        self.connection.choke(True)

    def resume_writing(self) -> None:
        self.connection.choke(False)
        self._settle()
        self._dispatch()

    def data_received(self, data: bytes) -> None:
        if self.connection.deaf:
            return
        if self._house.inbox.open():
            self._take(data)
        elif self._transport is not None:
            self._transport.pause_reading()  # so that nobody can make us hold more than one read
            self.connection.deadline = math.inf  # it is our turn
            self._house.inbox.put(partial(self._take_later, data))

    def _take_later(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._await_request()
        if not self._paused:
            self._transport.resume_reading()
        if not self.connection.deaf:  # it may have been given up meanwhile
            self._take(data)

    def _await_request(self) -> None:
        self.connection.deadline = self._house.clock.now() + self.door.limits.request_seconds

    def _take(self, data: bytes) -> None:
        if self._unread and self.door.http2 is not None and data.startswith(b"PRI "):
            self._hand_over(data)
            return
        self._unread = False
        connection = self.connection
        connection.receive(data)
        self._dispatch()
        if connection.waiting and connection.full and not (self._paused or connection.deaf) and self._transport:
            self._paused = True
            self._transport.pause_reading()
        self._settle()

    def _hand_over(self, data: bytes) -> None:
        """Leave the connection to HTTP/2, whose preface its first bytes are."""
        assert self.door.http2 is not None
        transport, self._transport = cast("asyncio.Transport", self._transport), None
        self._leave()
        successor = self.door.http2()
        transport.set_protocol(successor)
        successor.connection_made(transport)
        successor.data_received(data)

    # dispatch, one request at a time

    def _dispatch(self) -> None:
        if self._dispatching or self._in_line:
            return
        self._dispatching = True
        connection = self.connection
        try:
            while self._transport is not None and not connection.choked and (request := connection.next()) is not None:
                self.door.idle.pop(self, None)
                self._handle(request)
                if (
                    connection.waiting and not self._house.inbox.open()
                ):  # one peer's requests take turns with all others
                    self._in_line = True
                    self._house.inbox.put(self._dispatch_later)
                    break
        finally:
            self._dispatching = False
        if self._paused and not connection.full and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _dispatch_later(self) -> None:
        self._in_line = False
        self._dispatch()

    def _handle(self, request: Request) -> None:
        door = self.door
        try:
            result = door.handler(request) if request.fault is None else door.fault(*request.fault)
        except Exception:
            _LOG.exception("a handler failed", path=request.path)
            result = door.fault(500, "internal error")
        if isinstance(result, Response):
            request.respond(result)
        elif result is not None:
            self._task = self._house.spawn(self._answer(request, result))

    async def _answer(self, request: Request, result: Awaitable[Response | None]) -> None:
        try:
            response = await result
        except asyncio.CancelledError:
            return
        except Exception:
            _LOG.exception("a handler failed", path=request.path)
            response = self.door.fault(500, "internal error")
        self._task = None
        if response is not None:
            request.respond(response)

    # the connection's side

    def go_on(self) -> None:
        """Answer the next request, now or with the next turn."""
        waiting = self.connection.waiting
        if not waiting:
            self.door.idle[self] = None
        if (waiting or self._paused) and not self._dispatching:
            self._dispatch()

    def hang_up(self, *, linger: bool) -> None:
        """Close, or stop sending and let the peer finish: closing now would reset the connection under our answer."""
        self.door.idle[self] = None
        transport = self._transport
        if transport is None:
            return
        if not linger or not transport.can_write_eof():
            transport.close()
            return
        with contextlib.suppress(OSError, RuntimeError):
            transport.write_eof()

    def abort(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            self._transport.abort()

    def weigh(self) -> None:
        """Account for a large answer at once."""
        self._settle()

    # the budget

    def _settle(self) -> None:
        """Account for what is held: a body under way, requests in line, an answer that is not read."""
        held, choked = self.connection.held, self.connection.choked
        if not held and self._account is None and not choked:
            return
        if self._account is None:
            self._account = self._house.budget.account("http", shed=self._give_up)
        if choked and self._transport is not None:
            held += self._transport.get_write_buffer_size()
        try:
            self._account.set(held)
        except Exhausted:
            self._give_up()

    def _give_up(self) -> None:
        """Make room: say so where that is possible, or else hang up."""
        connection = self.connection
        if not (connection.unanswered or connection.choked or connection.deaf):
            connection.refuse(503, _NO_ROOM)
            self._dispatch()
        else:
            self.abort()

    def _leave(self) -> None:
        """Let go of what a connection holds of the server."""
        self._house.peers.discard(self)
        self.door.leave(self)
        if self._account is not None:
            self._account.release()

    # housekeeping, called by the server

    def expire(self, now: float) -> None:
        """Close the connection if it idles, lingers or dribbles beyond its deadline, or reads nothing."""
        if self._transport is None:
            return
        if self._account is not None:
            self._settle()
        connection = self.connection
        if connection.choked:
            self._look_whether_it_reads(now)
        if connection.current is not None or now < connection.deadline:
            return
        if connection.expired():
            self._transport.close()
        else:
            self._dispatch()

    def _look_whether_it_reads(self, now: float) -> None:
        assert self._transport is not None
        unread, self._unread_bytes = self._unread_bytes, self._transport.get_write_buffer_size()
        if self._unread_bytes < unread:
            self._choked_at = now  # slow, but it reads
        elif now > self._choked_at + self.door.limits.unread_seconds:
            self._transport.abort()

    def retire(self) -> None:
        """Close now if idle; otherwise the next answer says that it is the last."""
        self.connection.retiring = True
        if self.connection.idle and self._transport is not None:
            self._transport.close()
