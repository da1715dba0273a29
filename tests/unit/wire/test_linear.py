"""No input costs more than time linear in its bytes: counted per kind of frame, over many open and blocked streams.

Work is counted in lines of Python and calls into C, so that no other process can change the result. For every kind the
same flood is sent once and four times as long, to a connection with few streams and to one with many.
"""

from collections.abc import Callable, Iterable

import pytest
from tests.unit.wire.peers import Client, data_frame
from tests.work import count_work

from pointsman.wire.frames import ACK, END_HEADERS, PAIR, Code, FrameKind, Setting, frame, goaway, reset, window_update
from pointsman.wire.limits import Limits, Rate

MANY = 1500
ANY = Rate(burst=1e9, per_second=1e9)
LIMITS = Limits(
    settings=ANY, pings=ANY, empty_data=ANY, ignored_frames=ANY, window_updates=ANY, stream_errors=ANY
)  # so that what is counted is the work and not the refusal
Flood = Callable[[Client, int], Iterable[bytes]]


def windows(_: Client, count: int) -> Iterable[bytes]:
    """One frame after the other that says of two sizes, many times."""
    pairs = b"".join(PAIR.pack(Setting.INITIAL_WINDOW_SIZE, n % 2) for n in range(600))
    return [frame(FrameKind.SETTINGS, 0, 0, pairs)] * (count // 100)


FLOODS: dict[str, Flood] = {
    "DATA": lambda _, n: [data_frame(1, b"x" * 10)] * n,
    "DATA of a stream that has ended": lambda _, n: [data_frame(3, b"x")] * n,
    "HEADERS": lambda c, n: [c.headers(i) for i in range(100_001, 100_001 + 2 * n, 2)],
    "HEADERS and RST_STREAM": lambda c, n: [
        c.headers(i) + reset(i, Code.CANCEL) for i in range(100_001, 100_001 + 2 * n, 2)
    ],
    "CONTINUATION": lambda c, n: [
        frame(FrameKind.HEADERS, 0, i, c.headers(1)[9:])
        + frame(FrameKind.CONTINUATION, 0, i, b"") * 20
        + frame(FrameKind.CONTINUATION, END_HEADERS, i, b"")
        for i in range(100_001, 100_001 + n // 10, 2)
    ],
    "PRIORITY": lambda _, n: [frame(FrameKind.PRIORITY, 0, 1, b"\0\0\0\3\1")] * n,
    "RST_STREAM": lambda _, n: [reset(3, Code.CANCEL)] * n,
    "SETTINGS": windows,
    "SETTINGS ACK": lambda _, n: [frame(FrameKind.SETTINGS, ACK, 0)] * n,
    "PING": lambda _, n: [frame(FrameKind.PING, 0, 0, b"12345678")] * n,
    "GOAWAY": lambda _, n: [goaway(0, Code.NO_ERROR)] * n,
    "WINDOW_UPDATE of the connection": lambda _, n: [window_update(0, 1)] * n,
    "WINDOW_UPDATE of a stream": lambda _, n: [window_update(5, 1)] * n,
    "an unknown type": lambda _, n: [frame(0x7F, 0, 1, b"x")] * n,
}


def open_streams(client: Client, *, count: int, connection_window: int) -> None:
    """Open streams, of which half have something to send that their own window holds back."""
    client.send(frame(FrameKind.SETTINGS, 0, 0, PAIR.pack(Setting.INITIAL_WINDOW_SIZE, 0)))
    client.connection.out.window = connection_window
    for n in range(count):
        handler = client.open(2 * n + 1)
        handler.connection.out.start(handler.stream, b"\x88")
        if n % 2:
            handler.connection.out.send(handler.stream, b"x" * 2000)
    client.send(reset(3, Code.CANCEL))


def work(flood: Flood, *, count: int, streams: int, connection_window: int = 1 << 30) -> float:
    client = Client(limits=LIMITS)
    open_streams(client, count=streams, connection_window=connection_window)
    data = b"".join(flood(client, count))
    done = count_work(lambda: client.send(data))
    assert not client.connection.closing
    return done


@pytest.mark.parametrize("kind", FLOODS)
def test_work_grows_with_the_bytes_and_not_faster(kind: str) -> None:
    once, four_times = (work(FLOODS[kind], count=n, streams=MANY) for n in (200, 800))
    assert four_times <= 5 * once


@pytest.mark.parametrize("kind", [kind for kind in FLOODS if kind != "SETTINGS"])
def test_work_does_not_grow_with_the_streams(kind: str) -> None:
    few, many = (work(FLOODS[kind], count=200, streams=n) for n in (20, MANY))
    assert many <= 1.5 * few


@pytest.mark.parametrize("kind", ["WINDOW_UPDATE of the connection", "WINDOW_UPDATE of a stream"])
def test_a_closed_connection_window_makes_no_difference(kind: str) -> None:
    few, many = (work(FLOODS[kind], count=200, streams=n, connection_window=0) for n in (20, MANY))
    assert many <= 1.5 * few


def test_a_frame_of_settings_looks_at_the_streams_once() -> None:
    """They are looked at only when there is more that they may send; how often that is, is limited as a rate."""

    def frames(settings: int) -> bytes:
        pairs = b"".join(PAIR.pack(Setting.INITIAL_WINDOW_SIZE, (n + 1) % 2) for n in range(settings))
        return frame(FrameKind.SETTINGS, 0, 0, pairs)

    few = work(lambda _, n: [frames(n)], count=3, streams=MANY)
    many = work(lambda _, n: [frames(n)], count=2001, streams=MANY)
    assert many - few < 2000 * 20, "each costs a few lines, and not a walk over all streams"
