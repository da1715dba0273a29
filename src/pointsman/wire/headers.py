"""Header blocks: decoded once, checked once, remembered.

A peer that stays for more than a few streams is told SETTINGS_HEADER_TABLE_SIZE 0. Once it has acknowledged that and
shrunk its table, its blocks no longer depend on each other, so the same bytes always mean the same headers and the
whole result (decoded, validated) can be looked up by the bytes themselves. Envoy sends one and the same block for every
request, which makes HPACK free. Until then every block goes through the real decoder, whose table must stay in step. A
peer that acknowledges and never shrinks (RFC 9113 §4.3.1 would let us hang up; there are such clients) is served, only
without the cache. Why not in the first SETTINGS: h2spec's generic tests take the default table for granted.

The check is RFC 9113 §8.2–8.3; what fails it is a malformed request, a stream error.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hpack import Decoder, HPACKError, OversizedHeaderListError

from pointsman.core.http.messages import content_length
from pointsman.wire.frames import Code, ConnectionFault
from pointsman.wire.limits import Limits

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_REQUIRED = (b":method", b":scheme", b":path")
_CONNECTION_SPECIFIC = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_CACHE_ENTRIES = 8  # Envoy has one or two; every connection has a cache of its own, so they are small
_CACHE_BLOCK_BYTES = 1024


@dataclass(frozen=True, slots=True)
class HeaderBlock:
    """A decoded header block. `malformed` is empty, or says what is wrong with it as a request."""

    fields: Mapping[bytes, bytes]
    malformed: str
    content_length: int  # -1 when absent


class HeaderReader:
    """Decoder, validator and cache of one connection."""

    __slots__ = ("_acknowledged", "_cache", "_decoder", "_stateless")

    def __init__(self, *, limits: Limits) -> None:
        self._decoder = Decoder(max_header_list_size=limits.header_list_bytes)
        self._cache: dict[bytes, HeaderBlock] = {}
        self._acknowledged = False
        self._stateless = False

    def acknowledged(self) -> None:
        """Note that the peer has taken our table size of 0 into use."""
        self._acknowledged = True

    def read(self, block: bytes) -> HeaderBlock:
        """Return the request headers in the block.

        Raises ConnectionFault when the block cannot be decoded: the table would be out of step for ever.
        """
        known = self._cache.get(block)
        if known is not None:
            return known
        result = _check(self._decode(block))
        if not self._stateless and self._acknowledged and not self._decoder.header_table_size:
            self._stateless = True
        if self._stateless and len(block) <= _CACHE_BLOCK_BYTES:
            if len(self._cache) >= _CACHE_ENTRIES:
                self._cache.clear()
            self._cache[block] = result
        return result

    def read_trailers(self, block: bytes) -> str:
        """Decode trailers; return what is wrong with them, or nothing."""
        for name, _ in self._decode(block):
            if name.startswith(b":"):
                return "pseudo-header in trailers"
            if name != name.lower():
                return "upper-case header name"
        return ""

    def _decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        if self._acknowledged and _grows_table(block):
            raise ConnectionFault(Code.COMPRESSION_ERROR, "header block: a table larger than we allow")
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except OversizedHeaderListError:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "header list too large", limit="header_list_bytes") from None
        except (HPACKError, IndexError, ValueError, UnicodeError) as error:
            # Not what it says: that quotes the peer's bytes, or the address where they lie.
            raise ConnectionFault(Code.COMPRESSION_ERROR, f"header block: {type(error).__name__}") from None


def _grows_table(block: bytes) -> bool:
    """Return whether the block begins by setting the table's size to anything but 0 (RFC 7541 §6.3)."""
    sizes = block.lstrip(b"\x20")
    return bool(sizes) and sizes[0] & 0xE0 == 0x20


def _check(fields: list[tuple[bytes, bytes]]) -> HeaderBlock:
    seen: dict[bytes, bytes] = {}
    malformed = ""
    regular = False
    for name, value in fields:
        malformed = malformed or _check_field(name, value, seen=seen, regular=regular)
        regular = regular or not name.startswith(b":")
        seen.setdefault(name, value)
    malformed = malformed or next((f"{name.decode()} is missing" for name in _REQUIRED if not seen.get(name)), "")
    length = content_length(seen.get(b"content-length", b""))
    if length < 0 and seen.get(b"content-length"):
        malformed = malformed or "content-length is not a number"
    return HeaderBlock(fields=seen, malformed=malformed, content_length=length)


def _check_field(name: bytes, value: bytes, *, seen: dict[bytes, bytes], regular: bool) -> str:
    if name.startswith(b":"):
        if regular:
            return "pseudo-header after a regular header"
        if name not in _PSEUDO:
            return "unknown pseudo-header"
        if name in seen:
            return "pseudo-header twice"
    elif not name or name != name.lower():
        return "upper-case or empty header name"
    elif name in _CONNECTION_SPECIFIC:
        return "connection-specific header"
    elif name == b"te" and value != b"trailers":
        return "te other than trailers"
    return ""
