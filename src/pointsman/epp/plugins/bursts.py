"""Requests that share a prompt and come together go to the same endpoint, before any cache knows of them.

The samples of one prompt (best of n, a rollout of reinforcement learning, agents that fan out) arrive within
milliseconds. The Go picker holds every request back for a window and then places all of them at once. Here nobody
waits: a decision sees all decisions before it, so the first request of a group goes where the other scorers want it,
and what comes within the window follows it there, up to `maxPerReplica`, then to the least loaded endpoint of the
window. What it costs: a first request gets no say in where the group goes; what it saves is the window, for everybody.

Placements live in two generations of one window each, so a burst that crosses the border is one burst, and what is
remembered is bounded by `maxBatchSize`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, model_validator

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
from pointsman.epp.request.request import Needs, Request

_MOST_BLOCKS = 2048
_NO_LIMIT = -1
_EVERYTHING = 1 << 40  # blocks: a generation forgets all at once, never a part


class BurstPrefixParameters(Parameters):
    """What `burst-prefix-cache-producer` takes."""

    window_duration_ms: int = Field(default=100, ge=1, le=10_000, description="How long a burst is remembered.")
    max_per_replica: int = Field(default=_NO_LIMIT, ge=-1, description="Requests of one prompt per endpoint; -1: all.")
    block_size_tokens: int = Field(default=64, ge=1)
    max_prefix_tokens_to_match: int = Field(default=0, ge=0, description="0: 2048 blocks.")
    min_colocate_blocks: int = Field(default=0, ge=0, description="Blocks that different prompts must share; 0: never.")
    max_batch_size: int = Field(default=1000, ge=-1, description="Requests that a window remembers; -1: all.")
    balance_by: Literal["requests", "tokens"] = "requests"

    @model_validator(mode="after")
    def _usable(self) -> "BurstPrefixParameters":
        for name, value in (("maxPerReplica", self.max_per_replica), ("maxBatchSize", self.max_batch_size)):
            if value == 0:
                raise ValueError(f"{name} must be -1 (no limit) or at least 1, not 0")
        if 0 < self.max_prefix_tokens_to_match < self.block_size_tokens:
            raise ValueError(
                "maxPrefixTokensToMatch must be 0 or at least blockSizeTokens: it leaves no block to match"
            )
        return self


@dataclass(slots=True)
class Generation:
    """What was placed within one window."""

    began: float
    index: PrefixIndex = field(default_factory=PrefixIndex)
    groups: dict[int, Counter[str]] = field(default_factory=dict)  # by the prompt's last block: requests per target
    load: Counter[str] = field(default_factory=Counter)  # by target, in requests or in blocks to compute
    size: int = 0  # requests


class BurstPrefixCacheProducer:
    """Sends requests that share a prompt and come together to the same endpoint."""

    def __init__(self, parameters: BurstPrefixParameters, *, context: Context) -> None:
        self._parameters = parameters
        self._window = parameters.window_duration_ms / 1000
        self._most = float("inf") if parameters.max_per_replica == _NO_LIMIT else parameters.max_per_replica
        self._clock: Callable[[], float] = context.clock
        self._key = Key[PrefixMatches](PREFIX_MATCHES, producer=context.name)
        self._now, self._before = Generation(self._clock()), Generation(self._clock())
        self.produces = (self._key,)

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return how prompts are to be hashed."""
        wanted = self._parameters
        limit = wanted.max_prefix_tokens_to_match // wanted.block_size_tokens or _MOST_BLOCKS
        return Needs(body=True, prompt=True, block_tokens=wanted.block_size_tokens, max_blocks=limit)

    def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object]:
        """Return a full match at the endpoint that the request's burst is at; nothing when it is in none."""
        prompt = request.prompt
        if prompt is None or not prompt.blocks or not endpoints:
            return {}
        self._turn()
        known = self._known(prompt.blocks)
        target = self._place(prompt.blocks, [endpoint.target for endpoint in endpoints], known=known)
        if target is None:
            return {}
        total = len(prompt.blocks)
        matches = PrefixMatches(
            total=total,
            block_tokens=prompt.block_tokens,
            blocks={target: total},
            cached={target: known[target]} if target in known else {},
        )
        return {self._key.name: matches}

    def before_send(self, request: Request, results: Results, primary: str) -> HeaderChanges | None:
        """Note where the request goes, for those that come after it."""
        prompt = request.prompt
        if prompt is not None and prompt.blocks:
            self._turn()
            picks = (results.get(profile) for profile in (primary, "prefill"))
            self._note({picked.first.target for picked in picks if picked is not None}, prompt.blocks)
        return None

    def _turn(self) -> None:
        """Begin a new generation when the window is over; after two, nothing of before is left."""
        now = self._clock()
        if now - self._now.began >= self._window:
            recent = now - self._now.began < 2 * self._window
            self._before, self._now = self._now if recent else Generation(now), Generation(now)

    def _known(self, blocks: Sequence[int]) -> Mapping[str, int]:
        """Return how many leading blocks of a prompt were placed at each target."""
        found = self._before.index.match(blocks)
        for target, count in self._now.index.match(blocks).items():
            found[target] = max(count, found.get(target, 0))
        return found

    def _place(self, blocks: Sequence[int], targets: Sequence[str], *, known: Mapping[str, int]) -> str | None:
        nobody: Counter[str] = Counter()
        group = self._now.groups.get(blocks[-1], nobody) + self._before.groups.get(blocks[-1], nobody)
        load = self._now.load + self._before.load
        if group:
            begun = [target for target in targets if 0 < group[target] < self._most]
            if begun:
                return max(begun, key=lambda target: group[target])  # one is filled before the next
            return min(targets, key=lambda target: (group[target], load[target]))
        if not self._parameters.min_colocate_blocks:
            return None
        share = (load.total() + 1) / len(targets)
        least = self._parameters.min_colocate_blocks
        near = [target for target in targets if known.get(target, 0) >= least and load[target] < share]
        return max(near, key=lambda target: (known[target], -load[target]), default=None)

    def _note(self, targets: Iterable[str], blocks: Sequence[int]) -> None:
        generation, most = self._now, self._parameters.max_batch_size
        if generation.size >= most != _NO_LIMIT:
            return
        generation.size += 1
        known = self._known(blocks) if self._parameters.balance_by == "tokens" else None
        group = generation.groups.setdefault(blocks[-1], Counter())
        for target in targets:
            group[target] += 1
            generation.load[target] += 1 if known is None else len(blocks) - known.get(target, 0)
            generation.index.add(target, blocks, capacity=_EVERYTHING)
