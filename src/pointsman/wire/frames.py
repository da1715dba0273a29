"""HTTP/2 frames (RFC 9113 §6) as bytes: names, builders, and the two ways in which a peer can be wrong.

WireFault
├── ConnectionFault   ends the connection with GOAWAY(code)
└── StreamFault       ends one stream with RST_STREAM(code); the connection goes on
"""

import enum
import struct
from typing import Final


class FrameKind:
    """Frame types; plain numbers, because naming an enum's member is dear in the path of every frame."""

    DATA: Final = 0
    HEADERS: Final = 1
    PRIORITY: Final = 2
    RST_STREAM: Final = 3
    SETTINGS: Final = 4
    PUSH_PROMISE: Final = 5
    PING: Final = 6
    GOAWAY: Final = 7
    WINDOW_UPDATE: Final = 8
    CONTINUATION: Final = 9


class Code(enum.IntEnum):
    """Error codes (RFC 9113 §7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11


class Setting(enum.IntEnum):
    """SETTINGS parameters."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY_FLAG = 0x20

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME = 16_384

# length (as one byte and two), type, flags, stream; the loops in `wire` unpack with it in place
HEADER = struct.Struct(">BHBBI")
PAIR = struct.Struct(">HI")


class WireFault(Exception):
    """The peer broke the protocol or a limit."""

    def __init__(self, code: Code, reason: str, *, limit: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.limit = limit


class ConnectionFault(WireFault):
    """… in a way that ends the connection."""


class StreamFault(WireFault):
    """… in a way that ends one stream."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    size = len(payload)
    return HEADER.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def settings(values: dict[Setting, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(FrameKind.SETTINGS, 0, 0, b"".join(PAIR.pack(key, value) for key, value in values.items()))


SETTINGS_ACK = frame(FrameKind.SETTINGS, ACK, 0)


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame; stream 0 means the connection."""
    return frame(FrameKind.WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def reset(stream: int, code: Code) -> bytes:
    """Return a RST_STREAM frame."""
    return frame(FrameKind.RST_STREAM, 0, stream, int(code).to_bytes(4, "big"))


def goaway(last_stream: int, code: Code, reason: str = "") -> bytes:
    """Return a GOAWAY frame whose debug data says why."""
    debug = reason.encode("ascii", "replace")[:256]
    return frame(FrameKind.GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + int(code).to_bytes(4, "big") + debug)


def unpad(payload: bytes) -> bytes:
    """Return the payload of a padded frame without its padding.

    Raises ConnectionFault when there is more padding than frame.
    """
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(Code.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
