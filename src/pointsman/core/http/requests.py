"""One request, and the handles by which it is answered: at once, later, or piece by piece.

Every method is synchronous and harmless when the peer has gone or the request is answered. What carries an answer is a
`Way`: the connection, or a test.
"""

from collections.abc import Callable
from typing import Protocol

from pointsman.core.http.messages import Response, chunk, head


class Way(Protocol):
    """What a request needs of its connection."""

    current: "Request | None"
    """The one that may be answered now."""
    choked: bool
    """Whether the peer has a good deal to read before more should be written."""
    write: Callable[[bytes], None]

    def trailer(self, request: "Request") -> bytes:
        """Return the end of every head: date, whether the connection stays, blank line."""

    def send(self, request: "Request", response: Response) -> None:
        """Write a whole answer to the current request."""

    def done(self, request: "Request") -> None:
        """Note that the answer is complete."""

    def abort(self, request: "Request") -> None:
        """Reset the connection if it still serves this request."""


class Request:
    """One parsed request, and the only handle for answering it."""

    __slots__ = (
        "_way",
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

    def __init__(self, way: Way) -> None:
        self._way = way
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
        return self._way.current is self

    def respond(self, response: Response) -> None:
        """Send the whole answer; a no-op when the peer has gone."""
        if self._way.current is self:
            self._way.send(self, response)

    def stream(
        self, *, status: int = 200, content_type: bytes = b"text/event-stream", headers: bytes = b""
    ) -> "Stream":
        """Begin an answer whose body is written piece by piece; its head leaves with the first piece."""
        return Stream(self._way, self, head(status, content_type, headers))


class Stream:
    """The body of an answer under way."""

    __slots__ = ("_chunked", "_head", "_request", "_way")

    def __init__(self, way: Way, request: Request, head: bytes) -> None:
        self._way = way
        self._request = request
        self._chunked = request.version == "1.1"
        if not self._chunked:
            request.keep_alive = False  # only the end of the connection can end such a body
        tail = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        self._head = head + tail + way.trailer(request)

    @property
    def open(self) -> bool:
        """Whether a write can still reach the peer."""
        return self._way.current is self._request

    @property
    def choked(self) -> bool:
        """Whether the peer has a good deal to read before more should be written."""
        return self._way.choked

    def write(self, data: bytes) -> None:
        """Send a piece of the body now."""
        way = self._way
        if not data or way.current is not self._request:
            return
        frame = chunk(data) if self._chunked else data
        if self._head:
            frame, self._head = self._head + frame, b""
        way.write(frame)

    def end(self, data: bytes = b"") -> None:
        """Send a last piece, if any, and finish the answer."""
        way = self._way
        if way.current is not self._request:
            return
        frame = (chunk(data) if data else b"") + b"0\r\n\r\n" if self._chunked else data
        way.write(self._head + frame)
        way.done(self._request)

    def abort(self) -> None:
        """Cut the connection without finishing the answer, as a crashing server would."""
        self._way.abort(self._request)
