"""What `--log-http` writes: every request with its headers and body, and every answer, cut at a limit.

A streamed answer is logged when it begins, without its body: that may be long, and the client has it anyway.
"""

import gzip
import io
import zlib
from collections.abc import Callable

from pointsman.core.http import Request, Response, Stream
from pointsman.core.lines import Bounded
from pointsman.core.logs import get_logger

MOST = 512 << 10  # bytes of a body
STREAMED = "<streamed response body not logged>"
_LOG = get_logger(__name__)


def log_request(request: Request) -> None:
    """Log what came in."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
    query = "?" + request.query.decode("latin-1") if request.query else ""
    encoding = headers.get("content-encoding", "")
    _LOG.info(
        "HTTP request",
        method=request.method,
        uri=Bounded(request.path + query),
        headers=headers,
        body=shown(request.body, encoding=encoding),
    )


def log_response(response: Response) -> None:
    """Log a whole answer."""
    _log_answer(response.status, response.headers, body=shown(response.body))


def _log_answer(status: int, headers: bytes, *, body: str) -> None:
    lines = (line.partition(": ") for line in headers.decode("latin-1").splitlines())
    _LOG.info("HTTP response", status=status, headers={name: value for name, _, value in lines}, body=body)


def shown(body: bytes, *, encoding: str = "") -> str:
    """Return a body as the log shows it: unpacked if it was packed, and not too long."""
    if encoding.lower() == "gzip":
        try:
            body = gzip.GzipFile(fileobj=io.BytesIO(body)).read(MOST + 1)
        except (OSError, EOFError, zlib.error):
            pass  # it says that it is packed and is not: shown as it came
    text = body[:MOST].decode("utf-8", "replace")
    return Bounded(text if len(body) <= MOST else f"{text} ... [truncated, total {len(body)} bytes]")


class Logged:
    """A request whose answer is logged; to whoever answers it, it looks like the request itself."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.headers = request.headers

    @property
    def on_disconnect(self) -> Callable[[], None] | None:
        return self._request.on_disconnect

    @on_disconnect.setter
    def on_disconnect(self, value: Callable[[], None] | None) -> None:
        self._request.on_disconnect = value

    @property
    def on_choke(self) -> Callable[[], None] | None:
        return self._request.on_choke

    @on_choke.setter
    def on_choke(self, value: Callable[[], None] | None) -> None:
        self._request.on_choke = value

    def respond(self, response: Response) -> None:
        """Log and send the whole answer."""
        log_response(response)
        self._request.respond(response)

    def stream(self, *, headers: bytes = b"") -> Stream:
        """Log and begin the answer."""
        _log_answer(200, headers, body=STREAMED)
        return self._request.stream(headers=headers)
