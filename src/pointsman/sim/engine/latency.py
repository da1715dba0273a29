"""How long work takes: one interface, `step_time(batch) -> seconds`, and the models behind it.

`PacedModel` is llm-d-inference-sim's, constant or per token (same flags, same clamp, same load factor): every request
runs on its own, so it is asked about one sequence at a time. `stepmodel.StepModel` is a GPU: one step serves the whole
batch. Nothing here is rounded; the Go simulator cuts to whole milliseconds, so that its 0.1 ms means zero.

Random parts come from a `Chance` of the sequence asked about; models hold no state, so one serves many engines.
"""

from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from pointsman.sim.engine.chance import Chance

LOW, HIGH = 0.3, 1.7  # a sample leaves the band around its mean nowhere, as in the Go simulator


class Batch(Struct, frozen=True):
    """What one step computes; for the paced model, the part of one sequence."""

    prefill_tokens: int = 0  # prompt tokens computed in this step
    prefill_context: int = 0  # sum over chunks of chunk * (tokens before it + chunk / 2): attention's work
    decode_seqs: int = 0
    context_tokens: int = 0  # tokens that the decoding sequences look back on
    running: int = 1  # sequences in the engine
    prompts: int = 0  # that have tokens in the step
    remote_tokens: int = 0  # prompt tokens whose KV blocks come from another engine
    chance: Chance | None = None


class LatencyModel(Protocol):
    """The interface of all models."""

    def step_time(self, batch: Batch, /) -> float:
        """Return the seconds that the batch takes."""
        ...


class StepLatency(LatencyModel, Protocol):
    """A model of shared steps, which also knows what the host does, and how long blocks from elsewhere take."""

    def host_time(self, batch: Batch, /) -> tuple[float, float]:
        """Return the seconds that the host needs before the GPU can begin, and before it can end."""
        ...

    def transfer_time(self, tokens: int, /) -> float:
        """Return the seconds until the KV blocks of so many tokens have arrived."""
        ...

    def paced(self, pace: "Pace", /) -> "StepLatency":
        """Return the model at another pace; steps themselves have theirs from a recording."""
        ...


def sample(mean: float, *, deviation: float, chance: Chance | None) -> float:
    """Return a normal draw within 30 % and 170 % of the mean."""
    if not deviation or chance is None:
        return mean
    return min(max(chance.gauss(mean, deviation), LOW * mean), HIGH * mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The Go simulator's latency settings, in seconds."""

    calculator: str = ""
    time_to_first_token: float = 0.0
    time_to_first_token_std_dev: float = 0.0
    inter_token_latency: float = 0.0
    inter_token_latency_std_dev: float = 0.0
    prefill_overhead: float = 0.0
    prefill_time_per_token: float = 0.0
    prefill_time_std_dev: float = 0.0
    kv_cache_transfer_latency: float = 0.0
    kv_cache_transfer_latency_std_dev: float = 0.0
    kv_cache_transfer_time_per_token: float = 0.0
    kv_cache_transfer_time_std_dev: float = 0.0
    time_factor_under_load: float = 1.0
    max_num_seqs: int = 5

    @property
    def constant_prefill(self) -> bool:
        """Whether the first token takes a fixed time; without a choice, whether such a time was set."""
        if self.calculator:
            return self.calculator == "constant"
        return bool(self.time_to_first_token or self.time_to_first_token_std_dev)

    @property
    def constant_transfer(self) -> bool:
        """The same question for KV blocks that come from elsewhere."""
        if self.calculator:
            return self.calculator == "constant"
        return bool(self.kv_cache_transfer_latency or self.kv_cache_transfer_latency_std_dev)

    def load(self, running: int) -> float:
        """Return the factor by which a loaded engine is slower: 1 alone, the configured one when full."""
        if self.max_num_seqs <= 1:
            return 1.0
        return 1.0 + (self.time_factor_under_load - 1.0) * (running - 1) / (self.max_num_seqs - 1)


@dataclass(frozen=True, slots=True)
class PacedModel:
    """llm-d-inference-sim's latencies: a sequence knows how long it takes, whatever else runs, but for one factor."""

    pace: Pace
    varies: bool = field(init=False)  # whether anything is drawn at random
    steady: float | None = field(init=False)  # between tokens, where it is the same for every one and any load
    free: bool = field(init=False)  # whether prompts take no time at all

    def __post_init__(self) -> None:
        pace = self.pace
        varies = bool(
            pace.inter_token_latency_std_dev
            or pace.time_to_first_token_std_dev
            or pace.prefill_time_std_dev
            or pace.kv_cache_transfer_latency_std_dev
            or pace.kv_cache_transfer_time_std_dev
        )
        moves = pace.inter_token_latency_std_dev or pace.time_factor_under_load != 1.0
        costs = pace.time_to_first_token or pace.prefill_overhead or pace.prefill_time_per_token
        object.__setattr__(self, "varies", varies)
        object.__setattr__(self, "steady", None if moves else pace.inter_token_latency)
        object.__setattr__(self, "free", not varies and not costs)

    def step_time(self, batch: Batch, /) -> float:
        if batch.decode_seqs:
            return self._decode(batch)
        return self._transfer(batch) if batch.remote_tokens else self._prefill(batch)

    def _decode(self, batch: Batch) -> float:
        pace = self.pace
        mean = pace.inter_token_latency
        if pace.time_factor_under_load != 1.0:
            mean *= pace.load(batch.running)
        return sample(mean, deviation=pace.inter_token_latency_std_dev, chance=batch.chance)

    def _prefill(self, batch: Batch) -> float:
        pace = self.pace
        load = pace.load(batch.running)
        if pace.constant_prefill:
            mean, deviation = pace.time_to_first_token, pace.time_to_first_token_std_dev
        else:
            mean = pace.prefill_overhead + batch.prefill_tokens * pace.prefill_time_per_token
            deviation = pace.prefill_time_std_dev
        return sample(mean * load, deviation=deviation, chance=batch.chance)

    def _transfer(self, batch: Batch) -> float:
        pace = self.pace
        if pace.constant_transfer:
            mean, deviation = pace.kv_cache_transfer_latency, pace.kv_cache_transfer_latency_std_dev
        else:
            mean = batch.remote_tokens * pace.kv_cache_transfer_time_per_token
            deviation = pace.kv_cache_transfer_time_std_dev
        return sample(mean, deviation=deviation, chance=batch.chance)
