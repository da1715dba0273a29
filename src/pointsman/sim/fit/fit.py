"""Fitting a step model to recorded runs of one engine, and what can be said about each of its coefficients.

With step logs every step is an equation (`stepfit`); without, requests have to tell (`spanfit`). All runs go into one
fit, because a single load does not tell everything: short prompts say nothing about attention inside long ones, an
engine that is never idle nothing about its host. What the data leave open is named, with what to record.

A model is judged by runs that it was not fitted to, or by the later part of its own run, never by requests that shared
their steps with those of the fit: those would be met by any model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from pointsman.core.errors import UserError
from pointsman.sim.engine.stepmodel import StepModel
from pointsman.sim.fit.recorded import Recorded
from pointsman.sim.fit.recordings import Recording
from pointsman.sim.fit.replays import replay
from pointsman.sim.fit.report import Comparison, compare
from pointsman.sim.fit.spanfit import fit_spans
from pointsman.sim.fit.stepfit import StepFit, fit_steps

ADVICE = {
    "token": "prompts of more than 500 tokens",
    "decode_seq": "loads with few and with many sequences at a time",
    "context_token": "long and short conversations",
    "mixed_context_token": "prompts that come while others decode; the steps must be logged",
    "prefill_context": "prompts of 2,000 tokens and more beside short ones",
    "prompt": "prompts that come while others decode; the steps must be logged",
    "prepare": "a load that leaves the engine idle now and then; the steps must be logged",
    "launch_graph": "the log of the steps",
    "launch_piecewise": "prompts; the steps must be logged",
    "launch_eager": "steps with more tokens than the largest CUDA graph",
    "host_seq": "loads with few and with many sequences at a time; the steps must be logged",
    "host_token": "prompts of different lengths; the steps must be logged",
}
_SURE = 0.5  # a coefficient whose standard error is a larger share of it is not identified


def fit(recordings: Sequence[Recording]) -> StepFit:
    """Return the model that explains all recordings best.

    Raises UserError when they are not of one engine, or too short.
    """
    _check_alike(recordings)
    logged = [step for each in recordings if each.engine.pipelined for step in each.steps]
    if not logged:  # or each was waited for before the next began: nothing tells the host's part from the GPU's
        return fit_spans(recordings)
    found = fit_steps(logged, graph_tokens=recordings[0].graph_tokens)
    if not found.model.launch_eager and found.errors["launch_eager"] == inf:
        return found._replace(model=replace(found.model, launch_eager=found.model.launch_piecewise))
    return found


def _check_alike(recordings: Sequence[Recording]) -> None:
    first = recordings[0]
    for other in recordings[1:]:
        if other.model != first.model:
            raise UserError(
                f"{other.name} ran {other.model!r} and {first.name} {first.model!r}: fit one model at a time"
            )
        if other.graph_tokens != first.graph_tokens or other.engine.pipelined != first.engine.pipelined:
            raise UserError(
                f"{other.name} and {first.name} differ in async_scheduling or CUDA graphs (up to {other.graph_tokens} "
                f"and {first.graph_tokens} tokens), which changes what launches cost: fit them apart"
            )


def unidentified(found: StepFit) -> dict[str, str]:
    """Return the coefficients that the runs do not tell, and for each what to record."""
    open_ones = {}
    for name, advice in ADVICE.items():
        value, error = getattr(found.model, name), found.errors.get(name, 0.0)
        if error == inf or error > _SURE * value:
            open_ones[name] = advice
    if found.model.launch_piecewise and not found.model.graph_tokens:
        open_ones["graph_tokens"] = "cudagraph_capture_sizes in meta.json"
    return open_ones


def runs(recordings: Sequence[Recording]) -> dict[str, list[Recording]]:
    """Return the recordings of each run: one, or one for each of its ranks."""
    found: dict[str, list[Recording]] = {}
    for each in recordings:
        found.setdefault(each.name, []).append(each)
    return found


def errors(recordings: Sequence[Recording], model: StepModel) -> Comparison:
    """Return how the model does on one run, over all its ranks."""
    recorded = [request for each in recordings for request in each.requests]
    return compare(recorded, [request for each in recordings for request in replay(each, model).requests])


def judged(recordings: Sequence[Recording]) -> Iterator[tuple[str, Comparison]]:
    """Return how models do on what they have not seen: each run left out in turn, or the later half of a single one."""
    by_run = runs(recordings)
    if len(by_run) == 1:
        yield _second_half(recordings)
        return
    for name, left_out in by_run.items():
        model = fit([each for each in recordings if each.name != name]).model
        yield f"{name}, fitted to the others", errors(left_out, model)


def _second_half(recordings: Sequence[Recording]) -> tuple[str, Comparison]:
    halves = [_middle(each) for each in recordings]
    cut = list(zip(recordings, halves, strict=True))
    first = [[i for i, request in enumerate(each.requests) if request.last_token <= middle] for each, middle in cut]
    steps = [step for each, middle in cut for step in each.steps if step.output - each.start <= middle]
    if steps and recordings[0].engine.pipelined:
        model = fit_steps(steps, graph_tokens=recordings[0].graph_tokens).model
    else:
        model = fit_spans(recordings, seen=first).model
    recorded: list[Recorded] = []
    ours: list[Recorded] = []
    for each, middle in cut:
        later = _later(each.requests, middle)
        simulated = replay(each, model).requests
        recorded += [each.requests[i] for i in later]
        ours += [simulated[i] for i in later]
    return f"{recordings[0].name}, its later half by a fit to the first", compare(recorded, ours)


def _middle(recording: Recording) -> float:
    ends = sorted(request.last_token for request in recording.requests)
    return ends[len(ends) // 2]


def _later(requests: Sequence[Recorded], middle: float) -> list[int]:
    """Return who came in the later half; in a burst, where everybody was there by then, who ended in it."""
    later = [i for i, request in enumerate(requests) if request.arrival > middle]
    return later or [i for i, request in enumerate(requests) if request.last_token > middle]
