"""A client's side of one HTTP/2 connection, for tests: builds frames, reads the answers, has no socket."""

from collections.abc import Iterator
from dataclasses import dataclass

from hpack import Decoder, Encoder
from tests.clock import Clock

from pointsman.core.budget import Budget
from pointsman.wire.connection import Connection
from pointsman.wire.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    HEADER,
    PREFACE,
    Code,
    FrameKind,
    frame,
    settings,
)
from pointsman.wire.headers import HeaderBlock
from pointsman.wire.limits import Limits
from pointsman.wire.outbox import Handler, Stream

GRPC_HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/envoy.service.ext_proc.v3.ExternalProcessor/Process"),
    (":authority", "epp"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> Code:
        """The error code of RST_STREAM or GOAWAY."""
        at = 4 if self.kind == FrameKind.GOAWAY else 0
        return Code(int.from_bytes(self.payload[at : at + 4], "big"))


def split(data: bytes) -> Iterator[Frame]:
    """Yield the frames in a server's output."""
    at = 0
    while at < len(data):
        high, low, kind, flags, stream = HEADER.unpack_from(data, at)
        stop = at + 9 + (high << 16 | low)
        assert stop <= len(data), "the server wrote a truncated frame"
        yield Frame(kind, flags, stream, data[at + 9 : stop])
        at = stop


class Recorder:
    """A handler that keeps what it gets."""

    def __init__(self, connection: Connection, stream: Stream, headers: HeaderBlock) -> None:
        self.connection = connection
        self.stream = stream
        self.headers = headers
        self.received: list[tuple[bytes, bool]] = []
        self.closings = 0

    def data(self, payload: bytes, *, end: bool) -> None:
        self.received.append((payload, end))

    def closed(self) -> None:
        self.closings += 1


class Client:
    """Talks to one `Connection`."""

    def __init__(self, *, limits: Limits | None = None, greet: bool = True, budget: Budget | None = None) -> None:
        self.clock = Clock()
        self.hits: list[str] = []
        self.budget = budget or Budget()
        self.handlers: list[Recorder] = []
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.connection = Connection(
            accept=self._accept,
            limits=limits or Limits(),
            clock=self.clock,
            budget=self.budget,
            on_limit=self.hits.append,
        )
        self.greeting = list(split(self.connection.out.take()))
        if greet:
            self.send(PREFACE + settings({}))
            self.send(frame(FrameKind.SETTINGS, ACK, 0))

    def _accept(self, connection: Connection, stream: Stream, headers: HeaderBlock) -> Handler:
        handler = Recorder(connection, stream, headers)
        self.handlers.append(handler)
        return handler

    def send(self, data: bytes) -> list[Frame]:
        """Send bytes and return the frames that come back."""
        answer = self.connection.receive(data)
        while self.connection.backlog:
            answer += self.connection.proceed()
        return list(split(answer))

    def headers(
        self, stream: int, fields: list[tuple[str, str]] | None = None, *, end: bool = False, flags: int = END_HEADERS
    ) -> bytes:
        """Return a HEADERS frame."""
        block = self.encoder.encode(fields if fields is not None else GRPC_HEADERS, huffman=True)
        return frame(FrameKind.HEADERS, flags | (END_STREAM if end else 0), stream, block)

    def decode(self, each: Frame) -> dict[str, str]:
        """Return the headers in a HEADERS frame."""
        return {str(name, "ascii"): str(value, "ascii") for name, value in self.decoder.decode(each.payload, raw=True)}

    def open(self, stream: int, *, end: bool = False) -> Recorder:
        """Open a stream and return its handler."""
        assert not [
            f for f in self.send(self.headers(stream, end=end)) if f.kind in {FrameKind.RST_STREAM, FrameKind.GOAWAY}
        ]
        return self.handlers[-1]


def data_frame(stream: int, payload: bytes, *, end: bool = False) -> bytes:
    """Return a DATA frame."""
    return frame(FrameKind.DATA, END_STREAM if end else 0, stream, payload)
