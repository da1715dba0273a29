"""gRPC over one HTTP/2 stream: five-byte prefixes in, messages to a `Call`, replies and a status out.

Owns message framing, compression, status trailers and routing by path. A call is synchronous: `message` returns its
replies, and small replies to one message leave in one DATA frame. A call that raises costs itself INTERNAL, never the
connection. Header blocks are literals, built once.
"""

import enum
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pointsman.core.budget import Exhausted
from pointsman.core.logs import get_logger
from pointsman.wire.connection import Connection
from pointsman.wire.frames import WireFault
from pointsman.wire.headers import HeaderBlock
from pointsman.wire.limits import Limits
from pointsman.wire.outbox import NOBODY, Handler, Stream
from pointsman.wire.protobuf import Data, Malformed

log = get_logger(__name__)

_PREFIX = struct.Struct(">BI")
_PART_BYTES = 64  # what a part of a message costs beside its bytes
_VIEWED = 4096  # from so many bytes on a copy costs more than what it spares


class Status(enum.IntEnum):
    """gRPC status codes that we answer with."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class Failure(Exception):
    """Ends a call with a status other than OK."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class Split:
    """A large message in two pieces, which need not be put together to be sent."""

    __slots__ = ("head", "rest")

    def __init__(self, head: bytes, rest: memoryview) -> None:
        self.head = head
        self.rest = rest

    def __len__(self) -> int:
        return len(self.head) + len(self.rest)

    def __bytes__(self) -> bytes:
        return self.head + self.rest


Reply = bytes | Split


class Call(Protocol):
    """One RPC, as its service sees it."""

    finished: bool
    """Set by the call when it has no more to say: the stream then ends with OK."""

    def message(self, data: Data) -> Sequence[Reply]:
        """Take one message and return the replies to it. May raise Failure."""

    def half_closed(self) -> bool:
        """Take the end of the client's messages; return whether the call goes on all the same. May raise Failure."""

    def closed(self) -> None:
        """Release resources. Called exactly once, however the stream ended."""


class Push(Protocol):
    """Sends messages of a call's own accord, outside `message`."""

    def __call__(self, *messages: Reply) -> None:
        """Send them, in one write."""


Method = Callable[[Push], Call]
"""Opens a call."""


def _literal(name: bytes, value: bytes) -> bytes:
    """Return a literal header field without indexing; both parts are shorter than 127 bytes."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


_OK_STATUS = b"\x88"  # :status 200 in the static table
_GRPC_TYPE = b"\x0f\x10" + bytes((len(b"application/grpc"),)) + b"application/grpc"
_HEADERS = _OK_STATUS + _GRPC_TYPE
_TRAILERS_OK = _literal(b"grpc-status", b"0")
_NOT_GRPC = b"\x08\x03415" + _literal(b"content-type", b"text/plain")
_NOT_GRPC_BODY = b"this port speaks gRPC: Envoy's ext_proc and grpc.health.v1\n"


def _trailers(status: Status, message: str) -> bytes:
    if status is Status.OK:
        return _TRAILERS_OK
    safe = "".join(c if " " <= c <= "~" and c != "%" else "?" for c in message)[:120]
    return _literal(b"grpc-status", str(int(status)).encode()) + _literal(b"grpc-message", safe.encode())


class Router:
    """Opens the right call for a request: the `accept` of every connection."""

    def __init__(self, methods: Mapping[str, Method], *, limits: Limits) -> None:
        self._methods = {path.encode(): method for path, method in methods.items()}
        self._limits = limits

    def accept(self, connection: Connection, stream: Stream, headers: HeaderBlock) -> Handler:
        """Return the stream's handler, or answer at once what cannot be served."""
        fields = headers.fields
        if not fields.get(b"content-type", b"").startswith(b"application/grpc"):
            return _Misled(connection, stream, head=fields[b":method"] == b"HEAD")
        method = self._methods.get(fields[b":path"])
        if method is None:
            why = f"unknown method {fields[b':path'].decode('ascii', 'replace')}"
            connection.out.start(stream, _HEADERS + _trailers(Status.UNIMPLEMENTED, why), end=True)
            return NOBODY
        gzip = fields.get(b"grpc-encoding") == b"gzip"
        server = ServerStream(connection, stream, max_message=self._limits.message_bytes, gzip=gzip)
        server.call = method(server.push)
        return server


class _Misled:
    """A request that is not gRPC: someone's browser or curl. Answered when it has said all."""

    __slots__ = ("_connection", "_head", "_stream")

    def __init__(self, connection: Connection, stream: Stream, *, head: bool) -> None:
        self._connection = connection
        self._stream = stream
        self._head = head

    def data(self, payload: bytes, *, end: bool) -> None:  # noqa: ARG002 - its content does not matter
        """Answer once the request is complete."""
        if end:
            out = self._connection.out
            out.start(self._stream, _NOT_GRPC)
            if not self._head:
                out.send(self._stream, _NOT_GRPC_BODY)
            out.finish(self._stream)

    def closed(self) -> None:
        """Do nothing: there is no state to release."""


class _Over:
    """The call of a stream that has ended."""

    finished = True

    def message(self, data: Data) -> Sequence[Reply]:  # noqa: ARG002 - nobody is there to read it
        """Say nothing."""
        return ()

    def half_closed(self) -> bool:
        """Say that nothing follows."""
        return False

    def closed(self) -> None:
        """Do nothing: it was told already."""


