"""One HTTP/2 connection, server side, without a socket: bytes in, bytes out.

Owns framing, both flow-control windows, stream states and the limits on a hostile peer; header blocks are put together
in `blocks`, and what belongs to no stream is in `control`. Knows nothing of gRPC: a stream's owner is a `Handler` that
gets the payloads and answers through the connection's `out`. All replies of one `receive` leave in one write, which is
what makes this cheap: Envoy multiplexes all its requests over one connection per worker, so under load one read carries
frames of many requests.

Invariants: `receive` never raises; a `ConnectionFault` ends this connection only, a `StreamFault` this stream only;
each handler's `closed` is called exactly once, whoever ends the stream; nothing is kept of a stream after that but its
number. **No input costs more than time linear in its bytes**, or in the bytes that it lets out, however many streams
are open or blocked; a test counts the work per kind of frame. One `receive` handles a bounded number of frames and
leaves the rest for `proceed`, so that the loop gets round to everybody else. What streams hold is on the account of the
process's `Budget`; when that is spent one stream pays, never the connection, which is everybody's.

A reset costs us a few microseconds, all of them before the next frame is read, and makes us send nothing: a flood of
them is no worse than any other, so it is not counted. Envoy sends thousands a second when that many clients hang up,
and ending its connection for it would end everybody's requests.

Only what ext_proc and gRPC health need is here: no push, no priorities (read, checked, ignored), no extension frames.
"""

from collections.abc import Callable

from pointsman.core.budget import Account, Budget
from pointsman.core.logs import get_logger
from pointsman.wire.blocks import BlockAssembler
from pointsman.wire.control import Control
from pointsman.wire.frames import (
    DEFAULT_WINDOW,
    END_STREAM,
    HEADER,
    MAX_WINDOW,
    PADDED,
    PREFACE,
    Code,
    ConnectionFault,
    FrameKind,
    Setting,
    StreamFault,
    goaway,
    reset,
    settings,
    unpad,
    window_update,
)
from pointsman.wire.headers import HeaderBlock, HeaderReader
from pointsman.wire.limits import Bucket, Limits
from pointsman.wire.outbox import NOBODY, Handler, Outbox, Stream
from pointsman.wire.recent import Recent

log = get_logger(__name__)

STREAM_WINDOW = 8 << 20
CONNECTION_WINDOW = 64 << 20
_TURN_FRAMES = 256  # how many frames are handled before others have their turn
_TURN_BYTES = 1 << 20  # … and about how much we send
STREAM_BYTES = 3072  # what an open stream costs, with its call, when it holds nothing


