"""Members of a JSON object that is still arriving: found as soon as they are complete, wherever a chunk ends.

Only the outermost object is looked at. What is within values is stepped over by quotes and brackets, at the speed of a
search; nothing of it is kept. Whether the whole is JSON shows at its end, and is for whoever reads it then.
"""

import re
from functools import lru_cache

import msgspec

from pointsman.epp.body.ahead import closing_quote

_EVENT = re.compile(rb'["{}\[\],:]')
_LONGEST = 4096  # of a name or value that is looked for
_WHOLE = msgspec.json.Decoder(dict[str, msgspec.Raw])


@lru_cache(maxsize=16)
def _first_member(name: bytes) -> "re.Pattern[bytes]":
    return re.compile(rb'\s*\{\s*"' + re.escape(name) + rb'"\s*:\s*("[^"\\]{0,256}")\s*[,}]')


class MemberScanner:
    """Looks for members by name; of one that comes twice the first is taken."""

    __slots__ = (
        *("_depth", "_key", "_long", "_rest", "_start", "_string", "_taken", "_text", "_value", "_wanted"),
        *("found", "spans"),
    )

    def __init__(self, wanted: frozenset[str]) -> None:
        self._wanted = {name.encode() for name in wanted}
        self._depth = 0
        self._string = False  # whether we are within one
        self._value = False  # whether a value is next, or under way, at the top
        self._key = b""
        self._text: list[bytes] | None = None  # of the name or value that is being read
        self._long = 0  # how much of it there is
        self._rest = b""  # a backslash at the end of a chunk, whose other half is not here
        self._taken = 0  # how many bytes came before those at hand
        self._start = 0  # where the value begins
        self.found: dict[str, bytes] = {}  # as JSON
        self.spans: dict[str, tuple[int, int]] = {}  # from where to where in the body, where that is known

    @property
    def complete(self) -> bool:
        """Whether all are found."""
        return len(self.found) == len(self._wanted)

    def feed(self, chunk: bytes) -> None:
        """Take the next part of the body."""
        if not self._taken and not self._rest and (self._at_the_front(chunk) or self._in_the_whole(chunk)):
            return
        data, at = self._rest + chunk if self._rest else chunk, 0
        self._rest = b""
        while at < len(data) and not self.complete:
            at = self._in_string(data, at) if self._string else self._between(data, at)
        self._taken += len(data) - len(self._rest)

    def _at_the_front(self, chunk: bytes) -> bool:
        """Take a short text that is the first member, as most clients write it; anything else is looked at properly."""
        if len(self._wanted) != 1:
            return False
        (name,) = self._wanted
        match = _first_member(name).match(chunk)
        if match is None:
            return False
        self.found[name.decode()], self.spans[name.decode()] = match[1], match.span(1)
        return True

    def _in_the_whole(self, chunk: bytes) -> bool:
        """Take all from a body that came in one piece, which a parser reads quicker; it does not say where they are."""
        if not chunk.endswith(b"}"):
            return False
        try:
            members = _WHOLE.decode(chunk)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        names = [name.decode() for name in self._wanted]
        if not all(name in members and len(members[name]) <= _LONGEST for name in names):
            return False
        self.found = {name: bytes(members[name]) for name in names}
        return True

    def _in_string(self, data: bytes, at: int) -> int:
        stop = closing_quote(data, at)
        if stop >= 0:
            self._add(data[at : stop + 1])
            self._string = False
            if self._depth == 1 and not self._value:
                self._key, self._text = b"".join(self._text or ())[1:-1], None
            return stop + 1
        end = len(data)
        if (end - len(data[at:].rstrip(b"\\")) - at) % 2:
            end -= 1
            self._rest = b"\\"
        self._add(data[at:end])
        return len(data)

    def _between(self, data: bytes, at: int) -> int:
        event = _EVENT.search(data, at)
        if event is None:
            self._add(data[at:])
            return len(data)
        sign, here = event[0], event.start()
        if sign == b'"':
            if self._depth == 1 and not self._value:
                self._begin()
                at = here  # a name is what is between its quotes
            self._add(data[at : here + 1])
            self._string = True
        elif sign in b"{[":
            self._add(data[at : here + 1])
            self._depth += 1
        elif sign in b"}]":
            if self._depth > 1:
                self._add(data[at : here + 1])
            else:
                self._add(data[at:here])
                self._ended()
            self._depth -= 1
        elif self._depth != 1:
            self._add(data[at : here + 1])
        elif sign == b":":
            self._value, self._start = True, self._taken + here + 1
            if self._key in self._wanted and self._key.decode("utf-8", "replace") not in self.found:
                self._begin()
        else:
            self._add(data[at:here])
            self._ended()
        return here + 1

    def _begin(self) -> None:
        self._text, self._long = [], 0

    def _add(self, piece: bytes) -> None:
        if self._text is not None:
            self._long += len(piece)
            if self._long > _LONGEST:
                self._text = None
            else:
                self._text.append(piece)

    def _ended(self) -> None:
        """Take the value that ends here."""
        if self._value and self._text is not None:
            name, text = self._key.decode("utf-8", "replace"), b"".join(self._text)
            self.found[name] = value = text.strip()
            start = self._start + len(text) - len(text.lstrip())
            self.spans[name] = start, start + len(value)
        self._value, self._key, self._text = False, b"", None
