"""What a response cost, read from its `usage` as it passes: nothing is buffered but a line that is not complete.

A streamed response says it in one of its last events, a plain one near its end. Most chunks do not have the word in
them and cost one search. The last `usage` that is an object counts.
"""

import re
from typing import Any

import msgspec

from pointsman.core.numbers import is_count

_WORD = b'"usage"'
_VALUE = re.compile(rb'"usage"\s*:\s*')
_BRACES = re.compile(rb"[{}]")
_MOST_KEPT = 16 << 10  # it is searched again with every chunk, so its sender must not choose how much


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens in, tokens out, tokens that were cached."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0


class _Details(msgspec.Struct, gc=False):
    cached_tokens: Any = None


class _Raw(msgspec.Struct, gc=False):
    """`usage` of the completions, the Responses and the Messages API."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: Any = None


class UsageReader:
    """Reads one response."""

    __slots__ = ("_kept", "usage")

    def __init__(self) -> None:
        self._kept = b""  # from the last `usage` on, or an unfinished line
        self.usage: Usage | None = None

    def feed(self, chunk: bytes, *, end: bool = False) -> None:
        """Take the next part of the body."""
        data = self._kept + chunk if self._kept else chunk
        at = data.rfind(_WORD)
        if at >= 0:
            self._read(data[at:])
            keep = at if self.usage is None or not _complete(data, at) else data.rfind(b"\n") + 1
        else:
            keep = data.rfind(b"\n") + 1
            keep = max(keep, len(data) - len(_WORD)) if len(data) - keep > len(_WORD) else keep
        self._kept = b"" if end or len(data) - keep > _MOST_KEPT else data[keep:]

    def _read(self, data: bytes) -> None:
        found = _VALUE.match(data)
        if found is None:
            return
        text = _object(data, found.end())
        if text is None:
            return
        try:
            raw = msgspec.json.decode(text, type=_Raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        details = raw.prompt_tokens_details or raw.input_tokens_details
        cached = details.cached_tokens if details else raw.cache_read_input_tokens
        self.usage = Usage(
            prompt=_int(raw.prompt_tokens, raw.input_tokens),
            completion=_int(raw.completion_tokens, raw.output_tokens),
            cached=_int(cached),
        )


def _complete(data: bytes, at: int) -> bool:
    found = _VALUE.match(data, at)
    return found is not None and _object(data, found.end()) is not None


def _object(data: bytes, at: int) -> bytes | None:
    """Return the object that begins here, when all of it is there. `usage` holds numbers only, so braces count."""
    if at >= len(data) or data[at] != 0x7B:
        return None
    depth = 0
    for brace in _BRACES.finditer(data, at, at + _MOST_KEPT):
        depth += 1 if brace[0] == b"{" else -1
        if depth == 0:
            return data[at : brace.end()]
    return None


def _int(*values: Any) -> int:
    return next((value for value in values if is_count(value)), 0)
