"""One HTTP/1.1 connection: parses requests, answers them in order, and lets nobody pile things up.

Owns what one peer may cost (`Limits`) and the handles by which a request is answered (`Request`, `Stream`). The port
that it came in by, and what connections share, is in `core.http`.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import httptools

from pointsman.core.budget import Account, Exhausted
from pointsman.core.http_messages import (
    Response,
    chunk,
    content_length,
    head,
    split_target,
)
from pointsman.core.logs import get_logger

if TYPE_CHECKING:
    from pointsman.core.http import Listener

_Answer = Awaitable["Response | None"]

_LOG = get_logger(__name__)
_BODYLESS = frozenset({204, 304})
_REQUEST_BYTES = 1024  # what a request in line costs beside its body
_MUCH = 64 << 10  # bytes of an answer from which on it matters whether they are read
_NO_ROOM = "the server holds as many bytes for its clients as it may: try again later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one peer may cost us."""

    body_bytes: int = 4 << 20
    head_bytes: int = 64 << 10
    pipelined: int = 32
    unread_seconds: float = 60.0  # how long a peer may read nothing of an answer under way
    request_seconds: float = 30.0  # from a request's first byte to its last
    idle_seconds: float = 3900.0  # longer than Envoy keeps an idle upstream connection, so Envoy closes first
    linger_seconds: float = 2.0  # how long we discard input after an answer that the peer did not wait for
    handshakes: int = 256  # under way at once, beside the connections
    handshake_seconds: float = 10.0
    connections: int = 16_384  # of a port


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


class Request:
    """One parsed request, and the only handle for answering it."""

    __slots__ = (
        "_connection",
        "body",
        "fault",
        "headers",
        "keep_alive",
        "method",
        "on_choke",
        "on_disconnect",
        "path",
        "query",
        "version",
    )

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.method = ""
        self.path = ""
        self.query = b""
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.version = "1.1"
        self.keep_alive = True
        self.fault: tuple[int, str] | None = None
        self.on_disconnect: Callable[[], None] | None = None
        self.on_choke: Callable[[], None] | None = None  # the stream's `choked` has changed

    @property
    def connected(self) -> bool:
        """Whether the peer is there and still waits for this answer."""
        return self._connection.current is self

    def respond(self, response: Response) -> None:
        """Send the whole answer; a no-op when the peer has gone."""
        if self._connection.current is self:
            self._connection.send(self, response)

    def stream(
        self, *, status: int = 200, content_type: bytes = b"text/event-stream", headers: bytes = b""
    ) -> "Stream":
        """Begin an answer whose body is written piece by piece; its head leaves with the first piece."""
        return Stream(self._connection, self, head(status, content_type, headers))


class Stream:
    """The body of an answer under way. Every method is synchronous and safe after the peer has gone."""

    __slots__ = ("_chunked", "_connection", "_head", "_request")

    def __init__(self, connection: "Connection", request: Request, head: bytes) -> None:
        self._connection = connection
        self._request = request
        self._chunked = request.version == "1.1"
        if not self._chunked:
            request.keep_alive = False  # only the end of the connection can end such a body
        tail = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        self._head = head + tail + connection.trailer(request)

    @property
    def open(self) -> bool:
        """Whether a write can still reach the peer."""
        return self._connection.current is self._request

    @property
    def choked(self) -> bool:
        """Whether the peer has a good deal to read before more should be written."""
        return self._connection.choked_at is not None

    def write(self, data: bytes) -> None:
        """Send a piece of the body now."""
        connection = self._connection
        if not data or connection.current is not self._request:
            return
        frame = chunk(data) if self._chunked else data
        if self._head:
            frame, self._head = self._head + frame, b""
        connection.push(frame)

    def end(self, data: bytes = b"") -> None:
        """Send a last piece, if any, and finish the answer."""
        connection = self._connection
        if connection.current is not self._request:
            return
        frame = (chunk(data) if data else b"") + b"0\r\n\r\n" if self._chunked else data
        connection.push(self._head + frame)
        connection.done(self._request)

    def abort(self) -> None:
        """Cut the connection without finishing the answer, as a crashing server would."""
        self._connection.abort(self._request)


