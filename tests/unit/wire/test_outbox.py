"""What leaves: windows in both sizes, fairness between blocked streams, and the bound on what is held back."""

import pytest
from tests.unit.wire.peers import split

from pointsman.wire.frames import END_STREAM, Code, ConnectionFault, Kind
from pointsman.wire.outbox import Outbox, Stream


def make(*, limit: int = 1 << 20) -> tuple[Outbox, list[int]]:
    ended: list[int] = []
    return Outbox(unsent_bytes=limit, on_end=lambda stream: ended.append(stream.id)), ended


def sent(out: Outbox) -> list[tuple[int, int]]:
    """Return (stream, size) of the DATA frames that left."""
    return [(f.stream, len(f.payload)) for f in split(out.take()) if f.kind == Kind.DATA]


def test_small_data_leaves_at_once() -> None:
    out, _ = make()
    out.send(Stream(1, window=100, expected=-1), b"x" * 100)
    assert sent(out) == [(1, 100)]


def test_data_is_cut_to_the_peers_frame_size() -> None:
    out, _ = make()
    out.send(Stream(1, window=65_535, expected=-1), b"x" * 40_000)
    assert sent(out) == [(1, 16_384), (1, 16_384), (1, 7232)]


def test_data_waits_for_the_streams_window_and_trailers_wait_for_data() -> None:
    out, ended = make()
    stream = Stream(1, window=10, expected=-1)
    out.send(stream, b"x" * 25)
    out.finish(stream, b"trailers")
    assert sent(out) == [(1, 10)]
    assert ended == []
    stream.window += 10
    out.release(stream)
    assert sent(out) == [(1, 10)]
    stream.window += 10
    out.release(stream)
    frames = list(split(out.take()))
    assert [(f.kind, len(f.payload)) for f in frames] == [(Kind.DATA, 5), (Kind.HEADERS, 8)]
    assert frames[-1].flags & END_STREAM
    assert ended == [1]


def test_the_connections_window_is_shared_in_turn() -> None:
    out, _ = make()
    out.window = 0
    streams = [Stream(n, window=100_000, expected=-1) for n in (1, 3)]
    for stream in streams:
        out.send(stream, b"x" * 50_000)
    order = []
    for _ in range(8):
        out.window += 10_000
        out.release_all()
        order += [stream for stream, _ in sent(out)]
    assert set(order[:2]) == {1, 3}, "neither starves"


def test_an_ended_stream_gives_its_share_back() -> None:
    out, _ = make(limit=100)
    stream = Stream(1, window=0, expected=-1)
    out.send(stream, b"x" * 90)
    out.drop(stream)
    other = Stream(3, window=0, expected=-1)
    out.send(other, b"x" * 90)
    out.send(stream, b"late")
    assert sent(out) == [], "nothing of the ended stream"


def test_a_peer_that_reads_nothing_is_cut_off() -> None:
    out, _ = make(limit=100)
    stream = Stream(1, window=0, expected=-1)
    out.send(stream, b"x" * 100)
    with pytest.raises(ConnectionFault) as caught:
        out.send(stream, b"x")
    assert (caught.value.code, caught.value.limit) == (Code.ENHANCE_YOUR_CALM, "unsent_bytes")
