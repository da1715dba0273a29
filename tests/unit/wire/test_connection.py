"""The connection's rules, one by one. h2spec (tests/wire) covers the RFC; here stands what it cannot see."""

from collections.abc import Callable

import pytest
from tests.unit.wire.peers import GRPC_HEADERS, Client, Frame, Recorder, data_frame, split

from pointsman.core.budget import Budget
from pointsman.wire.connection import CONNECTION_WINDOW, STREAM_BYTES, STREAM_WINDOW
from pointsman.wire.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    MAX_WINDOW,
    PADDED,
    PREFACE,
    Code,
    FrameKind,
    Setting,
    frame,
    goaway,
    reset,
    settings,
    window_update,
)
from pointsman.wire.limits import Limits, Rate


def ends(frames: list[Frame]) -> list[tuple[int, Code]]:
    """Return what ended something: (stream, code), stream 0 for the connection."""
    return [(f.stream, f.code) for f in frames if f.kind in {FrameKind.RST_STREAM, FrameKind.GOAWAY}]


def test_greets_before_it_is_spoken_to() -> None:
    client = Client(greet=False)
    assert [f.kind for f in client.greeting] == [FrameKind.SETTINGS, FrameKind.WINDOW_UPDATE]


def test_takes_frames_cut_anywhere() -> None:
    whole = Client(greet=False)
    stream_bytes = (
        PREFACE
        + settings({Setting.INITIAL_WINDOW_SIZE: 100_000})
        + whole.headers(1)
        + data_frame(1, b"abc")
        + data_frame(1, b"", end=True)
    )
    for cut in range(1, len(stream_bytes)):
        client = Client(greet=False)
        client.send(stream_bytes[:cut])
        client.send(stream_bytes[cut:])
        assert client.handlers[0].received == [(b"abc", False), (b"", True)], f"cut at {cut}"


def test_one_read_with_many_streams_answers_in_one_write() -> None:
    client = Client()
    client.send(b"".join(client.headers(n) + data_frame(n, b"x" * n) for n in (1, 3, 5)))
    assert [h.received for h in client.handlers] == [[(b"x", False)], [(b"xxx", False)], [(b"xxxxx", False)]]


def test_header_blocks_are_decoded_once_after_the_table_is_gone() -> None:
    client = Client()
    for stream in range(1, 20, 2):
        client.send(client.headers(stream))
    client.send(frame(FrameKind.SETTINGS, ACK, 0))  # for the request to do without a table
    client.encoder.header_table_size = 0
    client.send(client.headers(21))
    client.send(client.headers(23))
    client.send(client.headers(25))
    assert client.handlers[-1].headers is client.handlers[-2].headers, "the same bytes are looked up, not decoded"
    assert client.handlers[-1].headers.fields[b":path"].endswith(b"/Process")


def test_a_peer_that_acknowledges_but_keeps_its_table_is_still_understood() -> None:
    client = Client()
    for stream in range(1, 40, 2):
        if stream == 21:
            client.send(frame(FrameKind.SETTINGS, ACK, 0))
        client.send(client.headers(stream, [*GRPC_HEADERS, ("x-n", str(stream))]))
    assert [h.headers.fields[b"x-n"] for h in client.handlers] == [str(n).encode() for n in range(1, 40, 2)]


def test_a_reset_is_the_normal_end_of_a_stream() -> None:
    client = Client()
    handler = client.open(1)
    assert client.send(reset(1, Code.INTERNAL_ERROR)) == []
    assert handler.closings == 1
    assert client.connection.open_streams == 0
    client.connection.lost()
    assert handler.closings == 1, "closed exactly once"


def test_every_stream_is_closed_when_the_connection_goes() -> None:
    client = Client()
    handlers = [client.open(n) for n in (1, 3, 5)]
    client.connection.lost()
    assert [h.closings for h in handlers] == [1, 1, 1]


def test_late_frames_of_a_stream_that_we_ended_are_no_error() -> None:
    client = Client()
    handler = client.open(1)
    handler.connection.out.start(handler.stream, b"\x88", end=True)
    handler.connection.out.take()
    assert ends(client.send(data_frame(1, b"late"))) == []
    assert ends(client.send(reset(1, Code.CANCEL))) == []
    assert ends(client.send(client.headers(1, [("x", "y")], end=True))) == []


