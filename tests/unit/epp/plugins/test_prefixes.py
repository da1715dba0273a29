"""What is known of a prompt at each endpoint: by what was sent there, and for how long."""

from typing import Any

import pytest
from tests.unit.epp.plugins.making import endpoint, make, request

from pointsman.epp.plugins.api import Picked
from pointsman.epp.plugins.prefixes import tuned
from pointsman.epp.pool.view import CacheConfig, EndpointMetrics, EndpointView
from pointsman.epp.request.request import Prompt, Request


def prompt(*blocks: int) -> Request:
    return request(prompt=Prompt(tokens=64 * len(blocks), block_tokens=64, blocks=blocks))


def sent(target: str) -> Picked:
    view = endpoint(target, target=target)
    return Picked(endpoints=[view], candidates=[view], scores=[1.0])


def found(producer: object, seen: Request) -> dict[str, int]:
    facts = producer.produce(seen, [])  # type: ignore[attr-defined] # a plugin by its methods
    (matches,) = facts.values()
    return dict(matches.blocks)


def test_the_oldest_prompt_is_forgotten_first() -> None:
    producer = make("approx-prefix-cache-producer", autoTune=False, lruCapacityPerServer=2)
    for block in (1, 2, 3):
        producer.before_send(prompt(block), {"default": sent("a")}, "default")
    assert found(producer, prompt(1)) == {}
    assert found(producer, prompt(2)) == {"a": 1}
    assert found(producer, prompt(3)) == {"a": 1}


def test_primary_and_prefill_endpoints_are_noted() -> None:
    producer = make("approx-prefix-cache-producer")
    producer.before_send(prompt(1, 2), {"decode": sent("d"), "prefill": sent("p"), "encode": sent("e")}, "decode")
    assert found(producer, prompt(1, 2)) == {"d": 2, "p": 2}


@pytest.mark.parametrize(
    ("parameters", "block", "expected"),
    [
        pytest.param({}, 16, (64, 2048), id="defaults have a floor of 64"),
        pytest.param({}, 128, (128, 1024), id="the server's larger blocks"),
        pytest.param({"autoTune": False, "blockSizeTokens": 256}, 128, (256, 512), id="not tuned"),
        pytest.param({"maxPrefixTokensToMatch": 0}, 0, (64, 2048), id="limit in blocks"),
        pytest.param({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 0}, 0, (64, 0), id="no limit"),
        pytest.param({"maxPrefixTokensToMatch": 4096}, 0, (64, 64), id="limit in tokens"),
    ],
)
def test_how_prompts_are_to_be_hashed(parameters: dict[str, Any], block: int, expected: tuple[int, int]) -> None:
    producer = make("approx-prefix-cache-producer", **parameters)
    view = EndpointView(
        name="a",
        target="a",
        address="a",
        port=1,
        metrics=EndpointMetrics(cache=CacheConfig(block_tokens=block, blocks=10)),
    )
    needs = producer.needs([view])
    assert needs.body and needs.prompt
    assert (needs.block_tokens, needs.max_blocks) == expected


def test_capacity_is_the_servers_when_it_says_so() -> None:
    assert tuned(CacheConfig(block_tokens=16, blocks=1000), 64) == 250
    assert tuned(CacheConfig(), 64) == 0


def test_an_endpoint_is_forgotten_when_it_stays_away() -> None:
    now = 0.0
    producer = make("approx-prefix-cache-producer")
    producer._clock = lambda: now
    producer.before_send(prompt(1), {"default": sent("a")}, "default")
    producer.on_endpoints(frozenset())
    now = 60.0
    producer.on_endpoints(frozenset({"a"}))
    producer.on_endpoints(frozenset())
    now = 179.0
    producer.on_endpoints(frozenset())
    assert found(producer, prompt(1)) == {"a": 1}, "away since 60, so 119 s"
    now = 180.0
    producer.on_endpoints(frozenset())
    assert found(producer, prompt(1)) == {}


def test_a_prompt_that_was_not_hashed_gives_nothing() -> None:
    producer = make("approx-prefix-cache-producer")
    assert producer.produce(request(), []) == {}
    assert producer.produce(request(prompt=Prompt(tokens=5)), []) == {}
