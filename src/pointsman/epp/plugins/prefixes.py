"""How much of a prompt each endpoint probably has cached: remembered from our own picks."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

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
from pointsman.epp.plugins.prefix_index import PrefixIndex
from pointsman.epp.pool.view import CacheConfig, EndpointView
from pointsman.epp.request.request import Needs, Request

_LEAST_BLOCK_TOKENS = 64
_GONE_SECONDS = 120.0


class ApproxPrefixParameters(Parameters):
    """What `approx-prefix-cache-producer` takes."""

    or_default: ClassVar[frozenset[str]] = frozenset(
        (
            "block_size_tokens",
            "lru_capacity_per_server",
        )
    )

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
        for chain in prompt.more:
            total += len(chain)
            for target, count in self.index.match(chain).items():
                found[target] = found.get(target, 0) + count
        matches = PrefixMatches(total=total, block_tokens=prompt.block_tokens, blocks=found, cached=found)
        return {self._key.name: matches}

    def before_send(self, request: Request, results: Results, primary: str) -> HeaderChanges | None:
        """Note that whoever computes the prompt has it from now on."""
        prompt = request.prompt
        if prompt is not None and prompt.blocks:
            for profile in {primary, "prefill"}:
                picked = results.get(profile)
                if picked is not None:
                    for chain in prompt.chains:
                        self._note(picked.first, chain, prompt.block_tokens)
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