def test_data_after_the_peer_ended_its_side_is_an_error_of_that_stream_only() -> None:
    client = Client()
    first, second = client.open(1), client.open(3)
    client.send(data_frame(1, b"", end=True))
    assert ends(client.send(data_frame(1, b"more"))) == [(1, Code.STREAM_CLOSED)]
    assert (first.closings, second.closings) == (1, 0)


def test_padding_is_taken_off() -> None:
    client = Client()
    handler = client.open(1)
    client.send(frame(FrameKind.DATA, PADDED | END_STREAM, 1, b"\x03abc\0\0\0"))
    assert handler.received == [(b"abc", True)]


def test_headers_over_continuations() -> None:
    client = Client()
    block = client.encoder.encode([*GRPC_HEADERS, ("x-long", "v" * 400)])
    parts = [block[at : at + 50] for at in range(0, len(block), 50)]
    client.send(frame(FrameKind.HEADERS, 0, 1, parts[0]))
    for part in parts[1:-1]:
        client.send(frame(FrameKind.CONTINUATION, 0, 1, part))
    client.send(frame(FrameKind.CONTINUATION, END_HEADERS, 1, parts[-1]))
    assert client.handlers[0].headers.fields[b"x-long"] == b"v" * 400


def test_windows_are_given_back_as_they_are_used() -> None:
    client = Client()
    client.open(1)
    given = {0: 0, 1: 0}
    sent = 0
    while sent < CONNECTION_WINDOW:
        for f in client.send(data_frame(1, b"x" * 16_384)):
            assert f.kind == FrameKind.WINDOW_UPDATE
            given[f.stream] += int.from_bytes(f.payload, "big")
        sent += 16_384
        assert sent - given[1] <= STREAM_WINDOW
        assert sent - given[0] <= CONNECTION_WINDOW


def test_data_beyond_the_window_ends_the_connection() -> None:
    client = Client()
    client.open(1)
    client.connection._streams[1].received = STREAM_WINDOW
    assert ends(client.send(data_frame(1, b"x"))) == [(0, Code.FLOW_CONTROL_ERROR)]


def test_ping_is_answered_with_its_own_bytes() -> None:
    assert Client().send(frame(FrameKind.PING, 0, 0, b"12345678")) == [Frame(FrameKind.PING, ACK, 0, b"12345678")]


def test_drain_serves_what_is_open_and_then_closes() -> None:
    client = Client()
    handler = client.open(1)
    client.connection.drain()
    first = list(split(client.connection.out.take()))
    assert [f.kind for f in first] == [FrameKind.GOAWAY, FrameKind.PING]
    assert first[0].payload[:4] == MAX_WINDOW.to_bytes(4, "big"), "streams under way may still arrive"
    late = client.open(3)  # sent before the client saw the GOAWAY
    second = client.send(frame(FrameKind.PING, ACK, 0, first[1].payload))
    assert second[0].payload[:4] == (3).to_bytes(4, "big")
    assert ends(client.send(client.headers(5))) == [(5, Code.REFUSED_STREAM)], "and no more after that"
    assert not client.connection.closing
    for n, each in ((1, handler), (3, late)):
        client.send(data_frame(n, b"", end=True))
        each.connection.out.start(each.stream, b"\x88", end=True)
    assert client.connection.closing


def test_the_peers_goaway_lets_open_streams_end() -> None:
    client = Client()
    client.open(1)
    client.send(goaway(0, Code.NO_ERROR))
    assert not client.connection.closing
    client.send(reset(1, Code.CANCEL))
    assert client.connection.closing


class Broken(Recorder):
    """A handler with a bug."""

    def data(self, payload: bytes, *, end: bool) -> None:
        raise RuntimeError


def test_a_handler_that_raises_ends_this_connection_and_says_so() -> None:
    client = Client()
    handler = client.open(1)
    handler.stream.handler = Broken(handler.connection, handler.stream, handler.headers)
    assert ends(client.send(data_frame(1, b"x"))) == [(0, Code.INTERNAL_ERROR)]
    assert client.connection.closing


