"""Header blocks, put together from HEADERS and CONTINUATION frames, within limits."""

from typing import NamedTuple

from pointsman.wire.frames import END_HEADERS, MAX_WINDOW, PADDED, PRIORITY_FLAG, Code, ConnectionFault, unpad
from pointsman.wire.limits import Limits


class WholeBlock(NamedTuple):
    """A header block that is complete."""

    flags: int  # of its HEADERS frame
    data: bytes


class BlockAssembler:
    """The header block that is on its way, if one is; no other frame may come in between."""

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        self._stream = 0
        self._flags = 0
        self._bytes = 0
        self.parts: list[bytes] | None = None  # of a block that waits for CONTINUATION

    def on_headers(self, stream_id: int, flags: int, payload: bytes) -> tuple[WholeBlock | None, bool]:
        """Begin a block. Return it when it is whole, and whether the stream says that it depends on itself."""
        if stream_id % 2 == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "HEADERS on a stream that is not the client's")
        if flags & PADDED:
            payload = unpad(payload)
        depends_on_itself = False
        if flags & PRIORITY_FLAG:
            if len(payload) < 5:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
            depends_on_itself = int.from_bytes(payload[:4], "big") & MAX_WINDOW == stream_id
            payload = payload[5:]
        if flags & END_HEADERS:
            return WholeBlock(flags, payload), depends_on_itself
        self.parts, self._bytes = [payload], len(payload)
        self._stream, self._flags = stream_id, flags
        return None, depends_on_itself

    def on_continuation(self, stream_id: int, flags: int, payload: bytes) -> WholeBlock | None:
        """Go on with the block; return it when it is whole."""
        parts = self.parts
        if parts is None or stream_id != self._stream:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "CONTINUATION out of place")
        parts.append(payload)
        self._bytes += len(payload)
        if len(parts) > self._limits.continuations:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many CONTINUATIONs", limit="continuations")
        if self._bytes > self._limits.header_block_bytes:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "header block too large", limit="header_block_bytes")
        if not flags & END_HEADERS:
            return None
        self.parts = None
        return WholeBlock(self._flags, b"".join(parts))
