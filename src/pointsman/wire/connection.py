"""One HTTP/2 connection, server side, without a socket: bytes in, bytes out.

Owns framing, header blocks, both flow-control windows, stream states and the limits on a hostile peer. Knows nothing of
gRPC: a stream's owner is a `Handler` that gets the payloads and answers through the connection's `out`. All
replies of one `receive` leave in one write, which is what makes this cheap: Envoy multiplexes all its requests over one
connection per worker, so under load one read carries frames of many requests.

Invariants: `receive` never raises; a `ConnectionFault` ends this connection only, a `StreamFault` this stream only;
each handler's `closed` is called exactly once, whoever ends the stream; nothing is kept of a stream after that but its
number.

Only what ext_proc and gRPC health need is here: no push, no priorities (read, checked, ignored), no extension frames.
"""

from collections import deque
from collections.abc import Callable

from pointsman.core.logs import get_logger
from pointsman.wire.frames import (
    ACK,
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADER,
    MAX_WINDOW,
    PADDED,
    PAIR,
    PREFACE,
    PRIORITY_FLAG,
    SETTINGS_ACK,
    Code,
    ConnectionFault,
    Kind,
    Setting,
    StreamFault,
    frame,
    goaway,
    reset,
    settings,
    window_update,
)
from pointsman.wire.headers import Block, HeaderReader
from pointsman.wire.limits import Bucket, Limits
from pointsman.wire.outbox import Handler, Outbox, Stream

log = get_logger(__name__)

STREAM_WINDOW = 8 << 20
CONNECTION_WINDOW = 64 << 20
_DRAIN_PING = b"pm-drain"
_STATELESS_AFTER = 15  # stream number: a peer that opens this many is Envoy, not a probe
_REMEMBERED = 512  # numbers of ended streams, for the right answer to a late frame


