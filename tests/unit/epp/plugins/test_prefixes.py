"""The approximate prefix index: what it finds, what it forgets, and the invariant that makes it fast."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.epp.plugins.making import endpoint, make, request

from pointsman.epp.plugins.api import Picked
from pointsman.epp.plugins.prefixes import PrefixIndex, tuned
from pointsman.epp.request import Prompt, Request
from pointsman.epp.view import CacheConfig, EndpointMetrics, EndpointView


def prompt(*blocks: int) -> Request:
    return request(prompt=Prompt(tokens=64 * len(blocks), block_tokens=64, blocks=blocks))


def sent(target: str) -> Picked:
    view = endpoint(target, target=target)
    return Picked(endpoints=[view], candidates=[view], scores=[1.0])


def found(producer: object, seen: Request) -> dict[str, int]:
    facts = producer.produce(seen, [])  # type: ignore[attr-defined] # a plugin by its methods
    (matches,) = facts.values()
    return dict(matches.blocks)


def test_the_longest_common_beginning_counts() -> None:
    index = PrefixIndex()
    index.add("a", [1, 2, 3, 4], capacity=100)
    index.add("b", [1, 2, 9], capacity=100)
    assert index.match([1, 2, 3, 4, 5]) == {"a": 4, "b": 2}
    assert index.match([1]) == {"a": 1, "b": 1}
    assert index.match([2, 3]) == {"a": 2, "b": 1}, "blocks are chained, so this cannot be asked of real prompts"
    assert index.match([7]) == {}
    assert index.match([]) == {}


def test_the_oldest_prompt_is_forgotten_first() -> None:
    producer = make("approx-prefix-cache-producer", autoTune=False, lruCapacityPerServer=2)
    for block in (1, 2, 3):
        producer.before_send(prompt(block), {"default": sent("a")}, "default")
    assert found(producer, prompt(1)) == {}
    assert found(producer, prompt(2)) == {"a": 1}
    assert found(producer, prompt(3)) == {"a": 1}


def test_a_long_prompt_loses_its_end_and_keeps_its_beginning() -> None:
    index = PrefixIndex()
    index.add("a", [1, 2, 3, 4], capacity=3)
    assert index.match([1, 2, 3, 4]) == {"a": 3}
    index.add("a", [1, 7], capacity=3)
    assert index.match([1, 2, 3, 4]) == {"a": 2}, "7 took the place of 3, the end of the older prompt"


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, 8)),
        max_size=30,
    )
)
def test_whoever_has_a_block_has_all_before_it(history: list[tuple[str, list[int], int]]) -> None:
    """Prompts as paths in a tree, so that chains share beginnings as real ones do; checked against plain walking."""
    index = PrefixIndex()
    capacities: dict[str, int] = {}
    for target, path, capacity in history:
        capacities.setdefault(target, capacity)
        index.add(target, chain(path), capacity=capacities[target])
        assert len(index._memories[target]) <= capacities[target]
    for _, path, _ in history:
        blocks = chain(path)
        walked = {target: walk(memory, blocks) for target, memory in index._memories.items()}
        assert index.match(blocks) == {target: count for target, count in walked.items() if count}
        anywhere = {target: sum(block in memory for block in blocks) for target, memory in index._memories.items()}
        assert walked == anywhere, "contiguous and any are the same"
    for target in list(index._memories):
        index.forget(target)
    assert not index._owners and not index._slots and len(index) == 0


def chain(path: Sequence[int]) -> list[int]:
    return [hash(tuple(path[: at + 1])) for at in range(len(path))]


def walk(memory: object, blocks: Sequence[int]) -> int:
    count = 0
    for block in blocks:
        if block not in memory:  # type: ignore[operator] # an OrderedDict
            break
        count += 1
    return count


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
