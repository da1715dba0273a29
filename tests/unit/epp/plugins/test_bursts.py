"""Who follows whom when requests with one prompt come together, for how long, and until when an endpoint is full."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.clock import Clock
from tests.unit.epp.plugins.making import endpoint, make, request

from pointsman.epp.plugins.api import Context, Picked
from pointsman.epp.plugins.bursts import BurstPrefixCacheProducer, BurstPrefixParameters
from pointsman.epp.request.request import Prompt, Request

ENDPOINTS = [endpoint(name, target=name) for name in "abcd"]


@pytest.fixture
def clock() -> Clock:
    return Clock(5.0)


@pytest.fixture
def burst(clock: Clock) -> Callable[..., BurstPrefixCacheProducer]:
    def made(**parameters: Any) -> BurstPrefixCacheProducer:
        context = Context(name="burst", clock=clock, rng=random.Random(1))
        return BurstPrefixCacheProducer(BurstPrefixParameters(**parameters), context=context)

    return made


def asks(*blocks: int) -> Request:
    return request(prompt=Prompt(tokens=64 * len(blocks), block_tokens=64, blocks=blocks))


def match(producer: BurstPrefixCacheProducer, asked: Request) -> dict[str, int]:
    found = producer.produce(asked, ENDPOINTS)
    return dict(found["PrefixCacheMatchInfo/burst"].blocks) if found else {}  # type: ignore[attr-defined]


def send(producer: BurstPrefixCacheProducer, asked: Request, target: str) -> None:
    view = next(one for one in ENDPOINTS if one.target == target)
    results = {"default": Picked(endpoints=[view], candidates=[view], scores=[1.0])}
    assert producer.before_send(asked, results, "default") is None


def route(producer: BurstPrefixCacheProducer, asked: Request, otherwise: str) -> str:
    """Send a request where its burst is, or where others want it."""
    target = next(iter(match(producer, asked)), otherwise)
    send(producer, asked, target)
    return target


Made = Callable[..., BurstPrefixCacheProducer]


def test_the_first_goes_anywhere_and_the_others_follow(burst: Made) -> None:
    producer = burst()
    assert match(producer, asks(1, 2, 3)) == {}
    send(producer, asks(1, 2, 3), "c")
    assert match(producer, asks(1, 2, 3)) == {"c": 3}
    assert match(producer, asks(1, 2)) == {}, "another prompt, though it shares blocks"


def test_one_endpoint_is_filled_before_the_next(burst: Made) -> None:
    producer = burst(max_per_replica=2)
    send(producer, asks(9), "b")  # b has more to do than the others
    taken = [route(producer, asks(1, 2), otherwise="a") for _ in range(5)]
    assert taken[:2] == ["a", "a"]
    assert taken[2] == taken[3] != "b"
    assert taken[4] not in {"a", taken[2], "b"}
    assert "b" in [route(producer, asks(1, 2), otherwise="a") for _ in range(3)]
    full = [route(producer, asks(1, 2), otherwise="a") for _ in range(4)]
    assert sorted(full) == ["a", "b", "c", "d"], "with every endpoint full the group is balanced"


def test_a_burst_ends_with_its_window(burst: Made, clock: Clock) -> None:
    producer = burst(window_duration_ms=100)
    send(producer, asks(1, 2), "a")
    clock.now += 0.15  # across the border of two windows
    assert match(producer, asks(1, 2)) == {"a": 2}
    clock.now += 0.11
    assert match(producer, asks(1, 2)) == {}


def test_prompts_that_share_enough_go_together_within_their_share(burst: Made) -> None:
    producer = burst(min_colocate_blocks=2)
    send(producer, asks(1, 2, 3), "a")
    assert match(producer, asks(1, 7)) == {}
    for other in "bcd":
        send(producer, asks(ord(other)), other)
    assert match(producer, asks(1, 2, 8)) == {"a": 3}
    for _ in range(4):
        send(producer, asks(1, 2, 3), "a")
    assert match(producer, asks(1, 2, 8)) == {}, "it has more than its share"


@pytest.mark.parametrize(("by", "least"), [("requests", "b"), ("tokens", "a")])
def test_what_is_balanced(burst: Made, by: str, least: str) -> None:
    """Two requests with one short prompt, or one with a long one: who has less to do?"""
    producer = burst(balance_by=by, max_per_replica=1)
    for _ in range(2):
        send(producer, asks(1), "a")
    send(producer, asks(*range(10, 20)), "b")
    for busy in "cd":
        send(producer, asks(ord(busy), 4), busy)
        send(producer, asks(4, ord(busy)), busy)
        send(producer, asks(6, ord(busy)), busy)
    send(producer, asks(50), "c")
    send(producer, asks(50), "d")
    assert set(match(producer, asks(50))) == {least}


def test_a_window_remembers_so_many_and_refuses_nobody(burst: Made) -> None:
    producer = burst(max_batch_size=3)
    for number in range(5):
        send(producer, asks(number), "a")
    assert match(producer, asks(2)) == {"a": 1}
    assert match(producer, asks(3)) == {}


def test_what_an_endpoint_really_has_is_told_apart_from_what_it_is_wanted_for(burst: Made) -> None:
    producer = burst(max_per_replica=1)
    send(producer, asks(1, 2), "a")
    (found,) = producer.produce(asks(1, 2), ENDPOINTS).values()
    (spilled,) = found.blocks  # type: ignore[attr-defined]
    assert spilled != "a"
    assert found.cached == {}  # type: ignore[attr-defined]


def test_prompts_without_blocks_have_no_burst(burst: Made) -> None:
    producer = burst()
    for nothing in (request(), request(prompt=Prompt(tokens=3))):
        assert producer.produce(nothing, ENDPOINTS) == {}
        send(producer, nothing, "a")
    assert producer.produce(asks(1), []) == {}


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"windowDurationMs": 0}, "windowDurationMs"),
        ({"windowDurationMs": 10_001}, "windowDurationMs"),
        ({"maxPerReplica": 0}, "maxPerReplica must be -1"),
        ({"maxBatchSize": 0}, "maxBatchSize must be -1"),
        ({"maxPrefixTokensToMatch": 63}, "at least blockSizeTokens"),
        ({"balanceBy": "bytes"}, "balanceBy"),
    ],
)
def test_parameters_that_make_no_sense(parameters: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        make("burst-prefix-cache-producer", **parameters)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 2048), (640, 10)])
def test_how_much_is_hashed(burst: Made, tokens: int, blocks: int) -> None:
    needs = burst(max_prefix_tokens_to_match=tokens).needs(ENDPOINTS)
    assert (needs.prompt, needs.block_tokens, needs.max_blocks) == (True, 64, blocks)
