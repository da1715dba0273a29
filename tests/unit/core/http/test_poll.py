"""One connection without a socket: every proper answer in every cut, every improper one."""

import asyncio
from typing import cast

import pytest

from pointsman.core.http.client import Poll
from pointsman.core.http.limits import AnswerLimits

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n" + PLAIN
EMPTY = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class Wire:
    """Stands where a transport would."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Talk:
    """A connection, and what came of it."""

    def __init__(self, *, max_bytes: int = 1000) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.lost: list[str] = []
        self.wire = Wire()
        self.connection = Poll(
            limits=AnswerLimits(body_bytes=max_bytes),
            done=lambda s, b: self.answers.append((s, b)),
            lost=self.lost.append,
        )
        self.connection.connection_made(cast(asyncio.Transport, self.wire))

    def ask(self, *answer: bytes) -> "Talk":
        self.connection.ask(b"GET")
        for part in answer:
            self.connection.data_received(part)
        return self


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(PLAIN, (200, b"hello"), id="plain"),
        pytest.param(CHUNKED, (200, b"hello"), id="chunked"),
        pytest.param(INTERIM, (200, b"hello"), id="after an interim one"),
        pytest.param(EMPTY, (404, b""), id="empty"),
    ],
)
def test_an_answer_may_come_in_any_pieces(answer: bytes, expected: tuple[int, bytes]) -> None:
    for cut in range(1, len(answer)):
        talk = Talk().ask(answer[:cut], answer[cut:])
        assert talk.answers == [expected]
        assert talk.lost == []
    bytewise = Talk().ask(*(answer[at : at + 1] for at in range(len(answer))))
    assert bytewise.answers == [expected]


AGAIN = b"HTTP/1.1 200 OK\r\nServer: again\r\nContent-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize("more", [b"", b"\r\n", b"x", AGAIN, AGAIN[:20]])
def test_a_head_that_was_seen_before_is_read_as_if_it_were_new(more: bytes) -> None:
    answer = AGAIN + more
    for cut in range(1, len(answer)):
        fresh = AGAIN.replace(b"again", b"%05d" % cut) + more  # which nobody has seen
        new = Talk().ask(fresh[:cut], fresh[cut:])
        known = Talk().ask(AGAIN).ask(answer[:cut], answer[cut:])
        assert known.answers == [(200, b"hello"), *new.answers]
        assert (known.lost, known.wire.closed) == (new.lost, new.wire.closed)


def test_a_known_head_and_half_a_body_are_no_answer() -> None:
    talk = Talk().ask(AGAIN).ask(AGAIN[:-1])
    talk.connection.connection_lost(None)
    assert (len(talk.answers), talk.lost) == (1, ["it closed the connection"])


def test_a_known_head_does_not_widen_the_limit() -> None:
    Talk().ask(AGAIN)
    talk = Talk(max_bytes=-(64 << 10) + len(AGAIN) - 1).ask(AGAIN)
    assert (talk.answers, len(talk.lost)) == ([], 1)


def test_the_same_connection_is_asked_again() -> None:
    talk = Talk()
    for answer in (PLAIN, CHUNKED, EMPTY, PLAIN):
        talk.ask(answer)
    assert [status for status, _ in talk.answers] == [200, 200, 404, 200]
    assert talk.wire.written == [b"GET"] * 4
    assert talk.connection.open


def test_who_says_that_it_closes_is_not_asked_again() -> None:
    talk = Talk().ask(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
    assert talk.answers == [(200, b"hi")]
    assert talk.lost == [""]  # no reproach: it was announced
    assert not talk.connection.open


def test_a_body_may_end_with_the_connection() -> None:
    talk = Talk().ask(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo")
    assert talk.answers == []
    talk.connection.connection_lost(None)
    assert talk.answers == [(200, b"hello")]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        pytest.param([PLAIN, PLAIN], "nobody asked for", id="unasked"),
        pytest.param([PLAIN + PLAIN], "more than once", id="twice at once"),
        pytest.param([b"\x00\x01"], "not HTTP", id="not HTTP"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n" + b"x" * 70_000], "larger than", id="too much"
        ),
        pytest.param([b"HTTP/1.1 200 OK\r\nX: " + b"x" * 66_000], "head of its answer is larger", id="an endless head"),
    ],
)
def test_improper_answers_end_the_connection(parts: list[bytes], reason: str) -> None:
    talk = Talk().ask(*parts)
    assert len(talk.lost) == 1 and reason in talk.lost[0]
    assert talk.wire.closed


def test_half_an_answer_is_none() -> None:
    talk = Talk().ask(PLAIN[:-2])
    talk.connection.connection_lost(None)
    assert (talk.answers, talk.lost) == ([], ["it closed the connection"])


def test_after_close_nothing_is_heard() -> None:
    talk = Talk().ask()
    talk.connection.close()
    talk.connection.data_received(PLAIN)
    talk.connection.connection_lost(ConnectionResetError("reset"))
    assert (talk.answers, talk.lost, talk.wire.closed) == ([], [], True)


def test_a_connection_that_nobody_wants_any_more_is_closed_when_it_comes() -> None:
    connection, wire = Poll(limits=AnswerLimits(), done=lambda *_: None, lost=lambda _: None), Wire()
    connection.close()
    connection.connection_made(cast(asyncio.Transport, wire))
    assert wire.closed