class Connection:
    """The server's side of one connection."""

    def __init__(
        self,
        *,
        accept: Callable[["Connection", Stream, Block], Handler],
        limits: Limits,
        clock: Callable[[], float],
        on_limit: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._accept = accept
        self._limits = limits
        self._on_limit = on_limit
        self.out = Outbox(unsent_bytes=limits.unsent_bytes, on_end=self._local_end)
        self.out.frames.append(_opening(limits))
        self._rest = b""
        self._reader = HeaderReader(limits=limits)
        self._streams: dict[int, Stream] = {}
        self._ended: deque[int] = deque(maxlen=_REMEMBERED)  # by the peer, or by both
        self._abandoned: deque[int] = deque(maxlen=_REMEMBERED)  # by us: late frames are no error
        self._last = 0
        self._consumed = 0
        self._held = 0
        self._preface = False
        self._settled = False
        self._unacknowledged = 1  # SETTINGS of ours that the peer has not acknowledged
        self._stateless_asked = False
        self._block: list[bytes] | None = None  # HEADERS waiting for CONTINUATION
        self._block_head = (0, 0)  # … its stream and flags
        self._draining = False
        self._refusing = False
        self._early_resets = Bucket(limits.early_resets, clock=clock)
        self._settings = Bucket(limits.settings, clock=clock)
        self._pings = Bucket(limits.pings, clock=clock)
        self._empty_data = Bucket(limits.empty_data, clock=clock)
        self._ignored = Bucket(limits.ignored_frames, clock=clock)
        self._window_updates = Bucket(limits.window_updates, clock=clock)
        self._stream_errors = Bucket(limits.stream_errors, clock=clock)
        self.closing = False  # the socket is to be closed once the output is written
        self.flush: Callable[[], None] = lambda: None  # set by the shell: write what `out.take` returns

    # -- for the shell ------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the peer has introduced itself."""
        return self._settled

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the socket and return what to write to it."""
        if self.closing:
            return b""
        buffer = self._rest + data if self._rest else data
        try:
            self._rest = buffer[self._parse(buffer) :]
        except ConnectionFault as fault:
            self._fail(fault)
        except Exception:
            log.exception("wire: a frame raised; connection closed")
            self._fail(ConnectionFault(Code.INTERNAL_ERROR, "internal error"))
        return self.out.take()

    def lost(self) -> None:
        """Note that the socket is gone: every stream ends."""
        self.closing = True
        self._rest = b""
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self.out.drop(stream)
            stream.handler.closed()

    def drain(self) -> None:
        """Ask the peer to go elsewhere; streams that are open, or on their way, are served to their end."""
        if not self._draining and not self.closing:
            self._draining = True
            self.out.frames.append(goaway(MAX_WINDOW, Code.NO_ERROR, "draining"))
            self.out.frames.append(frame(Kind.PING, 0, 0, _DRAIN_PING))
            self.flush()

    def exhaust(self, limit: str, reason: str) -> None:
        """End the connection for a limit that only the shell can see."""
        self._fail(ConnectionFault(Code.ENHANCE_YOUR_CALM, reason, limit=limit))
        self.flush()

    def push(self, send: Callable[[], None]) -> None:
        """Run something that sends on its own account, outside `receive`, and write what it sent."""
        try:
            send()
        except ConnectionFault as fault:
            self._fail(fault)
        self.flush()

    # -- for handlers -------------------------------------------------------------------------------------------

    def hold(self, delta: int) -> None:
        """Account for bytes that a handler keeps of incomplete messages."""
        self._held += delta
        if self._held > self._limits.held_bytes:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too much of incomplete messages", limit="held_bytes")

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
        self.out.drop(stream)
        (self._abandoned if by_us else self._ended).append(stream.id)
        stream.handler.closed()
        if self._refusing and not self._streams:
            self.closing = True

    def _fail(self, fault: ConnectionFault) -> None:
        """Say why, and end the connection."""
        if fault.limit:
            self._on_limit(fault.limit)
        log.info("wire: connection closed", code=fault.code.name, reason=fault.reason, limit=fault.limit)
        self.out.frames.append(goaway(self._last, fault.code, fault.reason))
        self.lost()

    def _reset(self, stream_id: int, fault: StreamFault) -> None:
        if not self._stream_errors.take():
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many stream errors", limit="stream_errors")
        self.out.frames.append(reset(stream_id, fault.code))
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._forget(stream, by_us=True)
        else:
            self._abandoned.append(stream_id)

    # -- input --------------------------------------------------------------------------------------------------

    def _parse(self, buffer: bytes) -> int:
        """Handle every complete frame in the buffer; return how much of it that was."""
        here = 0 if self._preface else self._read_preface(buffer)
        size_limit = self._limits.frame_bytes
        size_all = len(buffer)
        unpack = HEADER.unpack_from
        while size_all - here >= 9 and not self.closing and self._preface:
            high, low, kind, flags, stream_id = unpack(buffer, here)
            size = high << 16 | low
            stop = here + 9 + size
            if size > size_limit:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"frame of {size} bytes")
            if stop > size_all:
                break
            payload = buffer[here + 9 : stop]
            here = stop
            stream_id &= MAX_WINDOW
            try:
                if kind == 0 and self._block is None and self._settled:
                    self._on_data(stream_id, flags, payload)
                else:
                    self._on_other(kind, stream_id, flags, payload)
            except StreamFault as fault:
                self._reset(stream_id, fault)
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
            self._on_stray(stream_id, "DATA", known=stream is not None)
            return
        end = flags & END_STREAM != 0
        stream.received += size
        if stream.received > STREAM_WINDOW or self._consumed > CONNECTION_WINDOW:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "DATA beyond the window")
        if flags & PADDED:
            payload = _unpad(payload)
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

    def _on_stray(self, stream_id: int, what: str, *, known: bool) -> None:
        """Take a frame of a stream that is not open: an error unless it was we who ended it."""
        if stream_id == 0 or (not known and stream_id > self._last):
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"{what} on an idle stream")
        if stream_id not in self._abandoned:
            raise StreamFault(Code.STREAM_CLOSED, f"{what} on a closed stream")
        self._ignore()

    def _ignore(self) -> None:
        if not self._ignored.take():
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many frames that mean nothing", limit="ignored_frames")

    def _on_other(self, kind: int, stream_id: int, flags: int, payload: bytes) -> None:
        if self._block is not None and kind != Kind.CONTINUATION:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a frame inside a header block")
        if not self._settled and kind != Kind.SETTINGS:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        match kind:
            case Kind.HEADERS:
                self._on_headers(stream_id, flags, payload)
            case Kind.RST_STREAM:
                self._on_reset(stream_id, payload)
            case Kind.WINDOW_UPDATE:
                self._on_window_update(stream_id, payload)
            case Kind.PING:
                self._on_ping(stream_id, flags, payload)
            case Kind.SETTINGS:
                self._on_settings(stream_id, flags, payload)
            case Kind.CONTINUATION:
                self._on_continuation(stream_id, flags, payload)
            case Kind.PRIORITY:
                self._on_priority(stream_id, payload)
            case Kind.GOAWAY:
                self._on_goaway(stream_id, payload)
            case Kind.PUSH_PROMISE:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "PUSH_PROMISE from a client")
            case _:
                self._ignore()

    def _on_headers(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id % 2 == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "HEADERS on a stream that is not the client's")
        if flags & PADDED:
            payload = _unpad(payload)
        depends_on_itself = False
        if flags & PRIORITY_FLAG:
            if len(payload) < 5:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
            depends_on_itself = int.from_bytes(payload[:4], "big") & MAX_WINDOW == stream_id
            payload = payload[5:]
        if flags & END_HEADERS:
            self._on_block(stream_id, flags, payload)
        else:
            self._block = [payload]
            self._block_head = (stream_id, flags)
        if depends_on_itself:
            raise StreamFault(Code.PROTOCOL_ERROR, "a stream that depends on itself")

    def _on_continuation(self, stream_id: int, flags: int, payload: bytes) -> None:
        parts = self._block
        if parts is None or stream_id != self._block_head[0]:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "CONTINUATION out of place")
        parts.append(payload)
        if len(parts) > self._limits.continuations:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many CONTINUATIONs", limit="continuations")
        if sum(map(len, parts)) > self._limits.header_block_bytes:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "header block too large", limit="header_block_bytes")
        if flags & END_HEADERS:
            self._block = None
            self._on_block(stream_id, self._block_head[1], b"".join(parts))

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
            raise StreamFault(Code.REFUSED_STREAM, "too many streams")
        end = flags & END_STREAM != 0
        stream = Stream(stream_id, window=self.out.peer_window, expected=headers.content_length)
        stream.remote_closed = end
        if end and stream.expected > 0:
            raise StreamFault(Code.PROTOCOL_ERROR, "content-length without DATA")
        self._streams[stream_id] = stream
        if not self._stateless_asked and stream_id > _STATELESS_AFTER:
            self._ask_for_stateless_headers()
        stream.handler = self._accept(self, stream, headers)
        if end and stream_id in self._streams:
            stream.handler.data(b"", end=True)

    def _on_trailers(self, stream_id: int, stream: Stream | None, flags: int, block: bytes) -> None:
        problem = self._reader.read_trailers(block)  # always decoded: the table must stay in step
        if stream is None:
            if stream_id in self._abandoned:
                self._ignore()
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
        self._ignore()

    def _on_reset(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "RST_STREAM of the wrong size")
        stream = self._streams.get(stream_id)
        if stream is not None:
            if not stream.answered and not self._early_resets.take():
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "streams reset before an answer", limit="early_resets")
            self._forget(stream, by_us=False)
        elif stream_id == 0 or stream_id > self._last:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "RST_STREAM on an idle stream")
        elif stream_id not in self._abandoned:
            self._ignore()

    def _on_settings(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "SETTINGS acknowledgement with a payload")
            self._on_settings_ack()
            return
        if len(payload) % 6:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "SETTINGS of the wrong size")
        if not self._settings.take():
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many SETTINGS", limit="settings")
        self._settled = True
        for at in range(0, len(payload), 6):
            self._apply(*PAIR.unpack_from(payload, at))
        self.out.frames.append(SETTINGS_ACK)
        self.out.release_all()

    def _on_settings_ack(self) -> None:
        if not self._unacknowledged:
            self._ignore()
            return
        self._unacknowledged -= 1
        if self._stateless_asked and not self._unacknowledged:
            self._reader.acknowledged()

    def _ask_for_stateless_headers(self) -> None:
        """Ask the peer to do without an HPACK table, now that it seems to stay."""
        self._stateless_asked = True
        self._unacknowledged += 1
        self.out.frames.append(settings({Setting.HEADER_TABLE_SIZE: 0}))

    def _apply(self, key: int, value: int) -> None:
        if key == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if key == Setting.MAX_FRAME_SIZE:
            if not DEFAULT_FRAME <= value < 1 << 24:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "MAX_FRAME_SIZE out of range")
            self.out.peer_frame = value
        elif key == Setting.INITIAL_WINDOW_SIZE:
            if value > MAX_WINDOW:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE out of range")
            delta, self.out.peer_window = value - self.out.peer_window, value
            for stream in self._streams.values():
                stream.window += delta
                if stream.window > MAX_WINDOW:
                    raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window above its maximum")

    def _on_ping(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "PING of the wrong size")
        if flags & ACK:
            self._on_drain_answer(payload)
        elif self._pings.take():
            self.out.frames.append(frame(Kind.PING, ACK, 0, payload))
        else:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many PINGs", limit="pings")

    def _on_drain_answer(self, payload: bytes) -> None:
        """All that the peer sent before it saw our GOAWAY is here: say which stream is the last."""
        if self._draining and payload == _DRAIN_PING:
            self.out.frames.append(goaway(self._last, Code.NO_ERROR, "draining"))
            self._refuse_more()
        else:
            self._ignore()

    def _on_goaway(self, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "GOAWAY of the wrong size")
        self._draining = True
        self._refuse_more()

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
        stream.window += increment
        if not increment or stream.window > MAX_WINDOW:
            code = Code.FLOW_CONTROL_ERROR if increment else Code.PROTOCOL_ERROR
            raise StreamFault(code, "WINDOW_UPDATE out of range")
        self.out.release(stream)


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


def _unpad(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(Code.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