SMALL = Limits(
    concurrent_streams=4,
    header_block_bytes=1000,
    continuations=3,
    settings=Rate(burst=3, per_second=1),
    pings=Rate(burst=3, per_second=1),
    empty_data=Rate(burst=3, per_second=1),
    ignored_frames=Rate(burst=3, per_second=1),
    window_updates=Rate(burst=3, per_second=1),
    stream_errors=Rate(burst=3, per_second=1),
)


def bad_requests(client: Client) -> list[bytes]:
    return [client.headers(n, [(":method", "POST")]) for n in range(1, 20, 2)]


@pytest.mark.parametrize(
    ("limit", "flood"),
    [
        pytest.param("stream_errors", bad_requests, id="malformed requests"),
        pytest.param("settings", lambda _: [settings({})] * 9, id="SETTINGS"),
        pytest.param("ignored_frames", lambda _: [frame(FrameKind.SETTINGS, ACK, 0)] * 9, id="SETTINGS ACK"),
        pytest.param("pings", lambda _: [frame(FrameKind.PING, 0, 0, b"x" * 8)] * 9, id="PING"),
        pytest.param("ignored_frames", lambda _: [frame(FrameKind.PING, ACK, 0, b"x" * 8)] * 9, id="PING ACK"),
        pytest.param("empty_data", lambda c: [c.headers(1)] + [data_frame(1, b"")] * 9, id="empty DATA"),
        pytest.param("ignored_frames", lambda _: [frame(0x7F, 0, 0, b"x")] * 9, id="unknown frames"),
        pytest.param("ignored_frames", lambda _: [frame(FrameKind.PRIORITY, 0, 9, b"\0\0\0\1\1")] * 9, id="PRIORITY"),
        pytest.param("window_updates", lambda _: [window_update(0, 1)] * 9, id="WINDOW_UPDATE"),
        pytest.param(
            "continuations",
            lambda _: [frame(FrameKind.HEADERS, 0, 1, b"")] + [frame(FrameKind.CONTINUATION, 0, 1, b"")] * 9,
            id="CONTINUATION",
        ),
        pytest.param(
            "header_block_bytes",
            lambda _: [frame(FrameKind.HEADERS, 0, 1, b"\0" * 600), frame(FrameKind.CONTINUATION, 0, 1, b"\0" * 600)],
            id="header block",
        ),
    ],
)
def test_a_flood_ends_in_enhance_your_calm(limit: str, flood: Callable[[Client], list[bytes]]) -> None:
    client = Client(limits=SMALL)
    frames: list[Frame] = []
    for piece in flood(client):
        frames += client.send(piece)
    assert (frames[-1].kind, frames[-1].code) == (FrameKind.GOAWAY, Code.ENHANCE_YOUR_CALM)
    assert client.hits == [limit]
    assert client.connection.closing
    assert all(h.closings == 1 for h in client.handlers)
    assert client.send(client.headers(1001)) == [], "a closed connection is deaf"


def test_a_flood_that_keeps_within_the_rate_is_served() -> None:
    client = Client(limits=SMALL)
    for _ in range(50):
        client.clock.now += 1.0
        assert len(client.send(frame(FrameKind.PING, 0, 0, b"x" * 8))) == 1


def test_resets_after_an_answer_never_count() -> None:
    client = Client(limits=SMALL)
    for n in range(1, 200, 2):
        handler = client.open(n)
        handler.connection.out.start(handler.stream, b"\x88")
        handler.connection.out.take()
        assert client.send(reset(n, Code.INTERNAL_ERROR)) == [], "this is how Envoy ends every request"


def test_resets_before_an_answer_end_nobody_elses_stream() -> None:
    """Envoy sends them by the thousand when that many clients give up; the others are on the same connection."""
    client = Client(limits=SMALL)
    bystander = client.open(1)
    for n in range(3, 2003, 2):
        assert ends(client.send(client.headers(n) + reset(n, Code.CANCEL))) == []
    assert (client.connection.open_streams, bystander.closings) == (1, 0)
    assert all(handler.closings == 1 for handler in client.handlers[1:])


