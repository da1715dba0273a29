"""Fitting a step model to a recorded run, and saying how well it fits.

The recording has no step times, but between a request's first and last token lie exactly its output's steps, and
between two first tokens a few known ones. What those steps held follows from a replay, so each such span is one linear
equation in the coefficients. Replay and least squares alternate, and a short search around the best of them ends the
fit. Coefficients cannot be negative, because no work takes less than no time; five of them for hundreds of spans leave
no room for noise.

Spans are weighted by their relative length. First-token spans weigh less: their step counts may be off by one, since
nobody recorded the moment within a step at which a request came; those far off are left out. `held_out` says how well a
model does on requests whose times it has not seen.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from pointsman.core.documents import to_yaml
from pointsman.core.errors import UserError
from pointsman.sim.engine.latency import Batch, StepModel
from pointsman.sim.fit.recordings import Recorded, Recording, Replay, replay

FEATURES = ("base", "prefill_token", "prefill_context", "decode_seq", "context_token")
_SCALE = (1.0, 1e3, 1e6, 1e2, 1e5)  # typical sizes, so that all coefficients are solved for equally well
_ROUNDS = 20
_WIDEST, _FINEST = 0.1, 0.003  # relative changes that the search at the end tries
_WARM_UP = 5  # rounds without first-token spans, until the replay is near
_FIRST_WEIGHT = 0.2
_NEAR = 0.25  # a first-token span counts if the replay's is that close to it
_LONGEST = 3  # … and has at most so many steps
METRICS = ("ttft", "tpot", "e2e")
PERCENTILES = (50, 90, 99)

Equation = tuple[list[float], float]


def fit(recording: Recording, *, seen: Collection[int] | None = None) -> StepModel:
    """Return the step model that explains the recording best.

    `seen` are the numbers of the requests whose times it may look at; all of them arrive in every replay.
    """
    seen = range(len(recording.requests)) if seen is None else seen
    if sum(request.output_tokens > 1 for request in recording.requests) < 2 * len(FEATURES):
        raise UserError(f"{recording.name} has too few requests with more than one output token to fit a model")
    model = best = _guess(recording, seen)
    least = _loss(recording, best, seen)
    for number in range(_ROUNDS):
        run = replay(recording, model)
        weight = 0.0 if number < _WARM_UP else _FIRST_WEIGHT
        model = _between(model, _model(_solve(_equations(recording, run, seen, first_weight=weight)), recording))
        loss = _loss(recording, model, seen)
        if loss < least:
            best, least = model, loss
    return _polish(recording, best, least, seen)


def _between(old: StepModel, new: StepModel) -> StepModel:
    """Return the middle of two models: near saturation a full step to the new one overshoots, and back again."""
    return StepModel(**{name: (getattr(old, name) + getattr(new, name)) / 2 for name in FEATURES})


def _loss(recording: Recording, model: StepModel, seen: Collection[int]) -> float:
    """Return how far a replay is off per request; first tokens count less, as much of theirs is chance."""
    ours = replay(recording, model).requests
    total = 0.0
    for a, b in ((recording.requests[i], ours[i]) for i in seen):
        total += abs(b.e2e / a.e2e - 1) + 0.1 * min(abs(b.ttft / a.ttft - 1), 1.0)
        if a.tpot and b.tpot:
            total += abs(b.tpot / a.tpot - 1)
    return total / len(seen)


def _polish(recording: Recording, model: StepModel, least: float, seen: Collection[int]) -> StepModel:
    """Return the best model in reach of small changes of one coefficient at a time."""
    change = _WIDEST
    while change > _FINEST:
        improved = False
        for name in FEATURES:
            for factor in (1 + change, 1 / (1 + change)):
                tried = replace(model, **{name: getattr(model, name) * factor})
                loss = _loss(recording, tried, seen) if getattr(model, name) else least
                if loss < least:
                    model, least, improved = tried, loss, True
        change = change if improved else change / 3
    return model


def _guess(recording: Recording, seen: Collection[int]) -> StepModel:
    """Return a start from the recording alone: what ran together, and how fast, follows from the times in it."""
    requests = [recording.requests[i] for i in seen]
    sums = _sums_by_time(recording.requests)
    found = []
    for r in requests:
        if r.last_token > r.first_token:
            held = (b - a for a, b in zip(sums[r.first_token], sums[r.last_token], strict=True))
            seconds = r.last_token - r.first_token
            found.append(([x / s / seconds for x, s in zip(held, _SCALE, strict=True)], 1.0))
    return _model(_solve(found), recording)


def _sums_by_time(requests: Sequence[Recorded]) -> dict[float, tuple[float, ...]]:
    """Return, for every first and last token, what all steps up to it held, as far as the times tell."""
    times = sorted({t for r in requests for t in (r.first_token, r.last_token)})
    sums: dict[float, tuple[float, ...]] = {}
    total = [0.0] * len(FEATURES)
    for begin, end in zip([times[0], *times], times, strict=False):
        active = [r for r in requests if r.first_token <= begin and r.last_token >= end > begin]
        if active:
            pace = [(r.output_tokens - 1) / (r.last_token - r.first_token) for r in active]
            steps = fmean(pace) * (end - begin)
            middle = (begin + end) / 2
            context = sum(r.prompt_tokens + p * (middle - r.first_token) for r, p in zip(active, pace, strict=True))
            total[0] += steps
            total[3] += steps * len(active)
            total[4] += steps * context
        for r in requests:
            if r.first_token == end:
                total[1] += r.prompt_tokens
                total[2] += r.prompt_tokens**2 / 2
        sums[end] = tuple(total)
    return sums


def _model(solution: Sequence[float], recording: Recording) -> StepModel:
    """Return the model; a step takes a tenth of the fastest token at least, so that replays make progress."""
    values = {n: x / s for n, x, s in zip(FEATURES, solution, _SCALE, strict=True)}
    least = min(r.tpot for r in recording.requests if r.tpot) / 10
    return StepModel(**{**values, "base": max(values["base"], least)})


def _features(batch: Batch) -> tuple[float, ...]:
    return (1.0, batch.prefill_tokens, batch.prefill_context, batch.decode_seqs, batch.context_tokens)


def _equations(recording: Recording, run: Replay, seen: Collection[int], *, first_weight: float) -> list[Equation]:
    sums = [(0.0,) * len(FEATURES)]
    for batch in run.batches:
        sums.append(tuple(a + b for a, b in zip(sums[-1], _features(batch), strict=True)))

    def span(first: int, last: int, *, seconds: float, weight: float) -> Equation:
        held = (b - a for a, b in zip(sums[first], sums[last], strict=True))
        return [x / s * weight / seconds for x, s in zip(held, _SCALE, strict=True)], weight

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


def _solve(equations: Sequence[Equation]) -> list[float]:
    """Return the non-negative least-squares solution, by coordinate descent on the normal equations."""
    size = len(FEATURES)
    rows, values = [row for row, _ in equations], [value for _, value in equations]
    gram = [[sum(r[i] * r[j] for r in rows) for j in range(size)] for i in range(size)]
    right = [sum(r[i] * v for r, v in zip(rows, values, strict=True)) for i in range(size)]
    x = [0.0] * size
    for _ in range(20_000):
        change = 0.0
        for i in range(size):
            if gram[i][i]:
                slope = right[i] - sum(g * v for g, v in zip(gram[i], x, strict=True))
                new = max(0.0, x[i] + slope / gram[i][i])
                change = max(change, abs(new - x[i]))
                x[i] = new
        if change < 1e-12:
            break
    return x


@dataclass(frozen=True, slots=True)
class Row:
    """How one metric compares: the recorded and our value of a statistic, and the relative error."""

    metric: str
    statistic: str
    recorded: float
    simulated: float

    @property
    def error(self) -> float:
        """(ours - recorded) / recorded."""
        return (self.simulated - self.recorded) / self.recorded if self.recorded else 0.0


def table(recording: Recording, model: StepModel) -> list[Row]:
    """Return the error table of a model on a recording; `each` is the mean error per request, without its sign."""
    return _compare(recording.requests, replay(recording, model).requests)


def held_out(recording: Recording, *, folds: int = 3) -> list[Row]:
    """Return the error table in which every request is judged by a model that has not seen its times."""
    numbers = range(len(recording.requests))
    ours: dict[int, Recorded] = {}
    for fold in range(folds):
        judged = frozenset(numbers[fold::folds])
        run = replay(recording, fit(recording, seen=[i for i in numbers if i not in judged])).requests
        ours |= {i: run[i] for i in judged}
    return _compare(recording.requests, [ours[i] for i in numbers])


def _compare(recorded: Sequence[Recorded], simulated: Sequence[Recorded]) -> list[Row]:
    rows = []
    for metric in METRICS:
        pairs = [
            (getattr(a, metric), getattr(b, metric))
            for a, b in zip(recorded, simulated, strict=True)
            if getattr(a, metric)
        ]
        real, ours = sorted(a for a, _ in pairs), sorted(b for _, b in pairs)
        rows.append(Row(metric, "mean", fmean(real), fmean(ours)))
        rows += [Row(metric, f"p{p}", _at(real, p), _at(ours, p)) for p in PERCENTILES]
        rows.append(Row(metric, "each", 1.0, 1.0 + fmean(abs(b - a) / a for a, b in pairs)))
    return rows


def _at(ordered: Sequence[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def show(rows: Sequence[Row]) -> str:
    """Return the table as text."""
    lines = [f"{'metric':<8}{'':<6}{'recorded s':>12}{'simulated s':>13}{'error':>9}"]
    for row in rows:
        if row.statistic == "each":
            lines.append(f"{row.metric:<8}{'mean error per request, without its sign':<31}{row.error:>9.2%}")
        else:
            values = f"{row.recorded:>12.4f}{row.simulated:>13.4f}{row.error:>+9.2%}"
            lines.append(f"{row.metric:<8}{row.statistic:<6}{values}")
    return "\n".join(lines) + "\n"


def document(recording: Recording, model: StepModel) -> str:
    """Return the model as a YAML file: where it comes from, its coefficients, its errors."""
    errors: dict[str, dict[str, Any]] = {}
    for row in table(recording, model):
        name = "mean_per_request_percent" if row.statistic == "each" else f"{row.statistic}_percent"
        errors.setdefault(row.metric, {})[name] = round(100 * row.error, 2)
    body = {
        "fitted_from": recording.name,
        "model": recording.model,
        "requests": len(recording.requests),
        "engine": {
            "max-num-seqs": recording.engine.max_num_seqs,
            "max-num-batched-tokens": recording.engine.max_num_batched_tokens,
            "async-scheduling": recording.engine.pipelined,
        },
        "coefficients_us": {name: float(f"{getattr(model, name) * 1e6:.6g}") for name in FEATURES},
        "errors": errors,
    }
    return "# Written by `pointsman sim fit`. Coefficients in microseconds; errors of a replay of the run.\n" + to_yaml(
        body
    )
