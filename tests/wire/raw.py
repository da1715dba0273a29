"""An attacker's side of HTTP/2: prepared bytes, sent from a thread so that the bystander's loop stays free."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from functools import cache

from hpack import Encoder

from pointsman.wire.frames import END_HEADERS, PREFACE, FrameKind, Setting, frame, settings, window_update
from pointsman.wire.protobuf import encode_field

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
CHECK = "/grpc.health.v1.Health/Check"
WIDE = PREFACE + settings({Setting.INITIAL_WINDOW_SIZE: 2**31 - 1}) + window_update(0, 2**31 - 1 - 65_535)


@cache
def block(path: str = PROCESS, *, encoding: str = "") -> bytes:
    """Return a header block that needs no table."""
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *([("grpc-encoding", encoding)] if encoding else []),
    ]
    encoder = Encoder()
    encoder.header_table_size = 0
    return encoder.encode(fields)


def headers(stream: int, *, path: str = PROCESS, encoding: str = "") -> bytes:
    return frame(FrameKind.HEADERS, END_HEADERS, stream, block(path, encoding=encoding))


def message(content: bytes, *, packed: bool = False) -> bytes:
    """Return a gRPC message."""
    return bytes([packed]) + len(content).to_bytes(4, "big") + content


def data(stream: int, content: bytes, *, packed: bool = False) -> bytes:
    """Return a gRPC message as DATA frames; one that is packed is compressed as the stream's headers say."""
    raw = message(content, packed=packed)
    return b"".join(frame(FrameKind.DATA, 0, stream, raw[at : at + 16_384]) for at in range(0, len(raw), 16_384))


def request_headers(path: bytes = b"/v1/completions") -> bytes:
    """Return a ProcessingRequest with the headers of a request that has a body."""
    row = encode_field(1, encode_field(1, b":path") + encode_field(3, path))
    return encode_field(2, encode_field(1, row))


def request_body(content: bytes) -> bytes:
    """Return a ProcessingRequest with a part of the body that is not the last."""
    return encode_field(4, encode_field(1, content))


class Attacker:
    """One connection. Reads and drops what comes unless told not to."""

    def __init__(self, port: int, *, hello: bytes = PREFACE + settings({}), reads: bool = True) -> None:
        self.seen = b""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.sendall(hello)
        if reads:
            threading.Thread(target=self._read, daemon=True).start()

    def send(self, pieces: Iterable[bytes]) -> None:
        """Send until done, or cut off."""
        with contextlib.suppress(OSError):
            for piece in pieces:
                self.socket.sendall(piece)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # a thread that reads would keep it open
        self.socket.close()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while part := self.socket.recv(1 << 16):
                self.seen = (self.seen + part)[-(1 << 16) :]


async def aside(attack: Callable[[], None]) -> None:
    """Run an attack in a thread."""
    await asyncio.to_thread(attack)


async def newcomer(port: int, *, tls: ssl.SSLContext | None = None) -> None:
    """Connect, check the health, and leave."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(PREFACE + settings({}) + headers(1, path=CHECK) + frame(FrameKind.DATA, 1, 1, b"\0\0\0\0\0"))
    seen = b""
    while b"grpc-status" not in seen:
        part = await reader.read(65_536)
        assert part, "turned away"
        seen += part
    writer.close()
