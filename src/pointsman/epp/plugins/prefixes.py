"""Who probably has which prompt prefix cached: remembered from our own picks, one bounded memory per endpoint.

Prompts come as chains of block hashes, each of which stands for the whole prompt up to its block. Every endpoint has
its own LRU of hashes, and `owners` maps a hash to the set of endpoints that have it, as the bits of one integer.

The invariant that makes a match cheap: **an endpoint that has a block has all blocks before it.** A chain is noted from
its end to its beginning, so a block is always younger than its successors, and the LRU drops successors first (as
vLLM frees blocks). So owners only ever shrink along a chain, every match is contiguous, and where a set of endpoints
ends is found by bisection instead of by walking thousands of blocks. It also means that matching "any" block, as the
Go picker does, gives the same result.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from pointsman.epp.plugins.api import (
    PREFIX_MATCHES,
    Context,
    Endpoints,
    HeaderChanges,
    Key,
    Parameters,
    PrefixMatches,
    Results,
)
from pointsman.epp.request import Needs, Request
from pointsman.epp.view import CacheConfig, EndpointView

_LEAST_BLOCK_TOKENS = 64
_GONE_SECONDS = 120.0


class PrefixIndex:
    """The memory: which endpoint has which blocks."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._memories: dict[str, OrderedDict[int, None]] = {}  # by target, oldest block first
        self._bits: dict[str, int] = {}
        self._slots: dict[int, str] = {}  # which target a bit stands for
        self._free: list[int] = []

    def __len__(self) -> int:
        """The number of blocks over all endpoints."""
        return sum(map(len, self._memories.values()))

    @property
    def targets(self) -> frozenset[str]:
        """The endpoints that have something."""
        return frozenset(self._memories)

    def add(self, target: str, blocks: Sequence[int], *, capacity: int) -> None:
        """Note that an endpoint has, or is about to have, a chain."""
        memory = self._memories.get(target)
        if memory is None:
            memory = self._memories[target] = OrderedDict()
            slot = self._free.pop() if self._free else len(self._bits)
            self._bits[target] = 1 << slot
            self._slots[slot] = target
        owners, bit = self._owners, self._bits[target]
        for block in reversed(blocks[:capacity]):
            if block in memory:
                memory.move_to_end(block)
            else:
                memory[block] = None
                owners[block] = owners.get(block, 0) | bit
        while len(memory) > capacity:
            self._disown(memory.popitem(last=False)[0], bit)

    def _disown(self, block: int, bit: int) -> None:
        left = self._owners[block] & ~bit
        if left:
            self._owners[block] = left
        else:
            del self._owners[block]

    def forget(self, target: str) -> None:
        """Drop all that belongs to an endpoint."""
        memory = self._memories.pop(target, None)
        if memory is not None:
            bit = self._bits.pop(target)
            slot = bit.bit_length() - 1
            self._free.append(slot)
            del self._slots[slot]
            for block in memory:
                self._disown(block, bit)

    def match(self, blocks: Sequence[int]) -> dict[str, int]:
        """Return for each endpoint that has the chain's beginning how many of its blocks it has."""
        owners = self._owners
        alive = owners.get(blocks[0], 0) if blocks else 0
        found: dict[str, int] = {}
        count = 0
        while alive:
            count = self._last_of(blocks, alive, low=count) + 1
            rest = alive & owners.get(blocks[count], 0) if count < len(blocks) else 0
            ended = alive & ~rest
            while ended:
                lowest = ended & -ended
                found[self._slots[lowest.bit_length() - 1]] = count
                ended ^= lowest
            alive = rest
        return found

    def _last_of(self, blocks: Sequence[int], alive: int, *, low: int) -> int:
        """Return the last block that everyone in `alive` has; they all have the one at `low`."""
        owners, high = self._owners, len(blocks)
        while high - low > 1:
            middle = (low + high) >> 1
            if owners.get(blocks[middle], 0) & alive == alive:
                low = middle
            else:
                high = middle
        return low