class Connection(asyncio.Protocol):
    """One peer: parses, queues what was pipelined, hands one request at a time to the handler."""

    def __init__(self, listener: "Listener") -> None:
        self.listener = listener
        self.server = listener.server
        self.limits = listener.limits
        self.transport: Transport | None = None
        self.parser: Any = httptools.HttpRequestParser(self)
        self.current: Request | None = None  # the request being answered
        self.queue: deque[Request] = deque()  # complete ones behind it
        self.deadline: float = 0.0
        self._incoming: Request | None = None
        self._url = b""
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._deaf = False  # we discard input: a fault was found, or the last request was read
        self._unread = True  # nothing was received so far
        self._paused = False
        self.admitted = False  # the listener counts it
        self.choked_at: float | None = None  # since when the peer has too much to read and takes none of it
        self._unread_bytes = 0  # that it had when we last looked
        self._dispatching = False
        self._in_line = False  # the next request waits for its turn
        self._task: asyncio.Task[None] | None = None
        self._account: Account | None = None  # of what is held from one read to the next
        self._queued_bytes = 0
        self._repeated: dict[bytes, list[bytes]] = {}

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("Transport", transport)
        if not self.listener.admit(self):
            self.transport.abort()
            return
        self.server.connections.add(self)
        self.deadline = self.server.now() + self.limits.request_seconds

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter
        self.transport = None
        self._leave()
        gone, self.current = self.current, None
        self.queue.clear()
        if self._task is not None:
            self._task.cancel()
        if gone is not None and gone.on_disconnect is not None:
            gone.on_disconnect()

    def pause_writing(self) -> None:
        self.choked_at = self.server.now()
        if self.current is not None and self.current.on_choke is not None:
            self.current.on_choke()

    def resume_writing(self) -> None:
        self.choked_at = None
        if self.current is not None and self.current.on_choke is not None:
            self.current.on_choke()
        self._settle()
        self._dispatch()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self.server.inbox.open():
            self._take(data)
        elif self.transport is not None:
            self.transport.pause_reading()  # so that nobody can make us hold more than one read
            self.deadline = math.inf  # it is our turn
            self.server.inbox.put(partial(self._take_later, data))

    def _take_later(self, data: bytes) -> None:
        if self.transport is None:
            return
        self.deadline = self.server.now() + self.limits.request_seconds
        if not self._paused:
            self.transport.resume_reading()
        if not self._deaf:  # it may have been given up meanwhile
            self._take(data)

    def _take(self, data: bytes) -> None:
        if self._unread and self.listener.http2 is not None and data.startswith(b"PRI "):
            self._hand_over(data)
            return
        self._unread = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._last_request()  # we do not switch protocols: answer as HTTP/1.1 and close
        except httptools.HttpParserError:
            self._refuse(400, "this is not HTTP/1.1")
        self._dispatch()
        self._settle()

    def _settle(self) -> None:
        """Account for what is held: a body under way, requests in line, an answer that is not read."""
        held = self._queued_bytes + (self._body_bytes if self._incoming is not None else 0)
        if not held and self._account is None and self.choked_at is None:
            return
        if self._account is None:
            self._account = self.server.budget.account("http", shed=self._give_up)
        if self.choked_at is not None and self.transport is not None:
            held += self.transport.get_write_buffer_size()
        try:
            self._account.set(held)
        except Exhausted:
            self._give_up()

    def _give_up(self) -> None:
        """Make room: say so where that is possible, or else hang up."""
        if self.current is None and not self.queue and self.choked_at is None and not self._deaf:
            self._refuse(503, _NO_ROOM)
            self._dispatch()
        elif self.transport is not None:
            self.transport.abort()

    def _leave(self) -> None:
        """Let go of what a connection holds of the server."""
        self.server.connections.discard(self)
        self.listener.leave(self)
        if self._account is not None:
            self._account.release()

    def _hand_over(self, data: bytes) -> None:
        """Leave the connection to HTTP/2, whose preface its first bytes are."""
        assert self.listener.http2 is not None
        transport, self.transport = cast("asyncio.Transport", self.transport), None
        self._leave()
        successor = self.listener.http2()
        transport.set_protocol(successor)
        successor.connection_made(transport)
        successor.data_received(data)

    # httptools

    def on_message_begin(self) -> None:
        self._incoming = Request(self)
        self._url = b""
        self._head_bytes = self._body_bytes = 0
        self._body = []
        self._repeated = {}
        if self.current is None and not self.queue:
            self.deadline = self.server.now() + self.limits.request_seconds

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_bytes += len(url)
        if self._head_bytes > self.limits.head_bytes:
            self._head_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._incoming
        assert request is not None
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > self.limits.head_bytes:
            self._head_too_large()
        name = name.lower()
        if name not in request.headers:
            request.headers[name] = value
        else:
            self._repeated.setdefault(name, [request.headers[name]]).append(value)

    def on_headers_complete(self) -> None:
        request = self._incoming
        assert request is not None
        for name, values in self._repeated.items():
            request.headers[name] = b", ".join(values)
        parser = self.parser
        request.method = parser.get_method().decode("ascii")
        request.version = parser.get_http_version()
        request.keep_alive = parser.should_keep_alive()
        request.path, request.query = split_target(self._url)
        if request.version not in {"1.0", "1.1"}:
            self._fail(505, "we speak HTTP/1.1")
        elif not 0 <= content_length(request.headers.get(b"content-length", b"0")) <= self.limits.body_bytes:
            self._fail(413, f"the body is larger than {self.limits.body_bytes} bytes")
        elif b"expect" in request.headers:
            self._expect(request.headers[b"expect"])

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.body_bytes:
            self._fail(413, f"the body is larger than {self.limits.body_bytes} bytes")
        self._body.append(body)

    def on_message_complete(self) -> None:
        request, self._incoming = self._incoming, None
        assert request is not None
        if self._deaf:
            return
        request.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        self.queue.append(request)
        self._queued_bytes += _REQUEST_BYTES + len(request.body)
        if not request.keep_alive:
            self._deaf = True
        elif len(self.queue) >= self.limits.pipelined and not self._paused and self.transport:
            self._paused = True
            self.transport.pause_reading()

    def _head_too_large(self) -> None:
        self._fail(431, f"the request's head is larger than {self.limits.head_bytes} bytes")

    def _expect(self, value: bytes) -> None:
        if value.lower() != b"100-continue":
            self._fail(417, "the only expectation that we meet is 100-continue")
        elif self.current is None and not self.queue and self.transport:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _fail(self, status: int, message: str) -> None:
        """Refuse from within the parser, and stop the parser."""
        self._refuse(status, message)
        raise httptools.HttpParserError(message)

    def _refuse(self, status: int, message: str) -> None:
        """Queue the refusal behind the requests before it, and read no more."""
        if self._deaf:
            return
        self._deaf = True
        refused = self._incoming or Request(self)
        refused.fault = (status, message)
        refused.keep_alive = False
        self._incoming = None
        self._body = []
        self.queue.append(refused)
        self._queued_bytes += _REQUEST_BYTES

    def _last_request(self) -> None:
        self._deaf = True
        if self.queue:
            self.queue[-1].keep_alive = False

    # dispatch, one request at a time

    def _dispatch(self) -> None:
        if self._dispatching or self._in_line:
            return
        self._dispatching = True
        try:
            while self.current is None and self.queue and self.transport is not None and self.choked_at is None:
                self.current = self.queue.popleft()
                self._queued_bytes -= _REQUEST_BYTES + len(self.current.body)
                self.listener.idle.pop(self, None)
                self._handle(self.current)
                if self.queue and not self.server.inbox.open():  # one peer's requests take turns with all others
                    self._in_line = True
                    self.server.inbox.put(self._dispatch_later)
                    break
        finally:
            self._dispatching = False
        if self._paused and len(self.queue) < self.limits.pipelined and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()

    def _dispatch_later(self) -> None:
        self._in_line = False
        self._dispatch()

    def _handle(self, request: Request) -> None:
        try:
            result = self.listener.handler(request) if request.fault is None else self.listener.fault(*request.fault)
        except Exception:
            _LOG.exception("a handler failed", path=request.path)
            result = self.listener.fault(500, "internal error")
        if isinstance(result, Response):
            request.respond(result)
        elif result is not None:
            self._task = self.server.spawn(self._answer(request, result))

    async def _answer(self, request: Request, result: _Answer) -> None:
        try:
            response = await result
        except asyncio.CancelledError:
            return
        except Exception:
            _LOG.exception("a handler failed", path=request.path)
            response = self.listener.fault(500, "internal error")
        self._task = None
        if response is not None:
            request.respond(response)

    # output

    def trailer(self, request: Request) -> bytes:
        """Return the end of every head: date, whether the connection stays, blank line."""
        if self.listener.draining:
            request.keep_alive = False
        return self.server.date_line + (b"\r\n" if request.keep_alive else b"connection: close\r\n\r\n")

    def send(self, request: Request, response: Response) -> None:
        """Write a whole answer to the current request."""
        body = response.body
        lines = head(response.status, response.content_type, response.headers)
        if response.status not in _BODYLESS:
            lines += b"content-length: %d\r\n" % len(body)
        if request.method == "HEAD":
            body = b""
        assert self.transport is not None
        self.transport.write(lines + self.trailer(request) + body)
        if len(body) > _MUCH:
            self._settle()
        self.done(request)

    def push(self, data: bytes) -> None:
        """Write a piece of a streamed answer."""
        assert self.transport is not None
        self.transport.write(data)

    def done(self, request: Request) -> None:
        """Close what the answer said would close, or go on with the next request."""
        self.current = None
        self.deadline = self.server.now() + self.limits.idle_seconds
        if not self.queue:
            self.listener.idle[self] = None
        if not request.keep_alive:
            self._close_after_answer(request)
        elif not self._dispatching and (self.queue or self._paused):
            self._dispatch()

    def _close_after_answer(self, request: Request) -> None:
        transport = self.transport
        self.queue.clear()
        self._queued_bytes = 0
        self._deaf = True
        if transport is None:
            return
        if request.fault is None or not transport.can_write_eof():
            transport.close()
            return
        # The peer may still be sending. Closing now would reset the connection under our answer.
        with contextlib.suppress(OSError, RuntimeError):
            transport.write_eof()
        self.deadline = self.server.now() + self.limits.linger_seconds

    def abort(self, request: Request) -> None:
        """Reset the connection if it still serves this request."""
        if self.current is request and self.transport is not None:
            self.transport.abort()

    # housekeeping, called by the server

    def expire(self, now: float) -> None:
        """Close the connection if it idles, lingers or dribbles beyond its deadline, or reads nothing."""
        if self.transport is None:
            return
        if self._account is not None:
            self._settle()
        if self.choked_at is not None:
            unread, self._unread_bytes = self._unread_bytes, self.transport.get_write_buffer_size()
            if self._unread_bytes < unread:
                self.choked_at = now  # slow, but it reads
            elif now > self.choked_at + self.limits.unread_seconds:
                self.transport.abort()
        if self.current is not None or now < self.deadline:
            return
        if self._incoming is not None and not self._deaf:
            self._refuse(408, "the request took too long to arrive")
            self._dispatch()
        else:
            self.transport.close()

    def retire(self) -> None:
        """Close now if idle; otherwise the next answer says that it is the last."""
        if self.current is None and not self.queue and self._incoming is None and self.transport:
            self.transport.close()