def test_resets_of_streams_that_have_ended_end_nobody_elses_stream() -> None:
    """They cross our own end of the stream on the way, which is legal."""
    client = Client(limits=SMALL)
    bystander = client.open(1)
    for n in range(3, 2003, 2):
        handler = client.open(n, end=n % 4 == 1)
        handler.connection.out.start(handler.stream, b"\x88", end=True)
        handler.connection.out.take()
        assert client.send(reset(n, Code.CANCEL)) == []
    assert client.send(reset(7, Code.CANCEL)) == [], "nor of one that is long forgotten"
    assert (client.connection.open_streams, bystander.closings) == (1, 0)


def test_data_on_its_way_to_streams_that_we_ended_ends_nobody_elses_stream() -> None:
    client = Client(limits=SMALL)
    bystander = client.open(1)
    numbers = range(3, 2003, 2)
    for n in numbers:
        handler = client.open(n)
        handler.connection.out.start(handler.stream, b"\x88", end=True)
        handler.connection.out.take()
    for n in numbers:
        assert client.send(data_frame(n, b"x" * 100)) == []
        assert client.send(data_frame(n, b"", end=True)) == []
    assert (client.connection.open_streams, bystander.closings) == (1, 0)


def test_too_many_streams_are_refused_one_by_one() -> None:
    client = Client(limits=SMALL)
    for n in (1, 3, 5, 7):
        client.open(n)
    for n in range(9, 99, 2):
        assert ends(client.send(client.headers(n))) == [(n, Code.REFUSED_STREAM)]
    assert client.connection.open_streams == 4


def test_streams_beyond_the_processs_memory_are_refused_one_by_one() -> None:
    budget = Budget(limit=10 * STREAM_BYTES)
    client, other = Client(budget=budget), Client(budget=budget)
    for n in range(1, 21, 2):
        client.open(n)
    assert ends(other.send(other.headers(1))) == [(1, Code.REFUSED_STREAM)]
    client.send(reset(1, Code.CANCEL))
    other.open(3)
    assert budget.held == budget.limit
    client.connection.lost()
    other.connection.lost()
    assert budget.held == 0


def test_one_read_is_handled_in_turns() -> None:
    client = Client()
    flood = b"".join(client.headers(n) + reset(n, Code.CANCEL) for n in range(1, 2001, 2))
    client.connection.receive(flood)
    turns = 1
    while client.connection.backlog:
        assert len(client.handlers) <= 128 * turns
        client.connection.proceed()
        turns += 1
    assert len(client.handlers) == 1000
    assert turns > 7
    client.open(2001)


@pytest.mark.parametrize("length", ["9" * 5000, "0" * 5000, "٣", "1_0", "+1"])
def test_a_length_that_is_no_number_ends_its_stream_only(length: str) -> None:
    client = Client()
    fields = [*GRPC_HEADERS, ("content-length", length)]
    assert ends(client.send(client.headers(1, fields))) == [(1, Code.PROTOCOL_ERROR)]
    client.open(3)


def test_an_hpack_bomb_is_defused() -> None:
    client = Client()
    big = ("x-bomb", "v" * 3000)
    client.encoder.encode([big])
    bomb = client.encoder.encode([*GRPC_HEADERS, big] + [big] * 30)
    frames = client.send(frame(FrameKind.HEADERS, END_HEADERS, 1, bomb))
    assert len(bomb) < 10_000, "small on the wire"
    assert [f.code for f in frames if f.kind == FrameKind.GOAWAY] in (
        [Code.ENHANCE_YOUR_CALM],
        [Code.COMPRESSION_ERROR],
    )


def test_an_oversized_frame_is_refused_before_its_payload_comes() -> None:
    client = Client()
    head = frame(FrameKind.DATA, 0, 1, b"x" * 16_385)[:9]
    assert ends(client.send(head)) == [(0, Code.FRAME_SIZE_ERROR)]


def test_not_http2_at_all() -> None:
    client = Client(greet=False)
    assert ends(client.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")) == [(0, Code.PROTOCOL_ERROR)]