class ApproxPrefixParameters(Parameters):
    """What `approx-prefix-cache-producer` takes."""

    auto_tune: bool = Field(default=True, description="Take block size and capacity from the servers' cache config.")
    block_size_tokens: int = Field(default=16, ge=1, description="Tokens per block; below 64 it is 64.")
    max_prefix_tokens_to_match: int = Field(default=131_072, ge=0)
    max_prefix_blocks_to_match: int = Field(default=2048, ge=0, description="Used when the token limit is 0.")
    lru_capacity_per_server: int = Field(default=31_250, ge=1)
    block_size: int | None = Field(default=None, ge=1, description="Deprecated: block size in characters, ignored.")
    match_mode: Literal["contiguous", "any"] = Field(default="contiguous", description="Both find the same here.")


class ApproxPrefixCacheProducer:
    """Finds out how much of the prompt each endpoint has cached, by what was sent there before."""

    def __init__(self, parameters: ApproxPrefixParameters, *, context: Context) -> None:
        self._parameters = parameters
        self._clock: Callable[[], float] = context.clock
        self._key = Key[PrefixMatches](PREFIX_MATCHES, producer=context.name)
        self._gone: dict[str, float] = {}
        self.index = PrefixIndex()
        self.produces = (self._key,)

    def needs(self, endpoints: Endpoints) -> Needs:
        """Return how prompts are to be hashed: by the first endpoint's block size, if that is to decide."""
        wanted = self._parameters
        block = wanted.block_size_tokens
        if wanted.auto_tune and endpoints and endpoints[0].metrics.cache.block_tokens:
            block = endpoints[0].metrics.cache.block_tokens
        block = max(block, _LEAST_BLOCK_TOKENS)
        if wanted.max_prefix_tokens_to_match:
            limit = max(1, wanted.max_prefix_tokens_to_match // block)
        else:
            limit = wanted.max_prefix_blocks_to_match
        return Needs(body=True, prompt=True, block_tokens=block, max_blocks=limit)

    def produce(self, request: Request, _endpoints: Endpoints) -> Mapping[str, object]:
        """Return the matches, when the prompt was hashed."""
        prompt = request.prompt
        if prompt is None or not prompt.blocks:
            return {}
        found = self.index.match(prompt.blocks)
        total = len(prompt.blocks)
        matches = PrefixMatches(total=total, block_tokens=prompt.block_tokens, blocks=found, cached=found)
        return {self._key.name: matches}

    def before_send(self, request: Request, results: Results, primary: str) -> HeaderChanges | None:
        """Note that whoever computes the prompt has it from now on."""
        if request.prompt is not None and request.prompt.blocks:
            for profile in {primary, "prefill"}:
                picked = results.get(profile)
                if picked is not None:
                    self._note(picked.first, request.prompt.blocks, request.prompt.block_tokens)
        return None

    def _note(self, endpoint: EndpointView, blocks: Sequence[int], block_tokens: int) -> None:
        capacity = self._parameters.lru_capacity_per_server
        if self._parameters.auto_tune:
            capacity = tuned(endpoint.metrics.cache, block_tokens) or capacity
        self.index.add(endpoint.target, blocks, capacity=capacity)

    def on_endpoints(self, targets: frozenset[str]) -> None:
        """Forget endpoints that have been away for two minutes; a short absence costs no memory."""
        now = self._clock()
        self._gone = {target: self._gone.get(target, now) for target in self.index.targets - targets}
        for target in [each for each, since in self._gone.items() if now - since >= _GONE_SECONDS]:
            self.index.forget(target)
            del self._gone[target]


def tuned(cache: CacheConfig, block_tokens: int) -> int:
    """Return how many of our blocks fit into a server's cache; 0 when it does not say."""
    return cache.blocks * cache.block_tokens // block_tokens