class Connection:
    """The server's side of one connection."""

    def __init__(
        self,
        *,
        accept: Callable[["Connection", Stream, HeaderBlock], Handler],
        limits: Limits,
        clock: Callable[[], float],
        budget: Budget,
        on_limit: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._accept = accept
        self._limits = limits
        self._budget = budget
        self._on_limit = on_limit
        self.out = Outbox(account=self.account, on_end=self._local_end)
        self.out.frames.append(_opening(limits))
        self._rest = b""  # the beginning of a frame
        self._late = b""  # what was read and waits for its turn …
        self._late_at = 0  # … from here on
        self._reader = HeaderReader(limits=limits)
        self._streams: dict[int, Stream] = {}
        self._ended = Recent()  # by the peer, or by both
        self._abandoned = Recent()  # by us: late frames are no error
        self._last = 0
        self._consumed = 0
        self._preface = False
        self._control = Control(out=self.out, reader=self._reader, limits=limits, clock=clock)
        self._blocks = BlockAssembler(limits=limits)
        self._refusing = False
        self._empty_data = Bucket(limits.empty_data, clock=clock)
        self._window_updates = Bucket(limits.window_updates, clock=clock)
        self._stream_errors = Bucket(limits.stream_errors, clock=clock)
        self._tired = False  # the turn was over before the input was …
        self._full = False  # … because of what we had to send
        self._extra = _TURN_BYTES  # bytes that this turn may still make of fewer: a compressed message costs what it is
        self.closing = False  # the socket is to be closed once the output is written
        self.flush: Callable[[], None] = lambda: None  # set by the shell: write what `out.take` returns

    # -- for the shell ------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the peer has introduced itself."""
        return self._control.settled

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    @property
    def used(self) -> bool:
        """Whether there was ever a stream."""
        return self._last > 0

    @property
    def backlog(self) -> bool:
        """Whether there is input that waits for `proceed`."""
        return bool(self._late)

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the socket and return what to write to it."""
        if self._late:
            data, self._late = self._late[self._late_at :] + data, b""
        return self._work(data, 0)

    def proceed(self) -> bytes:
        """Process input that was deferred; return what to write."""
        data, self._late = self._late, b""
        return self._work(data, self._late_at)

    def _work(self, data: bytes, start: int) -> bytes:
        if self.closing:
            return b""
        try:
            if self._rest:
                start = self._complete_rest(data)
            if start < len(data):
                here = self._parse(data, start, frames=_TURN_FRAMES)
                if self._tired and here < len(data) and not self.closing:
                    self._late, self._late_at = data, here
                else:
                    self._rest = data[here:]
        except ConnectionFault as fault:
            self._fail(fault)
        except Exception:
            log.exception("wire: a frame raised; connection closed")
            self._fail(ConnectionFault(Code.INTERNAL_ERROR, "internal error"))
        if self._late and not self._full:
            return b""  # to leave with the replies to the rest: a write costs more than a turn
        return self.out.take()

    def lost(self) -> None:
        """Note that the socket is gone: every stream ends."""
        self.closing = True
        self._rest = self._late = b""
        streams, self._streams = self._streams, {}
        self._budget.give(STREAM_BYTES * len(streams))
        for stream in streams.values():
            self._close(stream)

    def drain(self) -> None:
        """Ask the peer to go elsewhere; streams that are open, or on their way, are served to their end."""
        if not self.closing and self._control.drain():
            self.flush()

    def exhaust(self, limit: str, reason: str) -> None:
        """End the connection for a limit that only the shell can see."""
        self._fail(ConnectionFault(Code.ENHANCE_YOUR_CALM, reason, limit=limit))
        self.flush()

    def push(self, stream: Stream, send: Callable[[], None]) -> None:
        """Run something that sends on a stream's own account, outside `receive`, and write what it sent."""
        try:
            send()
        except StreamFault as fault:
            self._reset(stream.id, fault)
        self.flush()

    # -- for handlers -------------------------------------------------------------------------------------------

    def worked(self, size: int) -> None:
        """Count bytes that were made of fewer, so that others have their turn as soon as they would have."""
        self._extra -= size

    def account(self, stream: Stream) -> Account:
        """Return an account for what is held for the stream; when it has to make room the stream is reset."""
        return self._budget.account("stream", shed=lambda: self._shed(stream))

    def _shed(self, stream: Stream) -> None:
        self.out.frames.append(reset(stream.id, Code.ENHANCE_YOUR_CALM))
        self._forget(stream, by_us=True)
        self.flush()

    # -- ends ---------------------------------------------------------------------------------------------------

    def _local_end(self, stream: Stream) -> None:
        """Our side has ended; if the peer's has not, spare both of us the rest of its message."""
        if stream.remote_closed:
            self._forget(stream, by_us=False)
        else:
            self.out.frames.append(reset(stream.id, Code.NO_ERROR))
            self._forget(stream, by_us=True)

    def _forget(self, stream: Stream, *, by_us: bool) -> None:
        if self._streams.pop(stream.id, None) is None:
            return
        self._budget.give(STREAM_BYTES)
        (self._abandoned if by_us else self._ended).add(stream.id)
        self._close(stream)
        if self._refusing and not self._streams:
            self.closing = True

    def _close(self, stream: Stream) -> None:
        """Tell a stream's handler, which knows the stream: neither keeps the other, so that both go at once."""
        self.out.drop(stream)
        handler, stream.handler = stream.handler, NOBODY
        handler.closed()

    def _fail(self, fault: ConnectionFault) -> None:
        """Send GOAWAY with the reason, and close the connection."""
        if fault.limit:
            self._on_limit(fault.limit)
        log.info("wire: connection closed", code=fault.code.name, reason=fault.reason, limit=fault.limit)
        self.out.frames.append(goaway(self._last, fault.code, fault.reason))
        self.lost()

    def _reset(self, stream_id: int, fault: StreamFault) -> None:
        if fault.limit:  # it is we who are short of something
            self._on_limit(fault.limit)
        elif not self._stream_errors.take():
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many stream errors", limit="stream_errors")
        self.out.frames.append(reset(stream_id, fault.code))
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._forget(stream, by_us=True)
        else:
            self._abandoned.add(stream_id)

    # -- input --------------------------------------------------------------------------------------------------

    def _complete_rest(self, data: bytes) -> int:
        """Complete the frame that the last read cut; return how much of the new data that took.

        So a read is copied at its seams only, and not as a whole because of the few bytes before it.
        """
        taken = 0
        while taken < len(data):
            rest = self._rest
            if not self._preface:
                wanted = len(PREFACE)
            elif len(rest) < 9:
                wanted = 9
            else:
                wanted = 9 + int.from_bytes(rest[:3], "big")
            piece = data[taken : taken + wanted - len(rest)]
            taken += len(piece)
            self._rest = rest = rest + piece
            used = self._parse(rest, 0, frames=1)  # refuses a frame that is too large before it is here
            if used:
                self._rest = rest[used:]
                return taken
        return taken

    def _parse(self, buffer: bytes, start: int, *, frames: int) -> int:
        """Handle the complete frames in the buffer from `start` on, so many at most; return up to where that was."""
        here = start if self._preface else self._read_preface(buffer)
        size_limit = self._limits.frame_bytes
        size_all = len(buffer)
        unpack = HEADER.unpack_from
        out, control, blocks = self.out, self._control, self._blocks
        least_window = out.window - _TURN_BYTES
        self._extra = _TURN_BYTES
        while (
            size_all - here >= 9
            and frames
            and out.window > least_window
            and not self.closing
            and self._preface
            and self._extra > 0
        ):
            high, low, kind, flags, stream_id = unpack(buffer, here)
            size = high << 16 | low
            stop = here + 9 + size
            if size > size_limit:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"frame of {size} bytes")
            if stop > size_all:
                break
            payload = buffer[here + 9 : stop]
            here = stop
            frames -= 1
            stream_id &= MAX_WINDOW
            try:
                if kind == 0 and blocks.parts is None and control.settled:
                    self._on_data(stream_id, flags, payload)
                else:
                    self._on_other(kind, stream_id, flags, payload)
            except StreamFault as fault:
                self._reset(stream_id, fault)
        self._full = out.window <= least_window
        self._tired = self._full or not frames or self._extra <= 0
        if self._consumed > CONNECTION_WINDOW >> 1:
            self.out.frames.append(window_update(0, self._consumed))
            self._consumed = 0
        return here

    def _read_preface(self, buffer: bytes) -> int:
        if len(buffer) < len(PREFACE) and PREFACE.startswith(buffer):
            return 0
        if not buffer.startswith(PREFACE):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "not HTTP/2: the connection preface is missing")
        self._preface = True
        return len(PREFACE)

    def _on_data(self, stream_id: int, flags: int, payload: bytes) -> None:
        size = len(payload)
        self._consumed += size
        stream = self._streams.get(stream_id)
        if stream is None or stream.remote_closed:
            self._on_late_data(stream_id, flags, empty=not size, known=stream is not None)
            return
        end = flags & END_STREAM != 0
        stream.received += size
        if stream.received > STREAM_WINDOW or self._consumed > CONNECTION_WINDOW:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "DATA beyond the window")
        if flags & PADDED:
            payload = unpad(payload)
        if stream.expected >= 0:
            self._count_content(stream, len(payload), end=end)
        if not size and not end and not self._empty_data.take():
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "empty DATA frames", limit="empty_data")
        if end:
            stream.remote_closed = True
        elif stream.received > STREAM_WINDOW >> 1:
            self.out.frames.append(window_update(stream_id, stream.received))
            stream.received = 0
        stream.handler.data(payload, end=end)

    def _count_content(self, stream: Stream, size: int, *, end: bool) -> None:
        stream.expected -= size
        if stream.expected < 0 or (end and stream.expected):
            raise StreamFault(Code.PROTOCOL_ERROR, "content-length does not match the DATA frames")

    def _on_late_data(self, stream_id: int, flags: int, *, empty: bool, known: bool) -> None:
        """Take DATA of a stream that is not open: an error only where the peer itself had ended it.

        When we end many streams at once a great deal may be on its way, so that only empty frames are counted.
        """
        if stream_id == 0 or (not known and stream_id > self._last):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "DATA on an idle stream")
        if known or stream_id in self._ended:
            raise StreamFault(Code.STREAM_CLOSED, "DATA on a closed stream")
        if flags & END_STREAM:
            self._ended.add(stream_id)
        elif empty and not self._empty_data.take():
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "empty DATA frames", limit="empty_data")

    def _on_other(self, kind: int, stream_id: int, flags: int, payload: bytes) -> None:
        if self._blocks.parts is not None and kind != FrameKind.CONTINUATION:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a frame inside a header block")
        if not self._control.settled and kind != FrameKind.SETTINGS:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        match kind:
            case FrameKind.HEADERS:
                self._on_headers(stream_id, flags, payload)
            case FrameKind.RST_STREAM:
                self._on_reset(stream_id, payload)
            case FrameKind.WINDOW_UPDATE:
                self._on_window_update(stream_id, payload)
            case FrameKind.CONTINUATION:
                self._on_continuation(stream_id, flags, payload)
            case FrameKind.PRIORITY:
                self._on_priority(stream_id, payload)
            case _:
                self._on_control(kind, stream_id, flags, payload)

    def _on_control(self, kind: int, stream_id: int, flags: int, payload: bytes) -> None:
        control = self._control
        match kind:
            case FrameKind.PING:
                if control.on_ping(stream_id, flags, payload, last=self._last):
                    self._refuse_more()
            case FrameKind.SETTINGS:
                control.on_settings(stream_id, flags, payload)
            case FrameKind.GOAWAY:
                control.on_goaway(stream_id, payload)
                self._refuse_more()
            case FrameKind.PUSH_PROMISE:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "PUSH_PROMISE from a client")
            case _:
                control.ignore()

    def _on_headers(self, stream_id: int, flags: int, payload: bytes) -> None:
        whole, depends_on_itself = self._blocks.on_headers(stream_id, flags, payload)
        if whole is not None:
            self._on_block(stream_id, *whole)
        if depends_on_itself:
            raise StreamFault(Code.PROTOCOL_ERROR, "a stream that depends on itself")

    def _on_continuation(self, stream_id: int, flags: int, payload: bytes) -> None:
        whole = self._blocks.on_continuation(stream_id, flags, payload)
        if whole is not None:
            self._on_block(stream_id, *whole)

    def _on_block(self, stream_id: int, flags: int, block: bytes) -> None:
        """Open a stream with a complete header block, or end one with trailers."""
        stream = self._streams.get(stream_id)
        if stream is not None or stream_id <= self._last:
            self._on_trailers(stream_id, stream, flags, block)
            return
        self._last = stream_id
        headers = self._reader.read(block)
        if headers.malformed:
            raise StreamFault(Code.PROTOCOL_ERROR, headers.malformed)
        if self._refusing or len(self._streams) >= self._limits.concurrent_streams:
            raise StreamFault(Code.REFUSED_STREAM, "too many streams", limit="concurrent_streams")
        end = flags & END_STREAM != 0
        if end and headers.content_length > 0:
            raise StreamFault(Code.PROTOCOL_ERROR, "content-length without DATA")
        if not self._budget.take(STREAM_BYTES):
            raise StreamFault(Code.REFUSED_STREAM, "no memory for another stream", limit="streams")
        out = self.out
        stream = Stream(stream_id, window=out.peer_window, shift=out.shift, expected=headers.content_length)
        stream.remote_closed = end
        self._streams[stream_id] = stream
        self._control.opened(stream_id)
        stream.handler = self._accept(self, stream, headers)
        if end and stream_id in self._streams:
            stream.handler.data(b"", end=True)

    def _on_trailers(self, stream_id: int, stream: Stream | None, flags: int, block: bytes) -> None:
        problem = self._reader.read_trailers(block)  # always decoded: the table must stay in step
        if stream is None:
            if stream_id in self._abandoned:
                self._control.ignore()
                return
            seen = stream_id in self._ended
            raise ConnectionFault(Code.STREAM_CLOSED if seen else Code.PROTOCOL_ERROR, "HEADERS on a closed stream")
        if stream.remote_closed:
            raise StreamFault(Code.STREAM_CLOSED, "HEADERS after the end of the stream")
        if problem or not flags & END_STREAM:
            raise StreamFault(Code.PROTOCOL_ERROR, problem or "trailers without END_STREAM")
        if stream.expected > 0:
            raise StreamFault(Code.PROTOCOL_ERROR, "content-length does not match the DATA frames")
        stream.remote_closed = True
        stream.handler.data(b"", end=True)

    def _on_priority(self, stream_id: int, payload: bytes) -> None:
        if stream_id == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if len(payload) != 5:
            raise StreamFault(Code.FRAME_SIZE_ERROR, "PRIORITY of the wrong size")
        if int.from_bytes(payload[:4], "big") & MAX_WINDOW == stream_id:
            raise StreamFault(Code.PROTOCOL_ERROR, "a stream that depends on itself")
        self._control.ignore()

    def _on_reset(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "RST_STREAM of the wrong size")
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._forget(stream, by_us=False)
        elif stream_id == 0 or stream_id > self._last:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "RST_STREAM on an idle stream")

    def _refuse_more(self) -> None:
        """Serve what is open, take nothing new, then close."""
        self._refusing = True
        self.closing = not self._streams

    def _on_window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE of the wrong size")
        if not self._window_updates.take():
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many WINDOW_UPDATEs", limit="window_updates")
        increment = int.from_bytes(payload, "big") & MAX_WINDOW
        if stream_id == 0:
            self.out.window += increment
            if not increment or self.out.window > MAX_WINDOW:
                code = Code.FLOW_CONTROL_ERROR if increment else Code.PROTOCOL_ERROR
                raise ConnectionFault(code, "WINDOW_UPDATE out of range")
            self.out.release_all()
            return
        stream = self._streams.get(stream_id)
        if stream is None:
            if stream_id > self._last:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream")
            return
        if not increment:
            raise StreamFault(Code.PROTOCOL_ERROR, "WINDOW_UPDATE out of range")
        if self.out.widen(stream, increment) > MAX_WINDOW:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "WINDOW_UPDATE out of range")


def _opening(limits: Limits) -> bytes:
    """Return our SETTINGS and the connection window."""
    ours = settings(
        {
            Setting.MAX_CONCURRENT_STREAMS: limits.concurrent_streams,
            Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            Setting.MAX_FRAME_SIZE: limits.frame_bytes,
            Setting.MAX_HEADER_LIST_SIZE: limits.header_list_bytes,
        }
    )
    return ours + window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW)
