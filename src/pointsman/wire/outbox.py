"""What leaves one HTTP/2 connection: response headers, DATA within both windows, trailers.

Owns the peer's flow-control windows and what they hold back. Frames collect in `frames` until the connection takes them
all for one write. A stream whose window is closed keeps its data here, bounded over all streams by `unsent_bytes`; when
a window opens, blocked streams take turns, so one large answer does not starve the others.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from pointsman.wire.frames import (
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADER,
    Code,
    ConnectionFault,
    Kind,
    frame,
)


class Handler(Protocol):
    """The owner of one stream."""

    def data(self, payload: bytes, *, end: bool) -> None:
        """Take what arrived; `end` when the peer will send no more."""

    def closed(self) -> None:
        """Let go: the stream has ended, for whatever reason."""


class Nobody:
    """The handler of a stream that is answered already, or not yet taken."""

    def data(self, payload: bytes, *, end: bool) -> None:
        """Ignore it."""

    def closed(self) -> None:
        """Hold nothing."""


NOBODY = Nobody()


class Stream:
    """What the connection knows of one open stream."""

    __slots__ = (
        "answered", "expected", "handler", "id", "open", "pending", "received", "remote_closed", "trailers", "window",
    )  # fmt: skip

    def __init__(self, id_: int, *, window: int, expected: int) -> None:
        self.id = id_
        self.window = window  # how much we may still send
        self.received = 0  # since our last WINDOW_UPDATE
        self.expected = expected  # bytes left of the announced content-length, -1 when there is none
        self.open = True
        self.answered = False
        self.remote_closed = False
        self.pending: deque[bytes] | None = None  # what the windows hold back
        self.trailers: bytes | None = None  # … and what follows it
        self.handler: Handler = NOBODY


class Outbox:
    """The sending half of a connection."""

    __slots__ = ("_blocked", "_limit", "_on_end", "_unsent", "frames", "peer_frame", "peer_window", "window")

    def __init__(self, *, unsent_bytes: int, on_end: Callable[[Stream], None]) -> None:
        self._limit = unsent_bytes
        self._on_end = on_end
        self._unsent = 0
        self._blocked: dict[int, Stream] = {}
        self.frames: list[bytes | memoryview] = []
        self.window = DEFAULT_WINDOW
        self.peer_window = DEFAULT_WINDOW  # what a new stream starts with
        self.peer_frame = DEFAULT_FRAME

    def take(self) -> bytes:
        """Return all frames as one piece, and forget them."""
        frames = self.frames
        if not frames:
            return b""
        data = b"".join(frames)
        frames.clear()
        return data

    def start(self, stream: Stream, block: bytes, *, end: bool = False) -> None:
        """Send the response headers (`block` holds literals only, so it needs no table)."""
        stream.answered = True
        flags = END_HEADERS | END_STREAM if end else END_HEADERS
        self.frames.append(frame(Kind.HEADERS, flags, stream.id, block))
        if end:
            self._on_end(stream)

    def send(self, stream: Stream, data: bytes | memoryview, *, head: bytes = b"") -> None:
        """Send body bytes, `head` before them, now or when the peer's windows allow.

        Raises ConnectionFault when the peer lets too much pile up.
        """
        size = len(head) + len(data)
        if size <= stream.window and size <= self.window and size <= self.peer_frame and stream.pending is None:
            stream.window -= size
            self.window -= size
            self.frames.append(HEADER.pack(size >> 16, size & 0xFFFF, 0, 0, stream.id) + head)
            self.frames.append(data)
        elif stream.open:
            self._send_in_parts(stream, head, data)

    def finish(self, stream: Stream, block: bytes = b"") -> None:
        """End the response, with trailers if there are any, after all that waits for a window."""
        if stream.pending:
            stream.trailers = block
            return
        if block:
            self.frames.append(frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream.id, block))
        else:
            self.frames.append(frame(Kind.DATA, END_STREAM, stream.id))
        self._on_end(stream)

    def release(self, stream: Stream) -> None:
        """Send as much of what the stream holds back as the windows allow."""
        pending = stream.pending
        if pending is None:
            return
        while pending:
            room = min(stream.window, self.window, self.peer_frame)
            if room <= 0:
                return
            data = pending.popleft()
            if len(data) > room:
                pending.appendleft(data[room:])
                data = data[:room]
            size = len(data)
            stream.window -= size
            self.window -= size
            self._unsent -= size
            self.frames.append(HEADER.pack(size >> 16, size & 0xFFFF, 0, 0, stream.id) + data)
        stream.pending = None
        del self._blocked[stream.id]
        if stream.trailers is not None:
            self.finish(stream, stream.trailers)

    def release_all(self) -> None:
        """Let every blocked stream send, the longest waiting first."""
        for stream in list(self._blocked.values()):
            if self.window <= 0:
                return
            self._blocked[stream.id] = self._blocked.pop(stream.id)  # to the end of the line
            self.release(stream)

    def drop(self, stream: Stream) -> None:
        """Forget what an ended stream still had to send."""
        stream.open = False
        if stream.pending is not None:
            self._unsent -= sum(map(len, stream.pending))
            stream.pending = None
            del self._blocked[stream.id]

    def _send_in_parts(self, stream: Stream, head: bytes, data: bytes | memoryview) -> None:
        """Cut data to the peer's frame size; what the windows do not let out waits."""
        size, most = len(head) + len(data), self.peer_frame
        if stream.pending is not None or size > stream.window or size > self.window:
            self._hold_back(stream, head + data)
            return
        stream.window -= size
        self.window -= size
        view, at = memoryview(data), 0
        while at < len(data):
            part = view[at : at + most - len(head)]
            n = len(head) + len(part)
            self.frames.append(HEADER.pack(n >> 16, n & 0xFFFF, 0, 0, stream.id) + head)
            self.frames.append(part)
            at += len(part)
            head = b""

    def _hold_back(self, stream: Stream, data: bytes) -> None:
        if stream.pending is None:
            stream.pending = deque()
            self._blocked[stream.id] = stream
        stream.pending.append(data)
        self._unsent += len(data)
        self.release(stream)
        if self._unsent > self._limit:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "replies are not read", limit="unsent_bytes")
