"""Bytes to requests, within limits: what comes in, and nothing of how it is answered. No socket, no clock.

httptools parses; this bounds what it makes of the bytes while they come, so that nothing grows first and is measured
afterwards. The first fault is the last thing that is read.
"""

from collections.abc import Callable
from typing import Any

import httptools

from pointsman.core.http.limits import Limits
from pointsman.core.http.messages import content_length, split_target
from pointsman.core.http.requests import Request

# What a header costs beside its own bytes, and its repetition: twenty thousand of three letters are megabytes.
_HEADER_BYTES, _AGAIN_BYTES = 64, 8


class Intake:
    """What one peer sends. `begin`, `invite` and `complete` are called as the bytes of a request say so."""

    __slots__ = (
        "_begin", "_body", "_complete", "_head_bytes", "_invite", "_limits", "_parser", "_repeated",
        "_url", "body_bytes", "fault", "incoming", "upgrade",
    )  # fmt: skip

    def __init__(
        self,
        *,
        limits: Limits,
        begin: Callable[[], Request],
        invite: Callable[[], None],
        complete: Callable[[Request], None],
    ) -> None:
        self._limits = limits
        self._begin = begin
        self._invite = invite
        self._complete = complete
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._repeated: dict[bytes, list[bytes]] = {}
        self.incoming: Request | None = None  # of which there is a part
        self.body_bytes = 0  # of its body
        self.fault: tuple[int, str] | None = None
        self.upgrade = False  # to a protocol that we do not switch to: what follows is not HTTP

    def feed(self, data: bytes) -> None:
        """Take bytes; look at `fault` and `upgrade` afterwards."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.upgrade = True
        except httptools.HttpParserError:
            self.fault = self.fault or (400, "this is not HTTP/1.1")

    def drop(self) -> Request | None:
        """Forget the request of which there is a part, and return it."""
        request, self.incoming = self.incoming, None
        self._body = []
        return request

    def _fail(self, status: int, message: str) -> None:
        """Refuse, and stop the parser."""
        self.fault = (status, message)
        raise httptools.HttpParserError(message)

    def _head_too_large(self) -> None:
        self._fail(431, f"the request's head is larger than {self._limits.head_bytes} bytes")

    def _body_too_large(self) -> None:
        self._fail(413, f"the body is larger than {self._limits.body_bytes} bytes")

    # httptools

    def on_message_begin(self) -> None:
        self.incoming = self._begin()
        self._url = b""
        self._head_bytes = self.body_bytes = 0
        self._body = []
        self._repeated = {}

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_bytes += len(url)
        if self._head_bytes > self._limits.head_bytes:
            self._head_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self.incoming
        assert request is not None
        name = name.lower()
        fresh = name not in request.headers
        self._head_bytes += len(name) + len(value) + (_HEADER_BYTES if fresh else _AGAIN_BYTES)
        if self._head_bytes > self._limits.head_bytes:
            self._head_too_large()
        if fresh:
            request.headers[name] = value
        else:
            self._repeated.setdefault(name, [request.headers[name]]).append(value)

    def on_headers_complete(self) -> None:
        request = self.incoming
        assert request is not None
        for name, values in self._repeated.items():
            request.headers[name] = b", ".join(values)
        parser = self._parser
        request.method = parser.get_method().decode("ascii")
        request.version = parser.get_http_version()
        request.keep_alive = parser.should_keep_alive()
        request.path, request.query = split_target(self._url)
        if request.version not in {"1.0", "1.1"}:
            self._fail(505, "we speak HTTP/1.1")
        elif not 0 <= content_length(request.headers.get(b"content-length", b"0")) <= self._limits.body_bytes:
            self._body_too_large()
        elif b"expect" in request.headers:
            self._expect(request.headers[b"expect"])

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        if self.body_bytes > self._limits.body_bytes:
            self._body_too_large()
        self._body.append(body)

    def on_message_complete(self) -> None:
        request, self.incoming = self.incoming, None
        assert request is not None
        request.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        self._complete(request)

    def _expect(self, value: bytes) -> None:
        if value.lower() != b"100-continue":
            self._fail(417, "the only expectation that we meet is 100-continue")
        self._invite()
