"""The bytes of HTTP/1.1 messages: heads, chunks, dates, targets. Pure, and made ready where they repeat."""

from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_REMEMBERED = 512  # bytes of a head or target that is worth a place in a cache
_LENGTH_DIGITS = 19
_SIZES = [b"%x\r\n" % size for size in range(2048)]  # of chunks; most are this small


class Response(NamedTuple):
    """A whole answer. `headers` are finished lines, made by `header_lines`."""

    status: int = 200
    body: bytes = b""
    content_type: bytes = b"application/json"
    headers: bytes = b""


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Return the fields as lines, ready for `Response.headers`.

    Raises ValueError when a value would break out of its line.
    """
    for name, value in headers.items():
        if any(c in "\r\n\0" for c in name + value):
            raise ValueError(f"header {name!r} holds a line break")
    return b"".join(f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in headers.items())


def request(
    method: str, target: str, *, host: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> bytes:
    """Return a whole request, ready to be sent as often as one likes.

    Raises ValueError when a field would break out of its line.
    """
    fields = {"host": host} | dict(headers or {}) | ({} if body is None else {"content-length": str(len(body))})
    return f"{method} {target} HTTP/1.1\r\n".encode() + header_lines(fields) + b"\r\n" + (body or b"")


def plain_fault(status: int, message: str) -> Response:
    """Return the default answer to a request that broke the protocol."""
    return Response(status, f"{message}\n".encode(), b"text/plain; charset=utf-8")


def chunk(data: bytes) -> bytes:
    """Return a piece of a body as a chunk."""
    size = len(data)
    return b"".join((_SIZES[size] if size < 2048 else b"%x\r\n" % size, data, b"\r\n"))


def head(status: int, content_type: bytes, headers: bytes) -> bytes:
    """Return a head up to the fields that differ from answer to answer."""
    return (_known_head if len(headers) <= _REMEMBERED else _make_head)(status, content_type, headers)


def _make_head(status: int, content_type: bytes, headers: bytes) -> bytes:
    line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status
    kind = b"content-type: %b\r\n" % content_type if content_type else b""
    return line + kind + headers


def split_target(target: bytes) -> tuple[str, bytes]:
    """Return path and query of a request's target."""
    return (_known_target if len(target) <= _REMEMBERED else _split_target)(target)


def _split_target(target: bytes) -> tuple[str, bytes]:
    if not target.startswith(b"/"):  # absolute-form, as proxies send it
        _, _, rest = target.partition(b"://")
        target = b"/" + rest.partition(b"/")[2] if rest else target
    path, _, query = target.partition(b"?")
    if b"%" in path:
        path = unquote_to_bytes(path)
    return path.decode("utf-8", "replace"), query


_known_head = lru_cache(maxsize=1024)(_make_head)  # a server has few kinds of heads, and writes them often
_known_target = lru_cache(maxsize=1024)(_split_target)


def content_length(value: bytes) -> int:
    """Return what a content-length says; -1 when it is none that anybody could mean.

    At most 19 digits: Python refuses to read a number of thousands.
    """
    return int(value) if len(value) <= _LENGTH_DIGITS and value.isdigit() else -1


def date_line() -> bytes:
    """Return the date field for this second."""
    return f"date: {formatdate(usegmt=True)}\r\n".encode()
