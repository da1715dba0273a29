"""The ext_proc messages (envoy.service.ext_proc.v3), decoded to what we read and encoded from prepared parts.

`decode` is on the path of every message and written for it: one pass, no object per header. It takes time and memory
linear in the message, however often a field is repeated. The header response to a pick depends on the pick alone, the
frame around a body chunk on its length alone, so both are remembered. What a peer's own bytes mean is remembered only
where they are few (`_REMEMBERED`): a cache of large messages would be a place to fill. Header values
travel in `raw_value` only: Envoy ignores `value`, and a header set by it arrives empty.

A test compares every field, in both directions and with unknown fields, with the official protobuf classes.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from pointsman.wire.grpc import Reply, Split
from pointsman.wire.protobuf import (
    Data,
    Malformed,
    Span,
    Value,
    decode_entry,
    decode_struct,
    encode_field,
    encode_struct,
    fields,
    read_bool,
    read_varint,
    skip,
    varint,
)

__all__ = [
    "CHUNK_BYTES",
    "BodyMode",
    "Incoming",
    "Malformed",
    "MessageKind",
    "body_replies",
    "change_body",
    "continue_body",
    "decode",
    "headers_reply",
    "immediate_reply",
    "metadata_field",
    "trailers_reply",
]

CHUNK_BYTES = 62_000
"""Envoy refuses streamed chunks of 64 KiB and more."""

_REMEMBERED = 2048  # bytes of a peer's at most


# Plain numbers in a class, not enums: on Python 3.11 naming an enum's member costs six times as much as a class
# attribute, and these names stand in the path of every message.
class MessageKind:
    """The message of a ProcessingRequest, by its field number; its answer's number is one less."""

    NOTHING: Final = 0
    REQUEST_HEADERS: Final = 2
    RESPONSE_HEADERS: Final = 3
    REQUEST_BODY: Final = 4
    RESPONSE_BODY: Final = 5
    REQUEST_TRAILERS: Final = 6
    RESPONSE_TRAILERS: Final = 7


class BodyMode:
    """How Envoy was told to send bodies (ProcessingMode.BodySendMode)."""

    NONE: Final = 0
    STREAMED: Final = 1
    BUFFERED: Final = 2
    BUFFERED_PARTIAL: Final = 3
    FULL_DUPLEX_STREAMED: Final = 4
    GRPC: Final = 5


class Incoming:
    """One ProcessingRequest. Headers, metadata and modes are decoded when asked for: most messages never are."""

    __slots__ = ("_config", "_data", "_headers", "_map", "_metadata", "body", "end", "kind")

    def __init__(self, data: Data, kind: int, metadata: Span | None, config: Span | None) -> None:
        self._data = data
        self._metadata = metadata
        self._config = config
        self._map: Span | None = None
        self._headers: dict[str, str] | None = None
        self.kind = kind
        self.body: Data = b""
        self.end = False

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self._data)

    @property
    def headers(self) -> dict[str, str]:
        """The headers or trailers, names in lower case."""
        if self._headers is None:
            self._headers = {}
            if self._map is not None:
                _read_map(self._data, *self._map, self._headers)
        return self._headers

    @property
    def status(self) -> str:
        """A response's `:status`: Envoy writes it first, so the other headers need not be read for it."""
        if self._map is not None and self._headers is None:
            start, _ = self._map
            if self._data[start + 2 : start + 13] == b"\x0a\x07:status\x1a\x03":
                return str(self._data[start + 13 : start + 16], "ascii", "replace")
        return self.headers.get(":status", "")

    def metadata(self, namespace: str) -> Mapping[str, Value] | None:
        """Return one namespace of the metadata context, or None when Envoy sent none."""
        if self._metadata is None:
            return None
        start, stop = self._metadata
        read = _known_namespace if stop - start <= _REMEMBERED else _read_namespace
        return read(bytes(self._data[start:stop]), namespace)

    def body_modes(self) -> tuple[int, int] | None:
        """Return the request's and the response's body mode; only the first message of a stream carries them."""
        if self._config is None:
            return None
        start, stop = self._config
        read = _known_modes if stop - start <= _REMEMBERED else _read_modes
        return read(bytes(self._data[start:stop]))

    def read_rest(self, data: Data, at: int, stop: int) -> None:
        """Read the fields of HttpHeaders, HttpTrailers or HttpBody that do not come in Envoy's usual shape."""
        is_body = self.kind in _BODIES
        for number, wire, start, end in fields(data, at, stop):
            if number == 1 and wire == 2:
                if is_body:
                    self.body = data[start:end]
                elif self._map is None:
                    self._map = (start, end)
                else:  # protobuf merges a map that comes twice
                    _read_map(data, start, end, self.headers)
            elif number == (2 if is_body else 3) and wire == 0:
                self.end = read_bool(data, start, end)

    def read(self, data: Data, at: int, stop: int) -> None:
        """Read HttpHeaders, HttpTrailers or HttpBody: field 1 is what matters in all of them, then comes the end."""
        if at < stop and data[at] == 0x0A:
            size = data[at + 1]
            here = at + 2
            if size > 0x7F:
                if data[here] < 0x80:  # two bytes: nearly all that are not one
                    size += (data[here] << 7) - 0x80
                    here += 1
                else:
                    size, here = read_varint(data, at + 1)
            at = here + size
            if at > stop:
                raise Malformed("field beyond its message")
            if self.kind in _BODIES:
                self.body = data[here:at]
            else:
                self._map = (here, at)
        if at != stop:
            tag = 0x10 if self.kind in _BODIES else 0x18
            if stop - at == 2 and data[at] == tag and data[at + 1] < 0x80:
                self.end = data[at + 1] != 0
            else:
                self.read_rest(data, at, stop)


