"""A server's connection without a socket: what comes of bytes, however they are cut."""

import math
from collections.abc import Iterator

import pytest

from pointsman.core.http.connection import Clock, Connection
from pointsman.core.http.limits import Limits
from pointsman.core.http.messages import Response, plain_fault
from pointsman.core.http.requests import Request

LIMITS = Limits(body_bytes=1000, head_bytes=2000, request_seconds=1, idle_seconds=10, linger_seconds=2, pipelined=3)
TALK = (
    b"POST /a?q HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
    b"POST /b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n"
    b"GET /c HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
)


class Side:
    """Stands where a socket would, and answers each request with its path and body."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.time = 0.0
        self.out = b""
        self.ended = ""
        self.at_once = at_once
        self.seen: list[Request] = []
        clock = Clock(now=lambda: self.time, date_line=b"date: now\r\n")
        self.connection = Connection(self, limits=LIMITS, clock=clock)
        self.connection.write = self._write

    def feed(self, *pieces: bytes) -> "Side":
        for piece in pieces:
            self.connection.receive(piece)
            self.go_on()
        return self

    def answer(self) -> None:
        request = self.seen[-1]
        request.respond(
            plain_fault(*request.fault) if request.fault else Response(body=request.path.encode() + request.body)
        )

    def _write(self, data: bytes) -> None:
        self.out += data

    def go_on(self) -> None:
        while (request := self.connection.next()) is not None:
            self.seen.append(request)
            if not self.at_once:
                return
            self.answer()

    def hang_up(self, *, linger: bool) -> None:
        self.ended = "lingers" if linger else "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def weigh(self) -> None:
        pass


def cuts(data: bytes) -> Iterator[list[bytes]]:
    yield from ([data[:at], data[at:]] for at in range(1, len(data)))
    yield [data[at : at + 1] for at in range(len(data))]


def test_the_answers_are_the_same_for_every_cut() -> None:
    whole = Side().feed(TALK)
    assert [part.rpartition(b"\r\n\r\n")[2] for part in whole.out.split(b"HTTP/1.1 ")[1:]] == [
        b"/aabc",
        b"/bdef",
        b"/c",
    ]
    assert whole.ended == "closed" and whole.out.count(b"connection: close") == 1
    for pieces in cuts(TALK):
        side = Side().feed(*pieces)
        assert (side.out, side.ended) == (whole.out, whole.ended)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", 400, id="not HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1500, 431, id="a head without end"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"".join(b"%d:\r\n" % n for n in range(50)), 431, id="many headers"),
        pytest.param(b"GET /" + b"a" * 3000, 431, id="a target without end"),
        pytest.param(b"POST / HTTP/1.1\r\ncontent-length: 1001\r\n\r\n", 413, id="too large"),
        pytest.param(b"POST / HTTP/1.1\r\nexpect: pigs\r\ncontent-length: 1\r\n\r\n", 417, id="expectation"),
    ],
)
def test_a_fault_is_answered_once_behind_what_came_before_and_then_nothing_is_read(data: bytes, status: int) -> None:
    side = Side(at_once=False).feed(TALK[:53], data, b"GET /late HTTP/1.1\r\n\r\n")
    assert len(side.seen) == 1 and not side.out
    side.answer()
    assert side.out.startswith(b"HTTP/1.1 200 ")
    side.answer()
    assert (side.out.count(b"HTTP/1.1 "), side.ended) == (2, "lingers")
    assert b"HTTP/1.1 %d " % status in side.out and side.connection.held == 0


def test_what_is_held_is_counted_while_it_comes() -> None:
    side = Side(at_once=False).feed(b"POST / HTTP/1.1\r\ncontent-length: 900\r\n\r\n", b"x" * 500)
    assert side.connection.held == 500
    side.feed(b"x" * 400)
    assert side.connection.held == 0, "it is the handler's now"
    side.feed(b"GET / HTTP/1.1\r\n\r\n" * 3)
    assert side.connection.full and side.connection.held >= 3000
    side.connection.lost()
    assert side.connection.held == 0


def test_deadlines() -> None:
    side = Side(at_once=False)
    assert side.connection.deadline == math.inf
    side.feed(b"GET / HT")
    assert side.connection.deadline == 1
    side.time = 2
    assert not side.connection.expired(), "it is told"
    side.go_on()
    side.answer()
    assert b"HTTP/1.1 408 " in side.out and side.connection.deadline == 4
    assert side.connection.expired()


def test_a_late_answer_and_one_to_another_request_write_nothing() -> None:
    side = Side(at_once=False).feed(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
    first = side.seen[0]
    side.answer()
    before = side.out
    assert len(side.seen) == 2
    first.respond(Response(body=b"again"))
    first.stream().write(b"again")
    first.stream().abort()
    assert (side.out, side.ended) == (before, "")


def test_whoever_makes_an_answer_hears_of_the_end() -> None:
    side = Side(at_once=False).feed(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
    gone: list[str] = []
    side.seen[0].on_disconnect = lambda: gone.append("a")
    side.connection.lost()
    assert gone == ["a"] and side.connection.next() is None
