"""One client's connection without a socket: a question, then the bytes of its answer, in any cut and within limits.

One question at a time: who answers unasked, twice, too much or not in HTTP has a `fault`, and the connection is of no
more use. What may come before an answer (1xx) is dropped. A head is bounded by what is read of it, a body by what it
takes on the wire, chunks and all, so nothing grows that is not counted.

A head that was parsed before, to the byte, is not parsed again: a server that is asked twenty times a second has few
kinds of them, and most of an answer's cost is its head. Then the body is counted, which is all that is left to do.

It never raises, and it knows no clock: shells (`client`, `pull`) decide how long to wait.
"""

from typing import NamedTuple

import httptools

from pointsman.core.http.limits import AnswerLimits

_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})
_HEAD_END = b"\r\n\r\n"
_MOST_KNOWN, _KNOWN_BYTES = 512, 512  # heads that are remembered, and how long one may be


class _Head(NamedTuple):
    """A head after which a body of so many bytes and then another answer follow."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    length: int


_known: dict[bytes, _Head] = {}  # by everything up to the body; which server sent it does not matter


class Exchange:
    """What has come of the question that was asked last."""

    __slots__ = (
        "_head_bytes", "_limits", "_missing", "_most", "_parser", "_pieces", "_received", "_waits", "complete", "fault",
        "has_head", "headers", "held", "status", "stays",
    )  # fmt: skip

    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        self._most = limits.body_bytes + limits.head_bytes
        self._parser = httptools.HttpResponseParser(self)
        self._waits = False  # for the end of an answer
        self._received = 0  # since the question
        self._head_bytes = 0
        self._missing = 0  # of the body, where the parser does not see it
        self._pieces: list[bytes] = []
        self.held = 0  # bytes of the body that nobody has taken
        self.headers: list[tuple[bytes, bytes]] = []
        self.has_head = False
        self.status = 0  # from the head on
        self.complete = False
        self.stays = False  # whether the server takes another question; known when the answer is complete
        self.fault = ""

    def ask(self) -> None:
        """Note that a question is sent; the one before must be answered."""
        assert not self._waits
        self._waits = True
        self._received = self._head_bytes = self._missing = self.held = 0
        self._pieces = []
        self.headers = []
        self.has_head = self.complete = self.stays = False

    def receive(self, data: bytes) -> None:
        """Take bytes from the socket; look at `fault`, `has_head`, `held` and `complete` afterwards."""
        limits, first = self._limits, not self._received
        self._received += len(data)
        if not self._waits:
            self.fault = self.fault or "it sent something that nobody asked for"
            return
        if self._received > self._most:
            self.fault = f"its answer is larger than {limits.body_bytes} bytes"
            return
        rest = self._count(data) if self._missing else self._recognize(data) if first else data
        if rest:
            self._parse(rest)
            if first and self.complete:
                self._remember(data)
        if self.complete:
            self._waits = False
        elif self._head_bytes > limits.head_bytes or (not self.has_head and self._received > limits.head_bytes):
            self.fault = self.fault or f"the head of its answer is larger than {limits.head_bytes} bytes"

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.fault = self.fault or "its answer is not HTTP"

    def _recognize(self, data: bytes) -> bytes:
        """Take an answer whose head is known; return what is left to parse."""
        end = data.find(_HEAD_END, 0, _KNOWN_BYTES) + 4
        head = _known.get(data[:end])  # of an end that is not there, three bytes that nobody knows
        if head is None:
            return data
        self.status, headers, self._missing = head
        self.headers = list(headers)
        self.has_head = self.stays = True
        return self._count(data[end:])

    def _count(self, data: bytes) -> bytes:
        """Take what belongs to the body; return the rest."""
        missing = self._missing
        body, rest = (data, b"") if len(data) <= missing else (data[:missing], data[missing:])
        if body:
            self._pieces.append(body)
            self.held += len(body)
        self._missing = missing - len(body)
        self.complete = not self._missing
        return rest

    def _remember(self, data: bytes) -> None:
        """Keep the head of an answer that came at once, if it is followed by its body and nothing else."""
        end = data.find(_HEAD_END, 0, _KNOWN_BYTES) + 4
        if end >= 4 and self.stays and not self.fault and len(data) - end == self.held:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[data[:end]] = _Head(self.status, tuple(self.headers), self.held)

    def take(self) -> bytes:
        """Return what has come of the body since this was last asked."""
        pieces, self._pieces = self._pieces, []
        self.held = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def ended(self) -> bool:
        """Note the end of the connection; return whether that was the proper end of an answer, which said no other."""
        if self._waits and self.has_head and not self.fault and not self._is_delimited():
            self.complete = True
            self._waits = False
            return True
        return False

    def _is_delimited(self) -> bool:
        return any(name.lower() in _LENGTHS for name, _ in self.headers)

    # -- the parser's side --------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field, also of what follows a body."""
        self._head_bytes += len(name) + len(value)
        if not self.complete:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Note the head; one of a 1xx is not the answer's yet."""
        if self.complete:
            self.fault = "it answered more than once"
            return
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self.has_head = True
        else:
            self.headers = []

    def on_body(self, body: bytes) -> None:
        """Keep a piece."""
        if not self.complete:
            self._pieces.append(body)
            self.held += len(body)

    def on_message_complete(self) -> None:
        """Note the end, and whether there can be another answer (the parser knows only now)."""
        if self.has_head and not self.complete:
            self.complete = True
            self.stays = self._parser.should_keep_alive()
