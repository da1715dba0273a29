"""The protobuf wire format, as far as vLLM's gRPC messages need it. What is not a message is a `Refusal` 400."""

import struct
from collections.abc import Iterator, Sequence

from pointsman.sim.failures import Refusal

Field = tuple[int, int | bytes]
"""A field's number, and its value: a number for varints, bytes for what has a length."""


def decode(data: bytes) -> Iterator[Field]:
    """Yield every field but those of fixed width, which none of our messages reads.

    Raises Refusal 400 when the bytes are not a message.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
            case 2:
                size, at = _varint(data, at)
                if at + size > len(data):
                    raise _malformed()
                yield tag >> 3, data[at : at + size]
                at += size
            case 1 | 5 as kind:
                at += 8 if kind == 1 else 4
            case _:
                raise _malformed()


def _malformed() -> Refusal:
    return Refusal(400, "the message is not valid protobuf")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            raise _malformed()
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _malformed()


def numbers(value: int | bytes) -> list[int]:
    """Return one occurrence of a repeated number: a single one, or a packed list."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(number)
    return found


def varint(value: int) -> bytes:
    """Return the number as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(*fields: tuple[int, int | float | str | bytes | Sequence[int]]) -> bytes:
    """Return a message; defaults are left out, floats are doubles, sequences are packed numbers."""
    out = []
    for number, value in fields:
        if not value:
            continue
        if isinstance(value, int):
            out.append(varint(number << 3) + varint(value))
        elif isinstance(value, float):
            out.append(varint(number << 3 | 1) + struct.pack("<d", value))
        else:
            text = value.encode() if isinstance(value, str) else value
            body = text if isinstance(text, bytes) else b"".join(map(varint, text))
            out.append(varint(number << 3 | 2) + varint(len(body)) + body)
    return b"".join(out)
