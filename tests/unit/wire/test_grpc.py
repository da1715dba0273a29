"""gRPC on a stream: messages cut anywhere, compression, statuses, and calls that go wrong."""

import gc
import gzip
import struct
from collections.abc import Callable, Sequence

import pytest
from hpack import Decoder
from tests.clock import Clock
from tests.unit.wire.peers import GRPC_HEADERS, Client, data_frame, split

from pointsman.core.budget import Budget
from pointsman.wire.connection import STREAM_BYTES, Connection
from pointsman.wire.frames import PREFACE, Code, FrameKind, reset, settings
from pointsman.wire.grpc import Call, Failure, Push, Router, ServerStream, Status
from pointsman.wire.limits import Limits
from pointsman.wire.outbox import Stream
from pointsman.wire.protobuf import Data

LIMITS = Limits(message_bytes=1000)


class Echo:
    """Replies to each message with itself; does as certain messages say."""

    def __init__(self, push: Push) -> None:
        self.push = push
        self.finished = False
        self.closings = 0
        self.messages = 0
        calls.append(self)

    def message(self, data: Data) -> Sequence[bytes]:
        self.messages += 1
        if data == b"fail":
            raise Failure(Status.INVALID_ARGUMENT, "as you wish")
        if data == b"crash":
            raise RuntimeError
        if data == b"finish":
            self.finished = True
        echo = bytes(data)
        return (echo, echo) if echo == b"twice" else (echo,)

    def half_closed(self) -> bool:
        return False

    def closed(self) -> None:
        self.closings += 1


calls: list[Echo] = []


def make_call(push: Push) -> Call:
    return Echo(push)


class GrpcClient(Client):
    """A client whose connection ends in an Echo service."""

    def __init__(self, *, budget: Budget | None = None, limits: Limits = LIMITS) -> None:
        calls.clear()
        super().__init__(greet=False, budget=budget)
        router = Router({"/echo": make_call}, limits=limits)
        self.connection = Connection(
            accept=router.accept,
            limits=limits,
            clock=Clock(),
            budget=self.budget,
            on_limit=self.hits.append,
        )
        self.decoder = Decoder()
        self.send(PREFACE + settings({}))

    def start(self, stream: int = 1, path: str = "/echo", **extra: str) -> None:
        fields = {**dict(GRPC_HEADERS), ":path": path, **{k.replace("_", "-"): v for k, v in extra.items()}}
        self.results = list(self.send(self.headers(stream, list(fields.items()))))

    def read(self, data: bytes) -> tuple[list[bytes], dict[str, str]]:
        """Send bytes; return the messages that come back, and the last headers."""
        body = b""
        headers: dict[str, str] = {}
        for each in self.send(data):
            if each.kind == FrameKind.DATA:
                body += each.payload
            elif each.kind == FrameKind.HEADERS:
                headers = self.decode(each)
        return unframe(body), headers


def framed(message: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(message)) + message


def unframe(data: bytes) -> list[bytes]:
    found = []
    while data:
        (size,) = struct.unpack_from(">I", data, 1)
        found.append(data[5 : 5 + size])
        data = data[5 + size :]
    return found


def test_messages_cut_anywhere_arrive_whole() -> None:
    raw = framed(b"one") + framed(b"") + framed(b"three" * 50)
    for cut in range(len(raw) + 1):
        client = GrpcClient()
        client.start()
        first, _ = client.read(data_frame(1, raw[:cut]))
        second, _ = client.read(data_frame(1, raw[cut:]))
        assert first + second == [b"one", b"", b"three" * 50], f"cut at {cut}"
        assert client.budget.held == STREAM_BYTES, "nothing but the open stream"


def test_all_replies_to_a_message_leave_in_one_frame() -> None:
    client = GrpcClient()
    client.start()
    kinds = [f.kind for f in client.send(data_frame(1, framed(b"twice")))]
    assert kinds == [FrameKind.HEADERS, FrameKind.DATA]


def test_half_close_ends_with_ok() -> None:
    client = GrpcClient()
    client.start()
    replies, trailers = client.read(data_frame(1, framed(b"x"), end=True))
    assert (replies, trailers) == ([b"x"], {"grpc-status": "0"})
    assert calls[0].closings == 1


@pytest.mark.parametrize(
    ("message", "status"),
    [
        pytest.param(framed(b"fail"), Status.INVALID_ARGUMENT, id="the call says no"),
        pytest.param(framed(b"crash"), Status.INTERNAL, id="the call has a bug"),
        pytest.param(framed(b"finish"), Status.OK, id="the call is done"),
        pytest.param(framed(b"x" * 1001), Status.RESOURCE_EXHAUSTED, id="message too large"),
        pytest.param(struct.pack(">BI", 0, 2**32 - 1), Status.RESOURCE_EXHAUSTED, id="message announced too large"),
        pytest.param(framed(b"x", flag=1), Status.UNIMPLEMENTED, id="compressed by nothing"),
    ],
)
def test_how_a_call_ends(message: bytes, status: Status) -> None:
    client = GrpcClient()
    client.start(1)
    client.start(3)
    _, trailers = client.read(data_frame(1, message))
    assert trailers["grpc-status"] == str(int(status))
    assert [call.closings for call in calls] == [1, 0], "the other call does not notice"
    assert client.read(data_frame(3, framed(b"y")))[0] == [b"y"]