_OVER: Call = _Over()


class ServerStream:
    """One RPC on one HTTP/2 stream."""

    __slots__ = ("_connection", "_gzip", "_have", "_max", "_parts", "_stream", "_want", "call")

    def __init__(self, connection: Connection, stream: Stream, *, max_message: int, gzip: bool) -> None:
        self._connection = connection
        self._stream = stream
        self._max = max_message
        self._gzip = gzip
        self._parts: list[bytes] = []  # of a message that is not complete
        self._have = 0
        self._want = 5
        self.call: Call

    def data(self, payload: bytes, *, end: bool) -> None:
        """Deliver every complete message in what arrived."""
        try:
            self._deliver(payload)
            if end and self._stream.open and not self.call.finished:
                self._half_close()
        except Failure as failure:
            self.fail(failure.status, str(failure))
        except Malformed as error:
            self.fail(Status.INVALID_ARGUMENT, str(error))
        except WireFault:
            raise
        except Exception:
            log.exception("grpc: a call raised")
            self.fail(Status.INTERNAL, "internal error")

    def closed(self) -> None:
        """Drop partial messages and tell the call that its stream has ended.

        The call knows how to push, and so knows us: it is let go of, or every request would leave a cycle behind.
        """
        self._have = 0
        self._parts.clear()
        call, self.call = self.call, _OVER
        call.closed()

    def push(self, *messages: Reply) -> None:
        """Send messages of the call's own accord; the last ones if the call has finished by then."""
        self._connection.push(self._stream, lambda: self._push(messages))

    def _push(self, messages: Sequence[Reply]) -> None:
        self._reply(messages)
        if self.call.finished:
            self.fail(Status.OK, "")

    def fail(self, status: Status, message: str) -> None:
        """End the stream with a status."""
        if not self._stream.open:
            return
        trailers = _trailers(status, message)
        if self._stream.answered:
            self._connection.out.finish(self._stream, trailers)
        else:
            self._connection.out.start(self._stream, _HEADERS + trailers, end=True)

    def _deliver(self, payload: bytes) -> None:
        if self._have:
            if self._have + len(payload) < self._want:
                self._keep(payload)
                return
            payload = self._joined(payload)
        here, size = 0, len(payload)
        while size - here >= 5:
            flag, length = _PREFIX.unpack_from(payload, here)
            if length > self._max:
                message = f"grpc: received message larger than max ({length} vs. {self._max})"
                raise Failure(Status.RESOURCE_EXHAUSTED, message)
            stop = here + 5 + length
            if stop > size:
                self._want = 5 + length
                break
            # A large message is looked at where it lies: most of it is a body, which may be kept as it is.
            body = payload[here + 5 : stop] if length < _VIEWED else memoryview(payload)[here + 5 : stop]
            here = stop
            replies = self.call.message(self._inflate(body) if flag else body)
            if replies:
                self._reply(replies)
            if self.call.finished:
                self.fail(Status.OK, "")
                return
            if not self._stream.open:
                return
        if here < size:
            self._keep(payload[here:] if here else payload)

    def _joined(self, payload: bytes) -> bytes:
        """Return what was kept of a message with the payload that completes it, and keep nothing."""
        if self._stream.account is not None:
            self._stream.account.hold(-self._have - _PART_BYTES * len(self._parts))
        joined = b"".join((*self._parts, payload))
        self._parts.clear()
        self._have = 0
        self._want = 5
        return joined

    def _keep(self, part: bytes) -> None:
        account = self._stream.account
        if account is None:
            account = self._stream.account = self._connection.account(self._stream)
        try:
            account.hold(len(part) + _PART_BYTES)
        except Exhausted:
            raise Failure(Status.RESOURCE_EXHAUSTED, "too much of messages that are not complete") from None
        self._parts.append(part)
        self._have += len(part)

    def _reply(self, replies: Sequence[Reply]) -> None:
        stream = self._stream
        if not stream.open:
            return
        out = self._connection.out
        if not stream.answered:
            out.start(stream, _HEADERS)
        pack = _PREFIX.pack
        if len(replies) > 1 and sum(map(len, replies)) < _VIEWED:
            out.send(stream, b"".join([part for reply in replies for part in (pack(0, len(reply)), bytes(reply))]))
            return
        for reply in replies:  # one, or large ones, which are not copied once more for a frame less
            if isinstance(reply, bytes):
                out.send(stream, reply, head=pack(0, len(reply)))
            else:
                out.send(stream, reply.rest, head=pack(0, len(reply)) + reply.head)

    def _half_close(self) -> None:
        if self._have:
            raise Failure(Status.INTERNAL, "the stream ended inside a message")
        if not self.call.half_closed():
            self.fail(Status.OK, "")

    def _inflate(self, body: Data) -> bytes:
        """Return a gzip message's content, never more than a message may have."""
        if not self._gzip:
            raise Failure(Status.UNIMPLEMENTED, "a compressed message without a grpc-encoding that we know")
        inflater = zlib.decompressobj(wbits=31)
        try:
            content = inflater.decompress(body, self._max + 1)
        except zlib.error:
            raise Failure(Status.INTERNAL, "a message that is not gzip") from None
        self._connection.worked(len(content))
        if len(content) > self._max:
            raise Failure(Status.RESOURCE_EXHAUSTED, f"grpc: message larger than max ({self._max}) after decompression")
        return content
