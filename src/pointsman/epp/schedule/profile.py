"""One scheduling profile: filters, then scorers, then the picker.

Filters run one after another on what the last one left, and stop when nobody is left. Scores are clamped to 0..1,
weighted and summed; a scorer that fails, returns too few numbers or something that is no number contributes nothing.
A filter that fails drops nobody; a picker that fails is replaced by the best score. So no plugin can cost a request.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from pointsman.epp.plugins.api import Endpoints, Filter, Picked, Picker, Scorer
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.refusals import Refusal
from pointsman.epp.request.request import Request
from pointsman.epp.schedule.explain import Meter, Step, Trace


@dataclass(frozen=True, slots=True)
class FilterStep:
    """A filter in a profile."""

    plugin: Filter
    meter: Meter


@dataclass(frozen=True, slots=True)
class ScorerStep:
    """A scorer in a profile."""

    plugin: Scorer
    meter: Meter
    weight: float


@dataclass(frozen=True, slots=True)
class PickerStep:
    """The picker of a profile."""

    plugin: Picker
    meter: Meter


class Profile:
    """A named list of steps."""

    def __init__(
        self,
        name: str,
        *,
        filters: Sequence[FilterStep],
        scorers: Sequence[ScorerStep],
        picker: PickerStep,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.name = name
        self._filters = tuple(filters)
        self._scorers = tuple(scorers)
        self._picker = picker
        self._nanos = clock

    def run(self, request: Request, endpoints: Endpoints, *, trace: Trace | None = None) -> Picked | None:
        """Return the picked endpoints; None when the filters leave nobody.

        Raises Refusal when a plugin refuses the request.
        """
        steps: list[Step] | None = None
        if trace is not None:
            steps = trace.profiles[self.name] = []
        survivors = self._filter(request, endpoints, steps=steps) if self._filters else endpoints
        if not survivors:
            return None
        totals = self._score(request, survivors, steps=steps)
        picked = self._pick(request, survivors, totals, steps=steps)
        return Picked(endpoints=picked, candidates=survivors, scores=totals)

    def _filter(self, request: Request, endpoints: Endpoints, *, steps: list[Step] | None) -> Endpoints:
        for step in self._filters:
            before, error = self._nanos(), ""
            try:
                kept = _views(step.plugin.filter(request, endpoints))
                empty = not kept
            except Refusal:
                raise
            except (Exception, SystemExit) as failure:
                step.meter.failed(failure)
                kept, empty, error = endpoints, False, repr(failure)
            nanos = self._nanos() - before
            step.meter.add(nanos)
            if steps is not None:
                steps.append(Step("Filter", step.meter.name, nanos, endpoints, kept=kept, error=error))
            endpoints = kept
            if empty:
                break
        return endpoints

    def _score(self, request: Request, endpoints: Endpoints, *, steps: list[Step] | None) -> list[float]:
        totals = [0.0] * len(endpoints)
        start = self._nanos()
        for step in self._scorers:
            scores: Sequence[float] | None = None
            error = ""
            weight = step.weight
            try:
                scores = step.plugin.score(request, endpoints)
                if len(scores) != len(endpoints):
                    raise ValueError(f"{len(scores)} scores for {len(endpoints)} endpoints")  # noqa: TRY301 - as any other
                if any(scores):  # often nobody has anything, and a thousand zeros need not be added
                    totals = [
                        total + weight * (score if 0.0 <= score <= 1.0 else clamp(score))
                        for total, score in zip(totals, scores, strict=True)
                    ]
            except Refusal:
                raise
            except (Exception, SystemExit) as failure:
                step.meter.failed(failure)
                scores, error = None, repr(failure)
            end = self._nanos()
            step.meter.add(end - start)
            if steps is not None:
                steps.append(
                    Step("Scorer", step.meter.name, end - start, endpoints, scores=scores, weight=weight, error=error)
                )
            start = end
        return totals

    def _pick(
        self, request: Request, endpoints: Endpoints, totals: Sequence[float], *, steps: list[Step] | None
    ) -> Endpoints:
        step, error = self._picker, ""
        start = self._nanos()
        try:
            picked = _views(step.plugin.pick(request, endpoints, totals))
            _ = picked[0]
        except Refusal:
            raise
        except (Exception, SystemExit) as failure:
            step.meter.failed(failure)
            picked, error = (endpoints[totals.index(max(totals))],), repr(failure)
        nanos = self._nanos() - start
        step.meter.add(nanos)
        if steps is not None:
            steps.append(Step("Picker", step.meter.name, nanos, endpoints, kept=picked, error=error))
        return picked


def _views(chosen: Endpoints) -> Endpoints:
    """Return what a plugin chose, so that nobody can change it for the next.

    Raises TypeError when it chose anything but endpoints.
    """
    chosen = tuple(chosen)
    strange = set(map(type, chosen)) - {EndpointView}
    if strange:
        raise TypeError(f"it chose {', '.join(sorted(kind.__name__ for kind in strange))} among endpoints")
    return chosen


def clamp(score: float) -> float:
    """Return a score outside of 0..1 as the nearest end; what is not a number is worth nothing."""
    return 1.0 if score > 1.0 else 0.0
