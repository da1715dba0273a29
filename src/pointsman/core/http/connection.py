"""One server's connection without a socket: bytes in, requests out in order, one at a time, and their answers' bytes.

Owns what the protocol asks for (order, keep-alive, `100 Continue`, refusals behind what came before them) and when it
expects what (`deadline`). The shell (`peer`) has the socket: it feeds `receive`, takes requests with `next` when it is
their turn, writes what it is given and closes when told to. The clock is injected.

Invariants: answers leave in the order of the requests; a request is answered once; after a fault, a last request or an
upgrade nothing more is read.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pointsman.core.http.intake import Intake
from pointsman.core.http.limits import Limits
from pointsman.core.http.messages import Response, head
from pointsman.core.http.requests import Request

_BODYLESS = frozenset({204, 304})
_REQUEST_BYTES = 1024  # what a request in line costs beside its body
_MUCH = 64 << 10  # bytes of an answer from which on it matters whether they are read


class Clock:
    """The time as a server's connections know it: monotonic for deadlines, and as the line of every head."""

    __slots__ = ("date_line", "now")

    def __init__(self, *, now: Callable[[], float], date_line: bytes) -> None:
        self.now = now
        self.date_line = date_line  # renewed by the server; nobody reads it to the second


class Shell(Protocol):
    """What a connection needs of its socket."""

    def go_on(self) -> None:
        """The answer is complete, and the next request may have its turn."""

    def hang_up(self, *, linger: bool) -> None:
        """The last answer is complete; the peer may still be sending if `linger`."""

    def abort(self) -> None:
        """Cut it now."""

    def weigh(self) -> None:
        """A large answer was written: it matters whether it is read."""


class Connection:
    """The requests of one peer."""

    __slots__ = (
        "_clock", "_intake", "_limits", "_queued_bytes", "_shell", "choked", "current", "deadline", "deaf",
        "retiring", "waiting", "write",
    )  # fmt: skip

    def __init__(self, shell: Shell, *, limits: Limits, clock: Clock) -> None:
        self._shell = shell
        self._limits = limits
        self._clock = clock
        self._intake = Intake(limits=limits, begin=self._begin, invite=self._invite, complete=self._complete)
        self.waiting: deque[Request] = deque()  # complete ones, in line for `next`
        self._queued_bytes = 0
        self.current: Request | None = None  # the request being answered
        self.choked = False  # set by the shell: the peer has too much to read
        self.retiring = False  # set by the shell: the next answer is the last
        self.deaf = False  # what comes in is discarded: a fault was found, or the last request was read
        self.deadline = math.inf  # when something must have come; set by the shell as well
        self.write: Callable[[bytes], None] = lambda _data: None  # set by the shell

    # -- for the shell ------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether as many requests are in line as may be."""
        return len(self.waiting) >= self._limits.pipelined

    @property
    def idle(self) -> bool:
        """Whether nothing has come that is not answered."""
        return self.current is None and not self.waiting and self._intake.incoming is None

    @property
    def unanswered(self) -> bool:
        """Whether there is a complete request, in line or being answered."""
        return self.current is not None or bool(self.waiting)

    @property
    def held(self) -> int:
        """How many bytes of requests are held."""
        intake = self._intake
        return self._queued_bytes + (intake.body_bytes if intake.incoming is not None else 0)

    def receive(self, data: bytes) -> None:
        """Take bytes from the socket."""
        if self.deaf:
            return
        intake = self._intake
        intake.feed(data)
        if intake.fault is not None:
            self.refuse(*intake.fault)
        elif intake.upgrade:  # we do not switch protocols: answer as HTTP/1.1 and close
            self.deaf = True
            if self.waiting:
                self.waiting[-1].keep_alive = False

    def next(self) -> Request | None:
        """Begin with the request whose turn it is, if it is anyone's."""
        if self.current is not None or not self.waiting:
            return None
        self.current = request = self.waiting.popleft()
        self._queued_bytes -= _REQUEST_BYTES + len(request.body)
        return request

    def refuse(self, status: int, message: str) -> None:
        """Put a refusal in line behind the requests before it, and read no more."""
        if self.deaf:
            return
        self.deaf = True
        refused = self._intake.drop() or Request(self)
        refused.fault = (status, message)
        refused.keep_alive = False
        self._put(refused)

    def expired(self) -> bool:
        """Whether the peer is to go now that the deadline has passed; one inside a request is told so instead."""
        if self._intake.incoming is None or self.deaf:
            return True
        self.refuse(408, "the request took too long to arrive")
        return False

    def lost(self) -> None:
        """Forget everything: the peer has gone. Whoever makes the answer hears of it."""
        gone, self.current = self.current, None
        self._clear()
        if gone is not None and gone.on_disconnect is not None:
            gone.on_disconnect()

    def choke(self, choked: bool) -> None:  # noqa: FBT001 - the one thing that it says
        """Note whether the peer has too much to read; whoever streams to it hears of it."""
        self.choked = choked
        if self.current is not None and self.current.on_choke is not None:
            self.current.on_choke()

    # -- for requests -------------------------------------------------------------------------------------------

    def trailer(self, request: Request) -> bytes:
        """Return the end of every head: date, whether the connection stays, blank line."""
        if self.retiring:
            request.keep_alive = False
        return self._clock.date_line + (b"\r\n" if request.keep_alive else b"connection: close\r\n\r\n")

    def send(self, request: Request, response: Response) -> None:
        """Write a whole answer to the current request."""
        body = response.body
        lines = head(response.status, response.content_type, response.headers)
        if response.status not in _BODYLESS:
            lines += b"content-length: %d\r\n" % len(body)
        if request.method == "HEAD":
            body = b""
        self.write(lines + self.trailer(request) + body)
        if len(body) > _MUCH:
            self._shell.weigh()
        self.done(request)

    def done(self, request: Request) -> None:
        """Close what the answer said would close, or go on with the next request."""
        self.current = None
        if request.keep_alive:
            self.deadline = self._clock.now() + self._limits.idle_seconds
            self._shell.go_on()
            return
        self._clear()
        self.deaf = True
        self.deadline = self._clock.now() + self._limits.linger_seconds
        self._shell.hang_up(linger=request.fault is not None)

    def abort(self, request: Request) -> None:
        """Reset the connection if it still serves this request."""
        if self.current is request:
            self._shell.abort()

    # -- for the intake -----------------------------------------------------------------------------------------

    def _begin(self) -> Request:
        if self.current is None and not self.waiting:
            self.deadline = self._clock.now() + self._limits.request_seconds
        return Request(self)

    def _invite(self) -> None:
        if not self.unanswered:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _complete(self, request: Request) -> None:
        if not self.deaf:
            self._put(request)
            self.deaf = not request.keep_alive

    def _put(self, request: Request) -> None:
        self.waiting.append(request)
        self._queued_bytes += _REQUEST_BYTES + len(request.body)

    def _clear(self) -> None:
        self.waiting.clear()
        self._queued_bytes = 0