_BODIES = (MessageKind.REQUEST_BODY, MessageKind.RESPONSE_BODY)


def _read_namespace(data: bytes, namespace: str) -> Mapping[str, Value] | None:
    for number, wire, start, stop in fields(data, 0, len(data)):
        if number == 1 and wire == 2:
            key, value = decode_entry(data, start, stop)
            if key == namespace and value:
                return MappingProxyType(decode_struct(data, *value))
    return None


def _read_modes(data: bytes) -> tuple[int, int]:
    modes = [0, 0]
    for number, wire, start, _ in fields(data, 0, len(data)):
        if number in {1, 2} and wire == 0:
            modes[number - 1] = read_varint(data, start)[0]
    return modes[0], modes[1]


# Envoy repeats the same few metadata and the same modes over and over, so that what their bytes mean is remembered.
_known_namespace = lru_cache(maxsize=1024)(_read_namespace)
_known_modes = lru_cache(maxsize=64)(_read_modes)


def decode(data: Data) -> Incoming:  # noqa: C901, PLR0912 - every message passes here: a call per field would be dear
    """Return the message in the bytes.

    Raises Malformed when they are none.
    """
    kind = at = start = stop = 0
    metadata = config = None
    merged: bytearray | None = None  # of a message that comes more than once
    size_all = len(data)
    try:
        while at < size_all:
            tag = data[at]
            at += 1
            if tag & 7 != 2:
                if tag > 0x7F or tag < 8:
                    tag, at = read_varint(data, at - 1)
                if tag & 7 != 2:
                    at = skip(data, at, tag & 7)
                    continue
            elif tag > 0x7F:
                tag, at = read_varint(data, at - 1)
            size = data[at]
            at += 1
            if size > 0x7F:
                if data[at] < 0x80:  # two bytes: nearly all messages
                    size += (data[at] << 7) - 0x80
                    at += 1
                else:
                    size, at = read_varint(data, at - 1)
            end = at + size
            if 0x12 <= tag <= 0x3A:
                if kind != tag >> 3:
                    kind, start, stop, merged = tag >> 3, at, end, None
                elif merged is None:
                    merged = bytearray().join((data[start:stop], data[at:end]))
                else:
                    merged += data[at:end]
            elif tag == 0x42:
                metadata = (at, end)
            elif tag == 0x5A:
                config = (at, end)
            at = end
    except IndexError:
        raise Malformed("truncated message") from None
    if at != size_all:
        raise Malformed("field beyond its message")
    if merged is not None:  # behind all else, so that no span moves
        data = b"".join((data, merged))
        start, stop = size_all, len(data)
    message = Incoming(data, kind, metadata, config)
    if kind:
        try:
            message.read(data, start, stop)
        except IndexError:
            raise Malformed("truncated message") from None
    return message


def _read_map(data: Data, at: int, stop: int, headers: dict[str, str]) -> None:
    """Read a HeaderMap. Envoy writes each entry as key, raw_value with short lengths: that shape has a short way."""
    try:
        while at < stop:
            size = data[at + 1]
            if data[at] == 0x0A and size < 0x80:
                at += 2
                end = at + size
                if size and data[at] == 0x0A:
                    middle = at + 2 + data[at + 1]
                    if middle < end and data[middle] == 0x1A and middle + 2 + data[middle + 1] == end:
                        name = str(data[at + 2 : middle], "utf-8", "surrogateescape").lower()
                        headers[name] = str(data[middle + 2 : end], "utf-8", "surrogateescape")
                        at = end
                        continue
                _read_entry(data, at, end, headers)
                at = end
            else:
                tag, here = read_varint(data, at)
                if tag & 7 != 2:
                    at = skip(data, here, tag & 7)
                    continue
                size, here = read_varint(data, here)
                at = here + size
                if tag == 0x0A:
                    _read_entry(data, here, at, headers)
    except IndexError:
        raise Malformed("truncated header map") from None
    if at != stop:
        raise Malformed("header beyond its map")


