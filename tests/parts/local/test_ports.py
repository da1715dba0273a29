import socket
from collections.abc import Iterator

import pytest

from pointsman.core.errors import PortTaken, Unavailable
from pointsman.local.ports import Wish, any_free, free_span, is_free, settle


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def wish(port: int, *, named: bool) -> Wish:
    return Wish(port=port, flag="--some-port", what="something", named=named)


def test_free_port_is_granted() -> None:
    port = any_free()
    assert settle(wish(port, named=True)) == port


def test_port_that_a_person_named_must_be_free(taken: int) -> None:
    with pytest.raises(PortTaken, match=rf"port {taken} for something is taken .* --some-port"):
        settle(wish(taken, named=True))


def test_default_gives_way(taken: int) -> None:
    other = settle(wish(taken, named=False))
    assert other != taken
    assert is_free(other)


def test_port_already_given_out_counts_as_taken() -> None:
    port = any_free()
    assert settle(wish(port, named=False), given_out={port}) != port


@pytest.mark.parametrize("port", [0, 8081])
def test_what_was_given_out_is_not_drawn_again(port: int) -> None:
    all_but_high = range(60_000)  # so that a draw that does not look would be among them, nearly always
    assert settle(wish(port, named=False), given_out=all_but_high) >= 60_000


def test_drawn_port_is_none_of_outgoing_connections() -> None:
    assert all(any_free() < 32_768 for _ in range(20))


def test_shared_port_of_another_envoy_is_noticed() -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        assert not is_free(holder.getsockname()[1])


def test_upwards_skips_what_is_taken(taken: int) -> None:
    assert free_span(taken) > taken


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("first", [0, 65535])
def test_from_zero_or_after_the_last_port_any_will_do(first: int, count: int) -> None:
    port = free_span(first, count=count, given_out={65535})
    assert all(is_free(each) for each in range(port, port + count))


def test_span_has_no_hole() -> None:
    first = free_span(0, count=20)
    assert free_span(first, count=5, given_out={first + 3, first + 9}) == first + 4
    assert free_span(first, count=6, given_out={first + 3, first + 9}) == first + 10


def test_no_span_is_one_sentence() -> None:
    with pytest.raises(Unavailable, match="no 2 free ports in a row"):
        free_span(0, count=2, given_out=range(0, 65536, 2))
