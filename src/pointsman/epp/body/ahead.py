"""A prompt hashed while its body still arrives, so that little is left to do when the last chunk is here.

What it reads is a guess: the texts of a body are taken in the order in which they come, without parsing what is around
them. Whoever has read the whole body compares the guess with the prompt (by a hash, so that texts need not be kept
twice), and only what agrees is used, so the result is the same as without, whatever the body was. The guess is right
for the usual bodies, and wrong (and of no use) where something that comes late belongs to the front: tools after
messages, or a content before its role. A chain begins with the model, so where the prompt comes before its name
nothing is guessed: half of the work would be left for the end, and the guess costs as much as it spares.

Texts are found by their keys: `"content":"` with bare quotes cannot stand inside a JSON string, so a search of the
bytes does not go astray. A chunk may end anywhere, also within an escape; what is not complete waits for the next.
"""

import re
from collections.abc import Callable

import msgspec
from xxhash import xxh64, xxh64_intdigest

from pointsman.epp.body.prompts import TOKEN_BYTES, BlockHasher, seed

# Named are the texts of all APIs, and what the chain begins with.
_KEY = re.compile(rb'"(model|prompt|role|content|text|input|instructions|system)"[ \t\r\n]*:[ \t\r\n]*"')
_LONGEST_KEY = 40  # with some white space
_HIGH_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
_decode = msgspec.json.Decoder(str).decode


class Ahead:
    """The prompt of one body, as far as it is here."""

    __slots__ = (
        "_block_tokens", "_gave_up", "_hasher", "_key", "_limit", "_rest", "_seen", "_size",
        "_target_of", "_value",
    )  # fmt: skip

    def __init__(
        self, *, block_tokens: int, max_blocks: int, target_of: Callable[[str], str] = lambda model: model
    ) -> None:
        self._target_of = target_of  # the model that serves requests for one
        self._block_tokens = block_tokens
        self._hasher: BlockHasher | None = None  # once the model is known
        self._limit = block_tokens * max_blocks * TOKEN_BYTES  # of bytes worth hashing; 0 for all
        self._gave_up = False
        self._key = b""  # of the text that is being read; none between texts
        self._value: list[bytes] = []  # a model's name
        self._rest = b""  # bytes that mean nothing yet
        self._seen = xxh64()  # the texts, in so far as they must be known again
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next part of the body."""
        if self._gave_up or (self._limit and self._size >= self._limit):
            return
        data = self._rest + chunk if self._rest else chunk
        self._rest = b""
        at: int | None = 0
        while at is not None:
            at = self._read_text(data, at) if self._key else self._find_text(data, at)

    def agrees(self, text: bytes) -> BlockHasher | None:
        """Return what was hashed, when something was and it is the beginning of the prompt."""
        same = len(text) >= self._size and xxh64_intdigest(memoryview(text)[: self._size]) == self._seen.intdigest()
        return self._hasher if same else None

    def _find_text(self, data: bytes, at: int) -> int | None:
        found = _KEY.search(data, at)
        if found is None:
            self._rest = data[max(at, len(data) - _LONGEST_KEY) :]
            return None
        self._key = found[1]
        return found.end()

    def _read_text(self, data: bytes, at: int) -> int | None:
        stop = closing_quote(data, at)
        raw = data[at:] if stop < 0 else data[at:stop]
        whole = len(raw) if stop >= 0 else _complete(raw)
        try:
            self._add(_unescaped(raw[:whole]))
        except (msgspec.DecodeError, UnicodeError):
            self._gave_up = True  # not JSON, or not ours: nothing more is guessed
            return None
        if stop < 0 or self._gave_up:
            self._rest = raw[whole:]
            return None
        if self._key == b"model" and not self._size:
            target = self._target_of(b"".join(self._value).decode("utf-8", "replace"))
            self._hasher = BlockHasher(seed(target.encode()), block_tokens=self._block_tokens)
        self._key = b""
        return stop + 1

    def _add(self, text: bytes) -> None:
        if self._key == b"model":
            self._value.append(text)
        elif self._hasher is None:
            self._gave_up = True
        elif text:
            self._seen.update(text)
            self._size += len(text)
            self._hasher.feed(text)


def closing_quote(data: bytes, at: int) -> int:
    """Return where the string that we are in ends; -1 when it does not end here."""
    stop = data.find(b'"', at)
    while stop > at and data[stop - 1] == 0x5C:
        before = stop - 1
        while before > at and data[before - 1] == 0x5C:
            before -= 1
        if (stop - before) % 2 == 0:
            break
        stop = data.find(b'"', stop + 1)
    return stop


def _last_escape(raw: bytes) -> tuple[int, int]:
    """Return where the last escape of a string begins and where it ends, which may be beyond what is here."""
    last = raw.rfind(b"\\")
    if last < 0:
        return 0, 0
    if (last + 1 - len(raw[: last + 1].rstrip(b"\\"))) % 2 == 0:
        return last - 1, last + 1  # a backslash that is itself escaped
    return last, last + (6 if raw[last + 1 : last + 2] == b"u" else 2)


def _complete(raw: bytes) -> int:
    """Return how much of a string's beginning can be read: all but an escape that may go on."""
    start, stop = _last_escape(raw)
    if stop > len(raw) or (stop == len(raw) and _HIGH_HALF.match(raw, start)):
        return start
    return len(raw)


def _unescaped(raw: bytes) -> bytes:
    """Return a string's bytes; behind the last escape they are what they are, even half a character."""
    _, stop = _last_escape(raw)
    return _decode(b'"%b"' % raw[:stop]).encode() + raw[stop:] if stop else raw