def _read_entry(data: Data, at: int, stop: int, headers: dict[str, str]) -> None:
    key: Data = b""
    value: Data = b""
    raw: Data = b""
    for number, wire, start, end in fields(data, at, stop):
        if wire == 2:
            if number == 1:
                key = data[start:end]
            elif number == 2:
                value = data[start:end]
            elif number == 3:
                raw = data[start:end]
    name = str(key, "utf-8", "surrogateescape").lower()
    headers[name] = str(raw or value, "utf-8", "surrogateescape")


# mode_override: no response body, and trailers, for which Envoy keeps the stream open until the response has ended.
_NO_BODY = encode_field(9, b"\x30\x01")


def headers_reply(
    kind: int,
    *,
    set_headers: Sequence[tuple[str, str]] = (),
    remove_headers: Sequence[str] = (),
    clear_route_cache: bool = False,
    metadata: Mapping[str, Value] | None = None,
    spare_body: bool = False,
) -> bytes:
    """Return the ProcessingResponse to headers; with `spare_body` it asks Envoy to keep the response's body."""
    mutation = _mutation(set_headers) + b"".join([encode_field(2, name.encode()) for name in remove_headers])
    common = encode_field(2, mutation) if mutation else b""
    if clear_route_cache:
        common += b"\x28\x01"
    reply = encode_field(kind - 1, encode_field(1, common))
    if spare_body:
        reply += _NO_BODY
    return reply + metadata_field(metadata) if metadata else reply


def metadata_field(metadata: Mapping[str, Any]) -> bytes:
    """Return dynamic metadata by namespace, as it may follow any ProcessingResponse; nothing when there is none."""
    return encode_field(8, encode_struct(metadata)) if metadata else b""


def body_replies(kind: int, body: Data, *, end: bool) -> list[Reply]:
    """Return the ProcessingResponses that pass a body on in FULL_DUPLEX_STREAMED mode; a large one is not copied."""
    size = len(body)
    if size <= CHUNK_BYTES:
        return [b"".join((_body_head(kind, size, end), body, b"\x10\x01" if end else b""))]
    whole = (size - 1) // CHUNK_BYTES * CHUNK_BYTES
    head, view = _body_head(kind, CHUNK_BYTES, False), memoryview(body)
    replies: list[Reply] = [Split(head, view[at : at + CHUNK_BYTES]) for at in range(0, whole, CHUNK_BYTES)]
    return [*replies, *body_replies(kind, view[whole:], end=end)]


@lru_cache(maxsize=4096)
def _body_head(kind: int, size: int, end: bool) -> bytes:  # noqa: FBT001 - a cache key
    """Return all bytes before a chunk: ProcessingResponse > BodyResponse > CommonResponse > BodyMutation > chunk."""
    head = b"\x0a" + varint(size) if size else b""
    inner = len(head) + size + (2 if end else 0)
    for tag in (b"\x1a", b"\x1a", b"\x0a", bytes(((kind - 1) << 3 | 2,))):
        head = tag + varint(inner) + head
        inner += len(tag) + len(varint(inner))
    return head


def continue_body(kind: int) -> bytes:
    """Return the ProcessingResponse that leaves a body as it is, in the modes where Envoy owns it."""
    return encode_field(kind - 1, encode_field(1, b""))


def change_body(kind: int, *, set_headers: Sequence[tuple[str, str]], body: Data | None = None) -> bytes:
    """Return the ProcessingResponse to a body that Envoy owns: headers, and another body unless it stays."""
    mutation = _mutation(set_headers)
    common = encode_field(2, mutation) if mutation else b""
    if body is not None:
        common += encode_field(3, encode_field(1, bytes(body)))
    if common and kind == MessageKind.REQUEST_BODY:
        common += b"\x28\x01"
    return encode_field(kind - 1, encode_field(1, common))


def trailers_reply(kind: int) -> bytes:
    """Return the ProcessingResponse that leaves trailers as they are."""
    return encode_field(kind - 1, b"")


def immediate_reply(status: int, *, headers: Sequence[tuple[str, str]] = (), body: bytes = b"") -> bytes:
    """Return the ProcessingResponse that answers the client in the model server's place."""
    parts = encode_field(1, b"\x08" + varint(status))
    if headers:
        parts += encode_field(2, _mutation(headers))
    if body:
        parts += encode_field(3, body)
    return encode_field(7, parts)


def _mutation(set_headers: Sequence[tuple[str, str]]) -> bytes:
    """Return a HeaderMutation that overwrites (append_action OVERWRITE_IF_EXISTS_OR_ADD)."""
    options = (encode_field(1, _header(name, value)) + b"\x18\x02" for name, value in set_headers)
    return b"".join(encode_field(1, option) for option in options)


def _header(name: str, value: str) -> bytes:
    return encode_field(1, name.encode()) + encode_field(3, value.encode("utf-8", "surrogateescape"))
