"""The tree of prefixes against a plain model of it: what it finds, what it forgets, and that nothing is left over."""

import os
from collections import OrderedDict
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.epp.plugins.prefix_index import PrefixIndex

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "500"))


def test_the_longest_common_beginning_counts() -> None:
    index = PrefixIndex()
    index.add("a", [1, 2, 3, 4], capacity=100)
    index.add("b", [1, 2, 9], capacity=100)
    assert index.match([1, 2, 3, 4, 5]) == {"a": 4, "b": 2}
    assert index.match([1]) == {"a": 1, "b": 1}
    assert index.match([1, 2, 9]) == {"a": 2, "b": 3}
    assert index.match([7]) == {}
    assert index.match([]) == {}
    assert len(index) == 7


def test_a_long_prompt_loses_its_end_and_keeps_its_beginning() -> None:
    index = PrefixIndex()
    index.add("a", [1, 2, 3, 4], capacity=3)
    assert index.match([1, 2, 3, 4]) == {"a": 3}
    index.add("a", [1, 7], capacity=3)
    assert index.match([1, 2, 3, 4]) == {"a": 2}, "7 took the place of 3, the end of the older prompt"


def test_what_was_lost_in_part_comes_back_whole() -> None:
    index = PrefixIndex()
    index.add("a", [1, 2, 3, 4], capacity=4)
    index.add("a", [9], capacity=4)
    assert index.match([1, 2, 3, 4]) == {"a": 3}
    index.add("b", [1, 2, 3, 4], capacity=4)
    assert index.match([1, 2, 3, 4]) == {"a": 3, "b": 4}
    index.add("a", [1, 2, 3, 4], capacity=4)
    assert index.match([1, 2, 3, 4]) == {"a": 4, "b": 4}
    assert index.match([9]) == {}


class Model:
    """The same by plain means: one LRU of blocks for each endpoint, a chain noted from its end to its beginning."""

    def __init__(self) -> None:
        self.memories: dict[str, OrderedDict[int, None]] = {}

    def add(self, target: str, blocks: Sequence[int], *, capacity: int) -> None:
        memory = self.memories.setdefault(target, OrderedDict())
        for block in reversed(blocks[:capacity]):
            memory[block] = None
            memory.move_to_end(block)
        while len(memory) > capacity:
            memory.popitem(last=False)

    def match(self, blocks: Sequence[int]) -> dict[str, int]:
        counts = {target: self.walk(memory, blocks) for target, memory in self.memories.items()}
        anywhere = {target: sum(block in memory for block in blocks) for target, memory in self.memories.items()}
        assert counts == anywhere, "contiguous and any are the same"
        return {target: count for target, count in counts.items() if count}

    def walk(self, memory: OrderedDict[int, None], blocks: Sequence[int]) -> int:
        return next((at for at, block in enumerate(blocks) if block not in memory), len(blocks))


def chain(path: Sequence[int]) -> list[int]:
    """Return hashes for a path in a tree, so that chains share beginnings as real ones do."""
    return [hash(tuple(path[: at + 1])) & 0xFFFF_FFFF_FFFF_FFFF for at in range(len(path))]


paths = st.lists(st.integers(0, 1), min_size=1, max_size=9)
steps = st.tuples(st.sampled_from("abc"), paths, st.sampled_from(("add", "add", "add", "add", "forget")))


@settings(max_examples=EXAMPLES)
@given(st.lists(steps, max_size=60), st.integers(1, 20))
def test_fuzz_it_is_what_the_model_is(history: list[tuple[str, list[int], str]], capacity: int) -> None:
    index, model = PrefixIndex(), Model()
    for target, path, what in history:
        if what == "forget":
            index.forget(target)
            model.memories.pop(target, None)
        else:
            index.add(target, chain(path), capacity=capacity)
            model.add(target, chain(path), capacity=capacity)
        assert len(index) == sum(map(len, model.memories.values()))
        assert index.match(chain(path)) == model.match(chain(path))
    for _, path, _ in history:
        assert index.match(chain(path)) == model.match(chain(path))
    for target in list(index.targets):
        index.forget(target)
    assert not index._root.children and not index._targets, "nothing is left over"


def test_a_heap_of_old_news_is_tidied() -> None:
    index = PrefixIndex()
    for _ in range(1000):
        index.add("a", [1, 2, 3], capacity=10)
    assert len(index._memories["a"].heap) < 100
