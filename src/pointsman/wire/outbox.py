"""What leaves one HTTP/2 connection: response headers, DATA within both windows, trailers.

Owns the peer's flow-control windows and what they hold back. Frames collect in `frames` until the connection takes them
all for one write. A stream whose window is closed keeps its data here, on the account of the process's budget.

Two queues make a window's opening cost no more than what it lets out. A stream that its own window holds back is
`_starved` and is looked at only when that window opens; one that waits for the connection's window is in line in
`_waiting`, and streams in line send one frame in turn, so one large answer does not starve the others. The peer may
change the windows of all streams at once (SETTINGS_INITIAL_WINDOW_SIZE): `shift` notes by how much, and each stream
takes that over when it is next looked at.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from pointsman.core.budget import Account, Exhausted
from pointsman.wire.frames import (
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADER,
    Code,
    FrameKind,
    StreamFault,
    frame,
)


class Handler(Protocol):
    """The owner of one stream."""

    def data(self, payload: bytes, *, end: bool) -> None:
        """Take what arrived; `end` when the peer will send no more."""

    def closed(self) -> None:
        """Release resources: the stream has ended, for whatever reason."""


class Nobody:
    """The handler of a stream that is answered already, or not yet taken."""

    def data(self, payload: bytes, *, end: bool) -> None:
        """Discard the data."""

    def closed(self) -> None:
        """Do nothing: there is no state to release."""


NOBODY = Nobody()


class Stream:
    """What the connection knows of one open stream."""

    __slots__ = (
        "account", "answered", "expected", "handler", "id", "open", "pending", "received", "remote_closed", "shift",
        "trailers", "window",
    )  # fmt: skip

    def __init__(self, id_: int, *, window: int, expected: int, shift: int = 0) -> None:
        self.id = id_
        self.window = window  # how much we may still send
        self.shift = shift  # the outbox's, when we last looked
        self.account: Account | None = None  # of what is held for the stream, both ways
        self.received = 0  # since our last WINDOW_UPDATE
        self.expected = expected  # bytes left of the announced content-length, -1 when there is none
        self.open = True
        self.answered = False
        self.remote_closed = False
        self.pending: bytearray | None = None  # what the windows hold back
        self.trailers: bytes | None = None  # … and what follows it
        self.handler: Handler = NOBODY


class Outbox:
    """The sending half of a connection."""

    __slots__ = (
        "_account", "_on_end", "_starved", "_waiting", "frames", "peer_frame", "peer_window", "shift", "window",
    )  # fmt: skip

    def __init__(self, *, account: Callable[[Stream], Account], on_end: Callable[[Stream], None]) -> None:
        self._account = account
        self._on_end = on_end
        self._starved: dict[int, Stream] = {}  # held back by their own window
        self._waiting: OrderedDict[int, Stream] = OrderedDict()  # … by the connection's
        self.frames: list[bytes | memoryview] = []
        self.window = DEFAULT_WINDOW
        self.peer_window = DEFAULT_WINDOW  # what a new stream starts with
        self.shift = 0  # how much that has changed so far
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
        self.frames.append(frame(FrameKind.HEADERS, flags, stream.id, block))
        if end:
            self._on_end(stream)

    def send(self, stream: Stream, data: bytes | memoryview, *, head: bytes = b"") -> None:
        """Send body bytes, `head` before them, now or when the peer's windows allow.

        Raises StreamFault when there is no room for what the peer lets pile up.
        """
        size = len(head) + len(data)
        if stream.shift != self.shift:
            self._follow(stream)
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
            self.frames.append(frame(FrameKind.HEADERS, END_HEADERS | END_STREAM, stream.id, block))
        else:
            self.frames.append(frame(FrameKind.DATA, END_STREAM, stream.id))
        self._on_end(stream)

    def resize(self, window: int) -> None:
        """Take over what a new stream's window is from now on; those of open streams change by as much."""
        delta, self.peer_window = window - self.peer_window, window
        self.shift += delta
        if delta > 0:
            for stream in list(self._starved.values()):
                self._line_up(stream)
            self.release_all()

    def widen(self, stream: Stream, increment: int) -> int:
        """Open a stream's window and send what it held back; return how wide it is open before that."""
        self._follow(stream)
        stream.window += increment
        wide = stream.window
        if stream.pending is not None:
            self._line_up(stream)
            self.release_all()
        return wide

    def release_all(self) -> None:
        """Let streams in line send, each one frame in turn, while the connection's window is open."""
        waiting = self._waiting
        while waiting and self.window > 0:
            _, stream = waiting.popitem(last=False)
            self._release(stream)

    def drop(self, stream: Stream) -> None:
        """Forget what an ended stream still had to send."""
        stream.open = False
        if stream.pending is not None:
            stream.pending = None
            self._starved.pop(stream.id, None)
            self._waiting.pop(stream.id, None)
        if stream.account is not None:
            stream.account.release()

    def _follow(self, stream: Stream) -> None:
        """Take over how the peer has changed all windows."""
        stream.window += self.shift - stream.shift
        stream.shift = self.shift

    def _line_up(self, stream: Stream) -> None:
        """Put a stream that has something to send where it belongs."""
        self._follow(stream)
        if stream.window > 0:
            self._starved.pop(stream.id, None)
            self._waiting.setdefault(stream.id, stream)
        else:
            self._starved[stream.id] = stream

    def _release(self, stream: Stream) -> None:
        """Send one frame of a stream that was the first in line."""
        pending = stream.pending
        assert pending is not None
        self._follow(stream)
        size = min(stream.window, self.window, self.peer_frame, len(pending))
        if size > 0:
            self.frames.append(HEADER.pack(size >> 16, size & 0xFFFF, 0, 0, stream.id) + pending[:size])
            del pending[:size]
            stream.window -= size
            self.window -= size
            if stream.account is not None:
                stream.account.hold(-size)
        if pending:
            self._line_up(stream)
            return
        stream.pending = None
        if stream.trailers is not None:
            self.finish(stream, stream.trailers)

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
        if stream.account is None:
            stream.account = self._account(stream)
        try:
            stream.account.hold(len(data))
        except Exhausted:
            raise StreamFault(Code.ENHANCE_YOUR_CALM, "replies are not read", limit="unsent_bytes") from None
        if stream.pending is None:
            stream.pending = bytearray(data)
        else:
            stream.pending += data
        self._line_up(stream)
        self.release_all()
