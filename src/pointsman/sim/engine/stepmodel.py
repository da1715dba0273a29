"""How long a GPU's step takes: what the GPU works, and what the host needs to launch it.

The GPU reads all weights once per step, whatever the batch holds. While it does, some tokens are computed for nothing;
every token beyond them costs the same, prompt or output (a roofline: a floor of memory, a slope of compute). On top
come a little for every decoding sequence, the attention over what sequences look back on (dearer beside a prompt, whose
kernels it shares), the attention inside prompts, and something for each prompt.

The host puts a step together, and then launches it: in one piece when its shape was captured as a CUDA graph (decoding
only), layer by layer when a prompt is in it, kernel by kernel when the batch is larger than the largest captured one.
The GPU cannot begin before the first, nor end before the second; one that would be faster waits for its host.

Everything here is measured (`pointsman sim fit`); numbers are seconds. Models hold no state.
"""

from dataclasses import dataclass, fields
from typing import Any

from pointsman.core.errors import UserError
from pointsman.core.numbers import is_count
from pointsman.sim.engine.latency import Batch, Pace, PacedModel, sample

COUNTS = ("free_tokens", "graph_tokens")
SHARES = ("launch_spread",)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """One GPU with one model and its host."""

    weights: float  # to read all weights: the floor of every step
    free_tokens: int = 0  # computed while the weights are read
    token: float = 0.0  # each token beyond those
    decode_seq: float = 0.0  # each decoding sequence
    context_token: float = 0.0  # each token that decoding sequences look back on
    mixed_context_token: float = 0.0  # the same in a step with a prompt
    prefill_context: float = 0.0  # each pair of a prompt token and one that it looks back on
    prompt: float = 0.0  # each prompt, or part of one, in the step
    prepare: float = 0.0  # host: until the GPU can begin
    launch_graph: float = 0.0  # host: from there, a step that only decodes
    launch_piecewise: float = 0.0  # host: a step with a prompt
    launch_eager: float = 0.0  # host: a step beyond the largest graph
    host_seq: float = 0.0  # host: each running sequence
    host_token: float = 0.0  # host: each prompt token in the step
    launch_spread: float = 0.0  # by what share launches with a prompt vary (standard deviation)
    graph_tokens: int = 0  # the largest captured batch; 0: not known, no step is beyond it
    transfer_token: float = 0.0  # each prompt token whose KV blocks come from another engine

    def step_time(self, batch: Batch, /) -> float:
        """Return the seconds that the GPU works."""
        prefill, decoding = batch.prefill_tokens, batch.decode_seqs
        seconds = self.weights + self.decode_seq * decoding
        beyond = prefill + decoding - self.free_tokens
        if beyond > 0:
            seconds += self.token * beyond
        if not prefill:
            return seconds + self.context_token * batch.context_tokens
        seconds += self.mixed_context_token * batch.context_tokens + self.prefill_context * batch.prefill_context
        return seconds + self.prompt * batch.prompts

    def host_time(self, batch: Batch, /) -> tuple[float, float]:
        """Return the seconds until the GPU can begin with the step, and until all of it is launched."""
        ready = self.prepare + self.host_seq * batch.running
        if not batch.prefill_tokens:
            large = self.graph_tokens and batch.decode_seqs > self.graph_tokens
            return ready, ready + (self.launch_eager if large else self.launch_graph)
        ready += self.host_token * batch.prefill_tokens
        large = self.graph_tokens and batch.prefill_tokens + batch.decode_seqs > self.graph_tokens
        whole = ready + (self.launch_eager if large else self.launch_piecewise)
        return ready, max(sample(whole, deviation=self.launch_spread * whole, chance=batch.chance), ready)

    def transfer_time(self, tokens: int, /) -> float:
        """Return how long a prompt's blocks take to arrive from another engine."""
        return self.transfer_token * tokens

    def paced(self, _pace: Pace, /) -> "StepModel":
        """Return the same: everything here was measured."""
        return self


@dataclass(frozen=True, slots=True)
class StepsAndTransfers:
    """A step model whose transfers take what the Go simulator's flags say, where these say anything."""

    steps: StepModel
    pace: Pace

    def step_time(self, batch: Batch, /) -> float:
        return self.steps.step_time(batch)

    def host_time(self, batch: Batch, /) -> tuple[float, float]:
        return self.steps.host_time(batch)

    def transfer_time(self, tokens: int, /) -> float:
        """Return how long a prompt's blocks take to arrive from another engine."""
        return PacedModel(self.pace).step_time(Batch(remote_tokens=tokens)) or self.steps.transfer_time(tokens)

    def paced(self, pace: Pace, /) -> "StepsAndTransfers":
        """Return the model with transfers at another pace."""
        return StepsAndTransfers(self.steps, pace)


def step_model(document: object, *, name: str) -> StepModel:
    """Return the model whose coefficients (microseconds, and two counts) a YAML document holds.

    Raises UserError naming the key that is missing, unknown, or not a number of zero or more.
    """
    found = document.get("coefficients_us") if isinstance(document, dict) else None
    counts = document.get("counts", {}) if isinstance(document, dict) else None
    if not isinstance(found, dict) or not isinstance(counts, dict):
        raise UserError(f"{name}: coefficients_us is missing: write it with `pointsman sim fit RUN`")
    known = {field.name for field in fields(StepModel)} - {*COUNTS, *SHARES}
    for key, value in found.items():
        if key not in known:
            raise UserError(f"{name}: coefficients_us.{key} is unknown: choose from {', '.join(sorted(known))}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise UserError(f"{name}: coefficients_us.{key} is {value!r}: write microseconds, zero or more")
    if found.get("weights", 0) <= 0:
        raise UserError(f"{name}: coefficients_us.weights must be above zero: a step takes time")
    for key, value in counts.items():
        if key in SHARES and isinstance(value, int | float) and 0 <= value <= 1:
            continue
        if key not in COUNTS or not is_count(value):
            raise UserError(f"{name}: counts.{key} is {value!r}: write {' and '.join(COUNTS)}, whole numbers of tokens")
    values: dict[str, Any] = {key: value * 1e-6 for key, value in found.items()}
    return StepModel(**values, **counts)
