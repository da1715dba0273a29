"""One client's connection without a socket: a question, then the bytes of its answer, in any cut and within limits.

One question at a time: who answers unasked, twice, too much or not in HTTP has a `fault`, and the connection is of no
more use. What may come before an answer (1xx) is dropped. A head is bounded by what is read of it, a body by what it
takes on the wire, chunks and all, so nothing grows that is not counted.

It never raises, and it knows no clock: shells (`client`, `pull`) decide how long to wait.
"""

import httptools

from pointsman.core.http.limits import AnswerLimits

_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})


class Exchange:
    """What has come of the question that was asked last."""

    __slots__ = (
        "_head_bytes", "_limits", "_most", "_parser", "_pieces", "_received", "_waits", "complete", "fault", "has_head",
        "headers", "held", "status", "stays",
    )  # fmt: skip

    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        self._most = limits.body_bytes + limits.head_bytes
        self._parser = httptools.HttpResponseParser(self)
        self._waits = False  # for the end of an answer
        self._received = 0  # since the question
        self._head_bytes = 0
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
        self._received = self._head_bytes = self.held = 0
        self._pieces = []
        self.headers = []
        self.has_head = self.complete = self.stays = False

    def receive(self, data: bytes) -> None:
        """Take bytes from the socket; look at `fault`, `has_head`, `held` and `complete` afterwards."""
        limits = self._limits
        self._received += len(data)
        if not self._waits:
            self.fault = self.fault or "it sent something that nobody asked for"
            return
        if self._received > self._most:
            self.fault = f"its answer is larger than {limits.body_bytes} bytes"
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.fault = self.fault or "its answer is not HTTP"
        if self.complete:
            self._waits = False
        elif self._head_bytes > limits.head_bytes or (not self.has_head and self._received > limits.head_bytes):
            self.fault = self.fault or f"the head of its answer is larger than {limits.head_bytes} bytes"

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
