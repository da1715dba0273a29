"""A step model from requests alone, where nobody logged the steps.

The recordings have no step times, but between a request's first and last token lie exactly its output's steps, and
between two first tokens a few known ones. What those steps held follows from a replay, so each such span is one
equation, linear in the coefficients once it is chosen how many tokens are free. Replay and least squares alternate, and
a short search around the best of them ends the fit. The host's share cannot be told apart from the GPU's work in this
way, nor the share of what sequences look back on beside a prompt; those coefficients stay as they are without it.

Spans are weighted by their relative length. First-token spans weigh less: their step counts may be off by one, since
nobody recorded the moment within a step at which a request came; those far off are left out.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from statistics import fmean
from typing import Any

from pointsman.core.errors import UserError
from pointsman.sim.engine.latency import Batch
from pointsman.sim.engine.stepmodel import StepModel
from pointsman.sim.fit.recorded import Recorded
from pointsman.sim.fit.recordings import Recording
from pointsman.sim.fit.replays import Replay, replay
from pointsman.sim.fit.solve import Solution, solve
from pointsman.sim.fit.stepfit import StepFit

FEATURES = ("weights", "token", "prefill_context", "decode_seq", "context_token")
_FREE = (0, 128, 256)  # tokens that cost nothing; which of these fits best is tried out
_ROUNDS = 20
_WIDEST, _FINEST = 0.1, 0.003  # relative changes that the search at the end tries
_WARM_UP = 5  # rounds without first-token spans, until the replay is near
_FIRST_WEIGHT = 0.2
_NEAR = 0.25  # a first-token span counts if the replay's is that close to it
_LONGEST = 3  # … and has at most so many steps

Equation = tuple[list[float], float]
Seen = Sequence[Sequence[int]]
"""For each recording, the numbers of the requests whose times may be looked at; all of them arrive in every replay."""


def fit_spans(recordings: Sequence[Recording], *, seen: Seen | None = None) -> StepFit:
    """Return the step model that explains the recorded requests best.

    Raises UserError when there are too few of them.
    """
    chosen = [range(len(each.requests)) for each in recordings] if seen is None else seen
    usable = sum(
        each.requests[i].output_tokens > 1 for each, some in zip(recordings, chosen, strict=True) for i in some
    )
    if usable < 2 * len(FEATURES):
        names = ", ".join(each.name for each in recordings)
        raise UserError(f"{names} has too few requests with more than one output token to fit a model: record 100")
    fitter = _Fitter(recordings, chosen)
    trials = [fitter.rounds(fitter.guess(free)) for free in _FREE]
    model = fitter.polish(*min(trials, key=lambda trial: trial[1]))
    solution = fitter.solution(fitter.replays(model), model.free_tokens)
    errors = dict.fromkeys(("mixed_context_token", "prompt", "prepare", "launch_graph"), inf)
    return StepFit(model, {**errors, **dict(zip(FEATURES, solution.errors, strict=True))})


class _Fitter:
    """The runs and the requests in them that may be looked at."""

    def __init__(self, recordings: Sequence[Recording], seen: Seen) -> None:
        self.recordings = recordings
        self.seen = [frozenset(some) for some in seen]
        paces = [r.tpot for each in recordings for r in each.requests if r.tpot]
        self.least = min(paces) / 10  # a step takes that much at least, so that replays make progress

    def rounds(self, model: StepModel) -> tuple[StepModel, float]:
        """Alternate replay and least squares; return the best model met on the way, and how far it is off."""
        best, runs = model, self.replays(model)
        least = self.loss(runs)
        for number in range(_ROUNDS):
            weight = 0.0 if number < _WARM_UP else _FIRST_WEIGHT
            found = self.solution(runs, model.free_tokens, first_weight=weight)
            model = _between(model, self.model(found.values, model.free_tokens))
            runs = self.replays(model)
            loss = self.loss(runs)
            if loss < least:
                best, least = model, loss
        return best, least

    def replays(self, model: StepModel) -> list[Replay]:
        return [replay(recording, model) for recording in self.recordings]

    def model(self, values: Sequence[float], free: int) -> StepModel:
        found: dict[str, Any] = dict(zip(FEATURES, values, strict=True))
        found["weights"] = max(found["weights"], self.least)
        return StepModel(**found, mixed_context_token=found["context_token"], free_tokens=free)

    def solution(self, runs: Sequence[Replay], free: int, *, first_weight: float = _FIRST_WEIGHT) -> Solution:
        found: list[Equation] = []
        for recording, run, some in zip(self.recordings, runs, self.seen, strict=True):
            found += _equations(recording, run, some, first_weight=first_weight, free=free)
        return solve([row for row, _ in found], [value for _, value in found])

    def loss(self, runs: Sequence[Replay]) -> float:
        """Return how far replays are off per request; first tokens count less, as much of theirs is chance."""
        total = 0.0
        for recording, run, some in zip(self.recordings, runs, self.seen, strict=True):
            for a, b in ((recording.requests[i], run.requests[i]) for i in some):
                total += abs(b.e2e / a.e2e - 1) + 0.1 * min(abs(b.ttft / a.ttft - 1), 1.0)
                if a.tpot and b.tpot:
                    total += abs(b.tpot / a.tpot - 1)
        return total / sum(map(len, self.seen))

    def polish(self, model: StepModel, least: float) -> StepModel:
        """Return the best model in reach of small changes of one coefficient at a time."""
        change = _WIDEST
        while change > _FINEST:
            improved = False
            for name in FEATURES:
                for factor in (1 + change, 1 / (1 + change)):
                    tried = _scaled(model, name, factor)
                    loss = self.loss(self.replays(tried)) if getattr(model, name) else least
                    if loss < least:
                        model, least, improved = tried, loss, True
            change = change if improved else change / 3
        return model

    def guess(self, free: int) -> StepModel:
        """Return a start from the times alone: what ran together, and how fast, follows from them."""
        found: list[Equation] = []
        for recording, some in zip(self.recordings, self.seen, strict=True):
            sums = _sums_by_time(recording.requests)
            for r in (recording.requests[i] for i in some):
                if r.last_token > r.first_token:
                    held = (b - a for a, b in zip(sums[r.first_token], sums[r.last_token], strict=True))
                    seconds = r.last_token - r.first_token
                    found.append(([x / seconds for x in held], 1.0))
        return self.model(solve([row for row, _ in found], [value for _, value in found]).values, free)


def _scaled(model: StepModel, name: str, factor: float) -> StepModel:
    changed = {name: getattr(model, name) * factor}
    if name == "context_token":
        changed["mixed_context_token"] = changed[name]
    return replace(model, **changed)


def _between(old: StepModel, new: StepModel) -> StepModel:
    """Return the middle of two models: near saturation a full step to the new one overshoots, and back again."""
    middle = {name: (getattr(old, name) + getattr(new, name)) / 2 for name in (*FEATURES, "mixed_context_token")}
    return replace(old, **middle)


def _sums_by_time(requests: Sequence[Recorded]) -> dict[float, tuple[float, ...]]:
    """Return, for every first and last token, what all steps up to it held, as far as the times tell."""
    times = sorted({t for r in requests for t in (r.first_token, r.last_token)})
    sums: dict[float, tuple[float, ...]] = {}
    total = [0.0] * len(FEATURES)
    begun = sorted(requests, key=lambda r: r.first_token)
    active: list[Recorded] = []
    number = 0
    for begin, end in zip([times[0], *times], times, strict=False):
        while number < len(begun) and begun[number].first_token <= begin:
            active.append(begun[number])
            number += 1
        active = [r for r in active if r.last_token >= end]
        running = [r for r in active if r.last_token > r.first_token] if end > begin else []
        if running:
            pace = [(r.output_tokens - 1) / (r.last_token - r.first_token) for r in running]
            steps = fmean(pace) * (end - begin)
            middle = (begin + end) / 2
            context = sum(r.prompt_tokens + p * (middle - r.first_token) for r, p in zip(running, pace, strict=True))
            total[0] += steps
            total[3] += steps * len(running)
            total[4] += steps * context
        for r in begun[number:]:
            if r.first_token > end:
                break
            total[1] += r.prompt_tokens
            total[2] += r.prompt_tokens**2 / 2
        sums[end] = tuple(total)
    return sums


def _features(batch: Batch, free: int) -> tuple[float, ...]:
    beyond = max(batch.prefill_tokens + batch.decode_seqs - free, 0)
    return (1.0, beyond, batch.prefill_context, batch.decode_seqs, batch.context_tokens)


def _equations(
    recording: Recording, run: Replay, seen: frozenset[int], *, first_weight: float, free: int
) -> list[Equation]:
    sums = [(0.0,) * len(FEATURES)]
    for batch in run.batches:
        sums.append(tuple(a + b for a, b in zip(sums[-1], _features(batch, free), strict=True)))

    def span(first: int, last: int, *, seconds: float, weight: float) -> Equation:
        held = (b - a for a, b in zip(sums[first], sums[last], strict=True))
        return [x * weight / seconds for x in held], weight

    found = [
        span(run.first_steps[i], run.last_steps[i], seconds=r.last_token - r.first_token, weight=1.0)
        for i, r in enumerate(recording.requests)
        if i in seen and r.last_token > r.first_token
    ]
    if first_weight:
        found += [
            span(run.first_steps[a], run.first_steps[b], seconds=seconds, weight=first_weight)
            for a, b, seconds in _first_spans(recording.requests, run)
            if a in seen and b in seen
        ]
    return found


def _first_spans(requests: Sequence[Recorded], run: Replay) -> list[tuple[int, int, float]]:
    order = sorted(range(len(requests)), key=lambda i: (run.first_steps[i], i))
    found = []
    for a, b in pairwise(order):
        real = requests[b].first_token - requests[a].first_token
        ours = run.requests[b].first_token - run.requests[a].first_token
        steps = run.first_steps[b] - run.first_steps[a]
        if 1 <= steps <= _LONGEST and real > 0 and abs(ours - real) / real <= _NEAR:
            found.append((a, b, real))
    return found
