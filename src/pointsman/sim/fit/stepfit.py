"""A step model from logged steps: each step is one equation, so nothing has to be guessed from requests.

The GPU's part is fitted to steps in which it had no reason to wait for the host: there was work before them, and they
ended well after their launch. How many tokens are free is tried out; the rest is linear. The host's part is fitted to
all steps by their kind of launch; what it needs before the GPU can begin shows where the GPU had nothing else to do.
Seconds count alike in every step: what matters is that simulated time as a whole is right.
"""

from collections.abc import Sequence
from math import inf
from statistics import median
from typing import Any, NamedTuple

from pointsman.core.errors import UserError
from pointsman.sim.engine.latency import Batch
from pointsman.sim.engine.stepmodel import StepModel
from pointsman.sim.fit.solve import Solution, solve
from pointsman.sim.fit.steplog import LoggedStep

GPU = ("weights", "token", "decode_seq", "context_token", "mixed_context_token", "prefill_context", "prompt")
HOST = ("launch_graph", "launch_piecewise", "launch_eager", "host_seq", "host_token")
_FREE = (0, 32, 64, 96, 128, 144, 160, 192, 224, 256, 320, 384, 512)
_MOST = 6000  # steps of each kind; more teach nothing new
_FEWEST = 50
_IDLE = 20
_PREPARED = 0.6  # of a launch, where nothing tells: a share that holds on the machines that we have seen
_LOOKED_BACK = 1000  # tokens, on the average of a prompt: a prompt of 2,000 computed at once
_CROWD = 48  # sequences at a time, by which what the host needs for each shows
_CLEAR = 1e-3  # seconds by which a step must outlast its launch to count as the GPU's own
_NEAR = 5e-4


class StepFit(NamedTuple):
    """A model and the standard error of each of its coefficients; infinite where the steps do not tell."""

    model: StepModel
    errors: dict[str, float]


def fit_steps(steps: Sequence[LoggedStep], *, graph_tokens: int) -> StepFit:
    """Return the model behind logged steps.

    Raises UserError when there are too few of them.
    """
    clean = _thinned([step for step in steps if _gpu_bound(step)])
    hosted = _thinned([step for step in steps if step.host is not None])
    if (known := min(len(clean), len(hosted))) < _FEWEST:
        raise UserError(f"the step log has {known} steps in which the GPU was busy: record at least {_FEWEST}")
    free, gpu = min(((n, _fit_gpu(clean, n)) for n in _FREE), key=lambda found: found[1].loss)
    host = _fit_host(hosted, graph_tokens)
    values: dict[str, Any] = {**dict(zip(GPU, gpu.values, strict=True)), **dict(zip(HOST, host.values, strict=True))}
    errors = {**dict(zip(GPU, gpu.errors, strict=True)), **dict(zip(HOST, host.errors, strict=True))}
    if sum(_far(step.batch) for step in clean) < _FEWEST:
        errors["prefill_context"] = inf  # whatever the squares say: in short prompts it is lost in what else bends
    if sum(step.batch.running >= _CROWD for step in hosted) < _FEWEST:
        errors["host_seq"] = inf  # likewise: among few, launches differ more from run to run than by their number
    prepare = _prepare(steps, StepModel(**values, free_tokens=free))
    if prepare is None:
        prepare, errors["prepare"] = _PREPARED * values["launch_graph"], inf
    for name in HOST[:3]:
        values[name] = max(values[name] - prepare, 0.0)
    spread = _spread(steps, StepModel(**values, prepare=prepare, graph_tokens=graph_tokens))
    model = StepModel(**values, prepare=prepare, free_tokens=free, graph_tokens=graph_tokens, launch_spread=spread)
    return StepFit(model, errors)


def _thinned(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    """Return at most so many steps with a prompt, and so many without, evenly spread."""
    found: list[LoggedStep] = []
    for kind in (True, False):
        group = [step for step in steps if bool(step.batch.prefill_tokens) is kind]
        found += group[:: -(-len(group) // _MOST) or 1]
    return found


def _gpu_bound(step: LoggedStep) -> bool:
    if step.gpu_free is None or step.gpu_done is None:
        return False
    if step.batch.prefill_tokens:
        return step.gpu_done - step.launched > _CLEAR and step.gpu_free > step.formed
    return step.gpu_free > step.launched - _NEAR


def _fit_gpu(steps: Sequence[LoggedStep], free: int) -> Solution:
    return solve([_gpu_row(step.batch, free) for step in steps], [step.gpu for step in steps])


def _gpu_row(batch: Batch, free: int) -> tuple[float, ...]:
    beyond = max(batch.prefill_tokens + batch.decode_seqs - free, 0)
    mixed = bool(batch.prefill_tokens)
    context = batch.context_tokens
    shown = (0, context) if mixed else (context, 0)
    return (1.0, beyond, batch.decode_seqs, *shown, batch.prefill_context, batch.prompts)


def _fit_host(steps: Sequence[LoggedStep], graph_tokens: int) -> Solution:
    rows = [host_row(step.batch, graph_tokens) for step in steps]
    return solve(rows, [step.host or 0.0 for step in steps])


def host_row(batch: Batch, graph_tokens: int) -> tuple[float, ...]:
    """Return what the host's work goes by: a launch as one graph, in pieces, or kernel by kernel; and the sizes."""
    kind = 1 if batch.prefill_tokens else 0
    if graph_tokens and batch.prefill_tokens + batch.decode_seqs > graph_tokens:
        kind = 2
    return (*(float(kind == k) for k in range(3)), batch.running, batch.prefill_tokens)


def _far(batch: Batch) -> bool:
    """Tell whether the step's prompts look back so far that their attention shows."""
    return batch.prefill_tokens > 0 and batch.prefill_context >= _LOOKED_BACK * batch.prefill_tokens


def _prepare(steps: Sequence[LoggedStep], model: StepModel) -> float | None:
    """Return what the host needs before the GPU can begin: seen where the GPU had been idle before a decoding step."""
    seen = [
        step.gpu_done - step.formed - model.step_time(step.batch) - model.host_seq * step.batch.running
        for step in steps
        if step.gpu_free is not None and step.gpu_done is not None
        if not step.batch.prefill_tokens and step.gpu_free < step.formed
    ]
    if len(seen) < _IDLE:
        return None
    return min(max(median(seen), 0.0), model.launch_graph)


def _spread(steps: Sequence[LoggedStep], model: StepModel) -> float:
    """Return how much launches with a prompt vary: their standard deviation over their mean."""
    shares = [
        (step.host - expected) / expected
        for step in steps
        if step.host is not None and step.batch.prefill_tokens and (expected := model.host_time(step.batch)[1]) > 0
    ]
    return min((sum(share * share for share in shares) / len(shares)) ** 0.5, 1.0) if shares else 0.0
