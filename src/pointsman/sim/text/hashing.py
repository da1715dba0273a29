"""Block hashes as llm-d's router derives them: FNV-1a-64 over canonical CBOR of [parent, tokens, extra].

The chain starts from the hash seed and the model name, so blocks of different models (or adapters) never meet.
Values must stay equal to the Go library's: a picker that hears our events compares them with its own. Blocks that
were hashed before are remembered by (parent, tokens), because prompts share prefixes.
"""

from collections.abc import Sequence
from functools import lru_cache

_PRIME = 0x100000001B3
_OFFSET = 0xCBF29CE484222325
_MASK = (1 << 64) - 1


def fnv1a64(data: bytes) -> int:
    """Return FNV-1a over the bytes, 64 bits wide."""
    value = _OFFSET
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


def cbor_uint(value: int, *, major: int = 0) -> bytes:
    """Return the shortest CBOR head for the number (major 0), or for a length (2 bytes, 3 text, 4 array)."""
    first = major << 5
    if value < 24:
        return bytes((first | value,))
    for extra, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if value < 1 << (8 * size):
            return bytes((first | extra,)) + value.to_bytes(size, "big")
    raise ValueError(f"{value} does not fit CBOR's 64 bits")


def root(model: str, *, seed: str = "") -> int:
    """Return the parent of a first block."""
    name = model.encode("utf-8", "replace")
    head = b"\x83" + cbor_uint(fnv1a64(seed.encode())) + b"\xf6" + cbor_uint(len(name), major=3)
    return fnv1a64(head + name)


@lru_cache(maxsize=65536)
def child(parent: int, tokens: tuple[int, ...]) -> int:
    """Return the hash of the block with these tokens behind its parent."""
    body = cbor_uint(len(tokens), major=4) + b"".join(map(cbor_uint, tokens))
    return fnv1a64(b"\x83" + cbor_uint(parent) + body + b"\xf6")


def chain(tokens: Sequence[int], *, start: int, block_size: int) -> list[int]:
    """Return the hashes of all full blocks, in order."""
    hashes = []
    for at in range(0, len(tokens) - block_size + 1, block_size):
        start = child(start, tuple(tokens[at : at + block_size]))
        hashes.append(start)
    return hashes
