"""The frames of a connection that belong to no stream: SETTINGS, PING, GOAWAY; and how a connection is drained.

What both sides have agreed on is kept here; streams and DATA are `connection`'s. Each kind of frame that a peer could
flood us with has its bucket.
"""

from collections.abc import Callable

from pointsman.wire.frames import (
    ACK,
    DEFAULT_FRAME,
    MAX_WINDOW,
    PAIR,
    SETTINGS_ACK,
    Code,
    ConnectionFault,
    FrameKind,
    Setting,
    frame,
    goaway,
    settings,
)
from pointsman.wire.headers import HeaderReader
from pointsman.wire.limits import Bucket, Limits
from pointsman.wire.outbox import Outbox

_DRAIN_PING = b"pm-drain"
_STATELESS_AFTER = 15  # stream number: a peer that opens this many is Envoy, not a probe


class Control:
    """What both sides of a connection have told each other."""

    def __init__(self, *, out: Outbox, reader: HeaderReader, limits: Limits, clock: Callable[[], float]) -> None:
        self._out = out
        self._reader = reader
        self._unacknowledged = 1  # SETTINGS of ours that the peer has not acknowledged
        self._stateless_asked = False
        self._draining = False
        self._settings = Bucket(limits.settings, clock=clock)
        self._pings = Bucket(limits.pings, clock=clock)
        self._ignored = Bucket(limits.ignored_frames, clock=clock)
        self.settled = False  # whether the peer has introduced itself

    def ignore(self) -> None:
        """Count a frame that means nothing."""
        if not self._ignored.take():
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many frames that mean nothing", limit="ignored_frames")

    def opened(self, stream_id: int) -> None:
        """Ask the peer to do without an HPACK table, once it seems to stay."""
        if stream_id > _STATELESS_AFTER and not self._stateless_asked:
            self._stateless_asked = True
            self._unacknowledged += 1
            self._out.frames.append(settings({Setting.HEADER_TABLE_SIZE: 0}))

    def on_settings(self, stream_id: int, flags: int, payload: bytes) -> None:
        """Take the peer's settings, or that it took ours."""
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
        self.settled = True
        self._apply(payload)

    def _apply(self, payload: bytes) -> None:
        window = self._out.peer_window
        for at in range(0, len(payload), 6):
            key, value = PAIR.unpack_from(payload, at)
            _check_setting(key, value)
            if key == Setting.INITIAL_WINDOW_SIZE:
                window = value
            elif key == Setting.MAX_FRAME_SIZE:
                self._out.peer_frame = value
        self._out.frames.append(SETTINGS_ACK)
        if window != self._out.peer_window:  # once per frame, whatever stands in it
            self._out.resize(window)

    def _on_settings_ack(self) -> None:
        if not self._unacknowledged:
            self.ignore()
            return
        self._unacknowledged -= 1
        if self._stateless_asked and not self._unacknowledged:
            self._reader.acknowledged()

    def drain(self) -> bool:
        """Ask the peer to go elsewhere; return whether it was not asked before."""
        if self._draining:
            return False
        self._draining = True
        self._out.frames.append(goaway(MAX_WINDOW, Code.NO_ERROR, "draining"))
        self._out.frames.append(frame(FrameKind.PING, 0, 0, _DRAIN_PING))
        return True

    def on_ping(self, stream_id: int, flags: int, payload: bytes, *, last: int) -> bool:
        """Answer a PING. Return whether it is the answer to ours: all that the peer sent before our GOAWAY is here.

        Then it has been told that the stream `last` is the last.
        """
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "PING of the wrong size")
        if not flags & ACK:
            if not self._pings.take():
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many PINGs", limit="pings")
            self._out.frames.append(frame(FrameKind.PING, ACK, 0, payload))
            return False
        if self._draining and payload == _DRAIN_PING:
            self._out.frames.append(goaway(last, Code.NO_ERROR, "draining"))
            return True
        self.ignore()
        return False

    def on_goaway(self, stream_id: int, payload: bytes) -> None:
        """Note that the peer leaves."""
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "GOAWAY of the wrong size")
        self._draining = True


def _check_setting(key: int, value: int) -> None:
    if key == Setting.ENABLE_PUSH and value > 1:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
    if key == Setting.MAX_FRAME_SIZE and not DEFAULT_FRAME <= value < 1 << 24:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "MAX_FRAME_SIZE out of range")
    if key == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
        raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE out of range")