def test_the_stream_ends_inside_a_message() -> None:
    client = GrpcClient()
    client.start()
    _, trailers = client.read(data_frame(1, framed(b"abc")[:-1], end=True))
    assert trailers["grpc-status"] == str(int(Status.INTERNAL))


def test_gzip_messages_are_read_and_bombs_are_not() -> None:
    client = GrpcClient()
    client.start(1, grpc_encoding="gzip")
    assert client.read(data_frame(1, framed(gzip.compress(b"hello"), flag=1)))[0] == [b"hello"]
    bomb = gzip.compress(b"\0" * 10_000_000)[:900]
    _, trailers = client.read(data_frame(1, framed(bomb, flag=1)))
    assert trailers["grpc-status"] == str(int(Status.RESOURCE_EXHAUSTED))


def test_others_have_their_turn_beside_messages_that_are_large_when_unpacked() -> None:
    client = GrpcClient(limits=Limits())
    client.start(1, grpc_encoding="gzip")
    packed = data_frame(1, framed(gzip.compress(b"\0" * 1_000_000), flag=1))
    client.connection.receive(packed * 100)
    assert client.connection.backlog and calls[0].messages == 2
    client.connection.proceed()
    assert client.connection.backlog and calls[0].messages == 4
    plain = GrpcClient(limits=Limits())
    plain.start(1)
    plain.connection.receive(data_frame(1, framed(b"x" * 1000)) * 100)
    assert not plain.connection.backlog and calls[0].messages == 100


def test_an_unknown_method_is_unimplemented() -> None:
    client = GrpcClient()
    client.start(1, path="/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    trailers = client.decode(client.results[0])
    assert trailers["grpc-status"] == str(int(Status.UNIMPLEMENTED))


def test_what_is_not_grpc_is_told_so() -> None:
    client = GrpcClient()
    fields = [(":method", "GET"), (":scheme", "http"), (":path", "/")]
    frames = client.send(client.headers(1, fields, end=True))
    assert client.decode(frames[0])[":status"] == "415"
    assert b"gRPC" in frames[1].payload


def test_incomplete_messages_cost_bounded_memory() -> None:
    budget = Budget(limit=10 * (STREAM_BYTES + 500))
    client = GrpcClient(budget=budget)
    frames = []
    for stream in range(1, 21, 2):
        client.start(stream)
        frames += client.results + client.send(data_frame(stream, framed(b"x" * 999)[:-1]))
        assert budget.held <= budget.limit
    ended = [(f.stream, f.code) for f in frames if f.kind == FrameKind.RST_STREAM]
    assert ended == [(stream, Code.ENHANCE_YOUR_CALM) for stream in (1, 3)], "the oldest of equals"
    assert client.read(data_frame(19, b"x" * 1))[0] == [b"x" * 999], "the connection goes on, and so do the others"
    client.connection.lost()
    assert budget.held == 0, "and all of it is let go"


def test_a_push_arrives_outside_any_message() -> None:
    client = GrpcClient()
    client.start()
    written: list[bytes] = []
    client.connection.flush = lambda: written.append(client.connection.out.take())
    calls[0].push(b"news")
    frames = list(split(b"".join(written)))
    assert unframe(frames[-1].payload) == [b"news"]
    client.send(reset(1, Code.CANCEL))
    calls[0].push(b"too late")
    assert b"too late" not in b"".join(written)


def leave_by_finishing(client: GrpcClient) -> None:
    client.read(data_frame(1, framed(b"finish")))


def leave_by_half_closing(client: GrpcClient) -> None:
    client.read(data_frame(1, framed(b"a"), end=True))


def leave_by_a_reset(client: GrpcClient) -> None:
    client.send(reset(1, Code.CANCEL))


def leave_by_the_socket(client: GrpcClient) -> None:
    client.connection.lost()


@pytest.mark.parametrize("leave", [leave_by_finishing, leave_by_half_closing, leave_by_a_reset, leave_by_the_socket])
def test_an_ended_stream_leaves_nothing_for_the_collector(leave: Callable[[GrpcClient], None]) -> None:
    client = GrpcClient()
    gc.disable()  # what is in no cycle goes without it
    gc.freeze()  # and what was there before is not looked at
    try:
        client.start()
        leave(client)
        calls.clear()
        left = [type(each).__name__ for each in gc.get_objects() if isinstance(each, Echo | ServerStream | Stream)]
    finally:
        gc.enable()
    assert left == []
