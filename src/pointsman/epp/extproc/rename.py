"""A model's name, changed on the way in and changed back on the way out, and not one byte besides.

On the way in the body is whole, so the value is spliced (`jsonscan.splice_member`). On the way out it comes in chunks
that end anywhere. `"model": "…"` with bare quotes cannot stand inside a JSON string (its quotes would be escaped), so a
search of the bytes is exact; what could be the beginning of a match at a chunk's end is held back until the next.
"""

import json
import re

from pointsman.epp.body.jsonscan import json_string

_MOST_HELD = 4096  # a name, and more space around it than anyone writes


class ResponseRenamer:
    """Puts the client's own name for the model back into a response."""

    __slots__ = ("_match", "_new", "_pattern", "_rest")

    def __init__(self, *, served: str, asked: str) -> None:
        spellings = {json_string(served), json.dumps(served).encode(), json_string(served).replace(b"/", b"\\/")}
        names = b"|".join(re.escape(each) for each in sorted(spellings))
        self._pattern = re.compile(rb'("model"\s*:\s*)(?:' + names + rb")")
        self._new = json_string(asked)
        self._match = _Prefix([b'"model"', b":", *sorted(spellings)])
        self._rest = b""

    def feed(self, chunk: bytes, *, end: bool) -> bytes:
        """Return what can be passed on now; all of it at the end."""
        data = self._rest + chunk if self._rest else chunk
        data = self._pattern.sub(self._replace, data)
        keep = 0 if end else self._match.tail(data)
        self._rest = data[len(data) - keep :] if keep else b""
        return data[: len(data) - keep] if keep else data

    def _replace(self, match: "re.Match[bytes]") -> bytes:
        return match[1] + self._new


class _Prefix:
    """Finds how much of the end of some bytes could be the beginning of a match."""

    __slots__ = ("_colon", "_key", "_names")

    def __init__(self, parts: list[bytes]) -> None:
        self._key, self._colon, *self._names = parts

    def tail(self, data: bytes) -> int:
        """Return the length of the longest end of the data that is a beginning of `"model" : "name"`."""
        start = data.rfind(self._key)
        if start >= 0 and len(data) - start < _MOST_HELD and self._begins(data[start + len(self._key) :]):
            return len(data) - start
        for size in range(min(len(self._key) - 1, len(data)), 0, -1):
            if data.endswith(self._key[:size]):
                return size
        return 0

    def _begins(self, rest: bytes) -> bool:
        """Return whether what follows the key can still become a match."""
        rest = rest.lstrip()
        if not rest:
            return True
        if not rest.startswith(self._colon):
            return False
        rest = rest[1:].lstrip()
        return any(name.startswith(rest) and name != rest for name in self._names)
