"""What leaves: windows in both sizes, fairness between blocked streams, and the bound on what is held back."""

import pytest
from tests.unit.wire.peers import split
from tests.work import count_work

from pointsman.core.budget import Budget
from pointsman.wire.frames import END_STREAM, Code, FrameKind, StreamFault
from pointsman.wire.outbox import Outbox, Stream


def make(*, limit: int = 1 << 20) -> tuple[Outbox, list[int]]:
    ended: list[int] = []
    budget = Budget(limit=limit)
    out = Outbox(
        account=lambda stream: budget.account("stream", shed=lambda: out.drop(stream)),
        on_end=lambda stream: ended.append(stream.id),
    )
    return out, ended


def sent(out: Outbox) -> list[tuple[int, int]]:
    """Return (stream, size) of the DATA frames that left."""
    return [(f.stream, len(f.payload)) for f in split(out.take()) if f.kind == FrameKind.DATA]


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
    out.widen(stream, 10)
    assert sent(out) == [(1, 10)]
    out.widen(stream, 10)
    frames = list(split(out.take()))
    assert [(f.kind, len(f.payload)) for f in frames] == [(FrameKind.DATA, 5), (FrameKind.HEADERS, 8)]
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


def test_the_stream_that_holds_most_pays_for_a_peer_that_reads_nothing() -> None:
    out, _ = make(limit=100)
    small, hog = Stream(1, window=0, expected=-1), Stream(3, window=0, expected=-1)
    out.send(small, b"s" * 10)
    out.send(hog, b"x" * 90)
    with pytest.raises(StreamFault) as caught:
        out.send(hog, b"x")
    assert (caught.value.code, caught.value.limit) == (Code.ENHANCE_YOUR_CALM, "unsent_bytes")
    out.drop(hog)
    out.widen(small, 10)
    assert sent(out) == [(1, 10)], "the other has lost nothing"


def test_a_new_size_of_all_windows_reaches_streams_that_wait() -> None:
    out, _ = make()
    streams = [Stream(n, window=10, expected=-1) for n in (1, 3)]
    out.peer_window = 10
    for stream in streams:
        out.send(stream, b"x" * 25)
    assert sent(out) == [(1, 10), (3, 10)]
    out.resize(5)
    out.resize(15)
    assert sent(out) == [(1, 5), (3, 5)]
    out.resize(0)
    out.widen(streams[0], 15)
    assert sent(out) == [], "its window was below nothing"
    out.resize(100)
    assert sent(out) == [(1, 10), (3, 10)]


def test_one_byte_of_window_costs_one_turn_however_many_wait() -> None:
    """The streams that their own window holds back are not looked at, nor is a long answer copied."""

    def open_by_bytes(*, streams: int) -> int:
        out, _ = make(limit=1 << 30)
        out.window = 0
        for number in range(streams):
            out.send(Stream(2 * number + 1, window=0, expected=-1), b"x" * 10_000)
        hog = Stream(100_001, window=1 << 20, expected=-1)
        out.send(hog, b"x" * 100_000)

        def flood() -> None:
            for _ in range(100):
                out.window += 1
                out.release_all()

        work = count_work(flood)
        assert sent(out) == [(100_001, 1)] * 100
        return work

    assert open_by_bytes(streams=2000) == open_by_bytes(streams=20)
