"""One scheduling profile: filters, then scorers, then the picker.

Filters run one after another on what the last one left, and stop when nobody is left. Scores are clamped to 0..1,
weighted and summed; a scorer that fails, returns too few numbers or something that is no number contributes nothing.
A filter that fails drops nobody; a picker that fails is replaced by the best score (`points`). So no plugin can cost a
request.
"""

from collections.abc import Sequence

from pointsman.epp.plugins.api import Endpoints, Picked
from pointsman.epp.request.request import Request
from pointsman.epp.schedule.explain import DecisionStep, Trace
from pointsman.epp.schedule.points import FILTER, PICK, SCORE, Hooked


class Profile:
    """A named list of steps."""

    def __init__(self, name: str, *, filters: Sequence[Hooked], scorers: Sequence[Hooked], picker: Hooked) -> None:
        self.name = name
        self._filters = tuple(filters)
        self._scorers = tuple(scorers)
        self._picker = picker

    def run(self, request: Request, endpoints: Endpoints, *, trace: Trace | None = None) -> Picked | None:
        """Return the picked endpoints; None when the filters leave nobody.

        Raises Refusal when a plugin refuses the request.
        """
        steps: list[DecisionStep] | None = None
        if trace is not None:
            steps = trace.profiles[self.name] = []
        for each in self._filters:
            endpoints = FILTER.call(each, request, endpoints, given=endpoints, steps=steps)
            if not endpoints:
                return None
        totals = [0.0] * len(endpoints)
        for each in self._scorers:
            SCORE.call(each, request, endpoints, totals, each.weight, given=endpoints, steps=steps)
        picked = PICK.call(self._picker, request, endpoints, totals, given=endpoints, steps=steps)
        return Picked(endpoints=picked, candidates=endpoints, scores=totals)
