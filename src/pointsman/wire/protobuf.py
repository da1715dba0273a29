"""The protobuf wire format, as far as ext_proc and health need it: varints, length-delimited fields, Struct.

Hand-written because it is in the path of every message: the generated classes cost more per request than all of our
scheduling. Unknown fields are skipped as protobuf demands; anything truncated is `Malformed`, never an IndexError.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import TypeAlias

Value: TypeAlias = "float | str | bool | dict[str, Value] | list[Value] | None"
Span = tuple[int, int]

_MAX_DEPTH = 32


class Malformed(ValueError):
    """Bytes that are not a message."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the position after it."""
    result = shift = 0
    while True:
        try:
            byte = data[at]
        except IndexError:
            raise Malformed("truncated varint") from None
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise Malformed("varint too long")


def skip(data: bytes, at: int, wire: int) -> int:
    """Return the position after a field that is not length-delimited."""
    if wire == 0:
        return read_varint(data, at)[1]
    if wire == 1:
        return at + 8
    if wire == 5:
        return at + 4
    raise Malformed(f"wire type {wire}")


def fields(data: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field, wire type, start, stop) of each field; a varint's span holds its bytes."""
    while at < stop:
        tag, at = read_varint(data, at)
        wire = tag & 7
        if wire == 2:
            size, start = read_varint(data, at)
            at = start + size
        else:
            start = at
            at = skip(data, at, wire)
        if at > stop or tag < 8:
            raise Malformed("field beyond its message")
        yield tag >> 3, wire, start, at


def read_bool(data: bytes, start: int, stop: int) -> bool:
    """Return a boolean field's value from its span."""
    return data[start] != 0 if stop - start == 1 else read_varint(data, start)[0] != 0


def varint(value: int) -> bytes:
    """Return a varint's bytes."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_field(number: int, payload: bytes) -> bytes:
    """Return a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def read_string_field(data: bytes, *, field: int) -> str:
    """Return a message's string field, or nothing."""
    found = ""
    for number, wire, start, stop in fields(data, 0, len(data)):
        if number == field and wire == 2:
            found = _text(data, start, stop)
    return found


def encode_struct(values: Mapping[str, Value]) -> bytes:
    """Return a google.protobuf.Struct."""
    entries = (encode_field(1, key.encode()) + encode_field(2, _encode_value(value)) for key, value in values.items())
    return b"".join(encode_field(1, entry) for entry in entries)


def _encode_value(value: Value) -> bytes:
    match value:
        case None:
            return b"\x08\x00"
        case bool():
            return b"\x20\x01" if value else b"\x20\x00"
        case float():
            return b"\x11" + struct.pack("<d", value)
        case str():
            return encode_field(3, value.encode())
        case dict():
            return encode_field(5, encode_struct(value))
        case list():
            return encode_field(6, b"".join(encode_field(1, _encode_value(item)) for item in value))


def decode_struct(data: bytes, at: int, stop: int, *, depth: int = 0) -> dict[str, Value]:
    """Return a google.protobuf.Struct as a dict."""
    result: dict[str, Value] = {}
    for number, wire, start, end in fields(data, at, stop):
        if number == 1 and wire == 2:
            key, value = decode_entry(data, start, end)
            result[key] = _decode_value(data, *value, depth=depth + 1) if value else None
    return result


def decode_entry(data: bytes, at: int, stop: int) -> tuple[str, Span | None]:
    """Return key and value span of a map entry with string keys."""
    key, value = "", None
    for number, wire, start, end in fields(data, at, stop):
        if number == 1 and wire == 2:
            key = _text(data, start, end)
        elif number == 2 and wire == 2:
            value = (start, end)
    return key, value


def _decode_value(data: bytes, at: int, stop: int, *, depth: int) -> Value:
    if depth > _MAX_DEPTH:
        raise Malformed("metadata nested too deeply")
    result: Value = None
    for number, wire, start, end in fields(data, at, stop):
        match number, wire:
            case 1, 0:
                result = None
            case 2, 1:
                (result,) = struct.unpack_from("<d", data, start)
            case 3, 2:
                result = _text(data, start, end)
            case 4, 0:
                result = read_bool(data, start, end)
            case 5, 2:
                result = decode_struct(data, start, end, depth=depth + 1)
            case 6, 2:
                items = ((a, b) for n, w, a, b in fields(data, start, end) if n == 1 and w == 2)
                result = [_decode_value(data, a, b, depth=depth + 1) for a, b in items]
    return result


def _text(data: bytes, start: int, stop: int) -> str:
    try:
        return data[start:stop].decode()
    except UnicodeDecodeError:
        raise Malformed("a string that is not UTF-8") from None
