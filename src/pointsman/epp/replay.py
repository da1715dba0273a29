"""What another configuration would have decided, from a recording.

Every recorded request is decided again among the candidates as they were then. Plugins with a memory are told what
really happened, not what would have: caches and sessions are where the real picks put them. So the answer is "at this
moment, this configuration would have chosen otherwise", for each request by itself; what would have followed from other
choices is a question for a simulation.

A decision that was drawn among equals differs by chance. It counts as different only when the recorded endpoint was
not among the best of the other configuration.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import ConfigPlan
from pointsman.epp.plugins.api import Picked
from pointsman.epp.request.refusals import Refusal
from pointsman.epp.schedule.explain_log import Line


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One request: what was picked, and what would have been."""

    request_id: str
    recorded: str
    replayed: str  # the target, or nothing when it would have been refused
    refusal: str = ""
    recorded_score: float | None = None  # by the other configuration; None when it filters the endpoint out
    replayed_score: float | None = None

    @property
    def same(self) -> bool:
        """Whether the other configuration had no reason to choose otherwise."""
        if self.recorded == self.replayed:
            return True
        return self.replayed_score is not None and self.recorded_score == self.replayed_score


def replay(lines: Iterable[Line], *, plan: ConfigPlan, seed: int = 0) -> Iterator[Comparison]:
    """Yield a comparison for every recorded decision that another configuration would have made too.

    Raises ConfigError when that configuration cannot be built.
    """
    now = 0.0
    rng = random.Random(seed)  # noqa: S311 - repeats a draw, guards nothing
    scheduler = Builder(clock=lambda: now, rng=rng).build(plan).scheduler
    targets: frozenset[str] = frozenset()
    for line in lines:
        now = line.at
        seen = frozenset(each.target for each in line.candidates)
        if seen != targets:
            targets = seen
            scheduler.endpoints_changed(targets)
        request = line.request
        recorded = next(iter(line.picked.get(line.primary) or ()), "")
        try:
            scheduler.admit(request, line.candidates)
            outcome = scheduler.decide(request, line.candidates)
        except Refusal as refusal:
            yield Comparison(request_id=line.id, recorded=recorded, replayed="", refusal=str(refusal))
            continue
        yield _compare(line.id, recorded=recorded, picked=outcome.picked)
        scheduler.commit(line.outcome(outcome.request))


def _compare(request_id: str, *, recorded: str, picked: Picked) -> Comparison:
    scores = dict(zip(_targets(picked), picked.scores, strict=True))
    replayed = picked.first.target
    return Comparison(
        request_id=request_id,
        recorded=recorded,
        replayed=replayed,
        recorded_score=scores.get(recorded),
        replayed_score=scores.get(replayed),
    )


def _targets(picked: Picked) -> Sequence[str]:
    return [each.target for each in picked.candidates]
