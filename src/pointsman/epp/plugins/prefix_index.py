"""Which endpoint has which prompt prefix: a tree of block chains that endpoints share, and a bounded memory for each.

Prompts come as chains of block hashes, each of which stands for the whole prompt up to its block, so two equal hashes
mean two equal beginnings. A run of blocks that nobody has left in the middle is one node, as long as it may be: noting
a prompt of a thousand blocks, or finding how far it is known, takes as many steps as there are forks on its way. Where
two chains differ within a node is found by bisection.

The invariant: **an endpoint that has a block has all blocks before it.** Noting a chain makes all nodes on its way the
newest of that endpoint, so a node is never older than those below it; what an endpoint has too much of it loses from
its oldest nodes, the deepest first and each from its end (as vLLM frees blocks). A node whose end was lost is had in
part. So every match is contiguous, and matching "any" block, as the Go picker does, finds the same.
"""

from array import array
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

_SPARE = 64  # outdated entries of a heap that are no reason to tidy it


class _Node:
    """A run of blocks behind another run."""

    __slots__ = ("blocks", "children", "owners", "parent", "partial", "start")

    def __init__(self, blocks: "array[int]", *, start: int, parent: "_Node | None") -> None:
        self.blocks = blocks
        self.start = start  # how many blocks come before it
        self.parent = parent
        self.children: dict[int, _Node] = {}  # by their first block
        self.owners = 0  # who has all of it, as bits
        self.partial: dict[int, int] = {}  # how much of its beginning others have, by bit

    def common(self, blocks: Sequence[int]) -> int:
        """Return how far a chain, whose block at `start` is the first here, agrees."""
        start, high = self.start, min(len(self.blocks), len(blocks) - self.start)
        if self.blocks[high - 1] == blocks[start + high - 1]:
            return high
        low = 1
        while high - low > 1:
            middle = (low + high) >> 1
            if self.blocks[middle - 1] == blocks[start + middle - 1]:
                low = middle
            else:
                high = middle
        return low


class _Memory:
    """What one endpoint has."""

    __slots__ = ("bit", "heap", "size", "ticks")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.size = 0  # in blocks
        self.ticks: dict[_Node, int] = {}  # when each node was last noted
        self.heap: list[tuple[int, int, _Node]] = []  # oldest first, then deepest first; may be outdated

    def note(self, node: _Node, tick: int) -> None:
        self.ticks[node] = tick
        heappush(self.heap, (tick, -node.start, node))
        if len(self.heap) > 2 * len(self.ticks) + _SPARE:
            self.heap = [(tick, -node.start, node) for node, tick in self.ticks.items()]
            heapify(self.heap)

    def oldest(self) -> _Node:
        """Return the node to lose next."""
        while True:
            tick, _, node = self.heap[0]
            if self.ticks.get(node) == tick:
                return node
            heappop(self.heap)  # noted again since, or lost


class PrefixIndex:
    """All that is known."""

    def __init__(self) -> None:
        self._root = _Node(array("Q"), start=0, parent=None)
        self._memories: dict[str, _Memory] = {}
        self._targets: dict[int, str] = {}  # by bit
        self._free: list[int] = []
        self._tick = 0

    def __len__(self) -> int:
        """The number of blocks over all endpoints."""
        return sum(memory.size for memory in self._memories.values())

    @property
    def targets(self) -> frozenset[str]:
        """The endpoints that have something."""
        return frozenset(self._memories)

    def add(self, target: str, blocks: Sequence[int], *, capacity: int) -> None:
        """Note that an endpoint has, or is about to have, a chain."""
        memory = self._memories.get(target) or self._remember(target)
        self._tick += 1
        bit = memory.bit
        for node in self._way(blocks[:capacity]):
            if not node.owners & bit:
                node.owners |= bit
                memory.size += len(node.blocks) - node.partial.pop(bit, 0)
            memory.note(node, self._tick)
        while memory.size > capacity:
            self._lose(memory, memory.size - capacity)

    def match(self, blocks: Sequence[int]) -> dict[str, int]:
        """Return for each endpoint that has the chain's beginning how many of its blocks it has."""
        found: dict[str, int] = {}
        at, alive, children = 0, -1, self._root.children
        while at < len(blocks) and (node := children.get(blocks[at])) is not None:
            agreed = node.common(blocks)
            for bit, count in node.partial.items():
                found[self._targets[bit]] = at + min(count, agreed)
                alive &= ~bit
            if at:
                self._tell(alive & ~node.owners, at, found)
            alive &= node.owners
            at += agreed
            if agreed < len(node.blocks):
                break
            children = node.children
        if at:
            self._tell(alive, at, found)
        return found

    def forget(self, target: str) -> None:
        """Drop all that belongs to an endpoint."""
        memory = self._memories.pop(target, None)
        if memory is not None:
            while memory.size:
                self._lose(memory, memory.size)
            del self._targets[memory.bit]
            self._free.append(memory.bit)

    def _tell(self, owners: int, count: int, found: dict[str, int]) -> None:
        for bit in _bits(owners):
            found[self._targets[bit]] = count

    def _remember(self, target: str) -> _Memory:
        bit = self._free.pop() if self._free else 1 << len(self._targets)
        self._targets[bit] = target
        memory = self._memories[target] = _Memory(bit)
        return memory

    def _way(self, blocks: Sequence[int]) -> Iterator[_Node]:
        """Return the nodes that a chain consists of; nodes that it leaves in the middle are split, new ones made."""
        node, at = self._root, 0
        while at < len(blocks):
            child = node.children.get(blocks[at])
            if child is None:
                child = node.children[blocks[at]] = _Node(array("Q", blocks[at:]), start=at, parent=node)
            else:
                agreed = child.common(blocks)
                if agreed < len(child.blocks):
                    self._split(child, agreed)
            yield child
            node, at = child, at + len(child.blocks)

    def _split(self, node: _Node, at: int) -> None:
        """Make two nodes of one, of the same age."""
        rest = _Node(node.blocks[at:], start=node.start + at, parent=node)
        rest.children, node.children = node.children, {rest.blocks[0]: rest}
        for child in rest.children.values():
            child.parent = rest
        rest.owners = node.owners
        rest.partial = {bit: count - at for bit, count in node.partial.items() if count > at}
        node.owners |= sum(bit for bit, count in node.partial.items() if count >= at)
        node.partial = {bit: count for bit, count in node.partial.items() if count < at}
        node.blocks = node.blocks[:at]
        for bit in (*_bits(rest.owners), *rest.partial):
            memory = self._memories[self._targets[bit]]
            memory.note(rest, memory.ticks[node])

    def _lose(self, memory: _Memory, count: int) -> None:
        """Take so many blocks, or a whole node, from an endpoint."""
        node, bit = memory.oldest(), memory.bit
        has = node.partial.pop(bit, 0) or len(node.blocks)
        node.owners &= ~bit
        memory.size -= min(has, count)
        if count < has:
            node.partial[bit] = has - count
            return
        del memory.ticks[node]
        if not node.owners and not node.partial and node.parent is not None:
            del node.parent.children[node.blocks[0]]


def _bits(owners: int) -> Iterator[int]:
    while owners:
        bit = owners & -owners
        yield bit
        owners ^= bit
