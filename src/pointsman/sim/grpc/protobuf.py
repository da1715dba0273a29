"""vLLM's gRPC messages as fields. What is not a message is a `Refusal` 400."""

import struct
from collections.abc import Iterator, Sequence

from pointsman.sim.failures import Refusal
from pointsman.wire.protobuf import Malformed, fields, read_varint, varint

Field = tuple[int, int | bytes]
"""A field's number, and its value: a number for varints, bytes for what has a length."""


def decode(data: bytes) -> Iterator[Field]:
    """Yield every field but those of fixed width, which none of our messages reads.

    Raises Refusal 400 when the bytes are not a message.
    """
    try:
        for number, wire, start, stop in fields(data, 0, len(data)):
            if wire == 0:
                yield number, read_varint(data, start)[0]
            elif wire == 2:
                yield number, data[start:stop]
    except Malformed:
        raise Refusal(400, "the message is not valid protobuf") from None


def numbers(value: int | bytes) -> list[int]:
    """Return one occurrence of a repeated number: a single one, or a packed list."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    try:
        while at < len(value):
            number, at = read_varint(value, at)
            found.append(number)
    except Malformed:
        raise Refusal(400, "the message is not valid protobuf") from None
    return found


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
