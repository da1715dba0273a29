"""How good each model would be for the next request, from 0 to 1. Pure, but for a coin where one is to be tossed.

The three that predict the time to the first token draw a line: through what was seen at the median of late, and through
a lower point, at which they differ. A model of which too little is known counts as its floor, or, without one, as the
best of the others, so that it gets the requests by which it becomes known.
"""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Protocol

from pydantic import Field

from pointsman.epp.bbr.models import Model
from pointsman.epp.bbr.ttft import Ttft
from pointsman.epp.plugins.api import Parameters


class Scorer(Protocol):
    """Gives each model a number."""

    def score(self, models: Sequence[Model]) -> Sequence[float]:
        """Return one for each, in their order."""


class Inflight:
    """Fewest requests in flight."""

    def score(self, models: Sequence[Model]) -> Sequence[float]:
        """Return 1 for the idlest and 0 for the busiest; 1 for all when they are equal."""
        return _least([float(model.inflight) for model in models])


class Cost:
    """Lowest price for an input token."""

    def score(self, models: Sequence[Model]) -> Sequence[float]:
        """Return 1 less the share in the sum of prices; 0.5 for a single model, 1 for all when they are free."""
        if len(models) == 1:
            return (0.5,)
        total = sum(model.price for model in models)
        return [1.0 - model.price / total if total else 1.0 for model in models]


class QueueParameters(Parameters):
    """What `queue-ttft-scorer` and `load-aware-ttft-scorer` take."""

    exploration_rate: float = Field(default=0.0, ge=0, le=1)


class AwareParameters(QueueParameters):
    """What `ttft-aware-scorer` takes."""

    anchor_gap_scale: float = Field(default=2.0, gt=0)


class QueueTtft:
    """Lowest predicted time to the first token: a line from the floor at no load through the median."""

    def __init__(self, parameters: QueueParameters, *, rng: random.Random) -> None:
        self._rate = parameters.exploration_rate
        self._rng = rng

    def score(self, models: Sequence[Model]) -> Sequence[float]:
        """Return them; with a rate, one that is not known well is left out unless the coin says so."""
        scores = _predicted(models, _from_floor)
        if self._rate:
            for at, model in enumerate(models):
                if not model.ttft.trusted and self._rng.random() >= self._rate:
                    scores[at] = 0.0
        return scores


class TtftAware:
    """The same, with a lower point that moves from the floor into what was seen as the load spreads out."""

    def __init__(self, parameters: AwareParameters, *, rng: random.Random) -> None:
        self._rate = parameters.exploration_rate
        self._scale = parameters.anchor_gap_scale
        self._rng = rng

    def score(self, models: Sequence[Model]) -> Sequence[float]:
        """Return them; with a rate, one that is not known well is first or last, by a coin of its own."""
        scores = _predicted(models, self._predict)
        if self._rate:
            known = any(model.ttft.trusted for model in models)
            for at, model in enumerate(models):
                if not model.ttft.trusted:
                    explore = self._rng.random() < self._rate
                    scores[at] = 1.0 if explore else 0.0 if known else scores[at]
        return scores

    def _predict(self, seen: Ttft, inflight: int) -> float:
        share = max(0.0, min(1.0, (seen.inflight_at_p50 - seen.inflight_at_p25) / self._scale))
        low = (share * seen.inflight_at_p25, share * seen.p25 + (1 - share) * seen.floor)
        return _line(low, (seen.inflight_at_p50, seen.p50), inflight)


class CostGuardParameters(Parameters):
    """What `costguard` takes."""

    epsilon: float = Field(default=0.1, ge=0, le=1)
    alpha: float = Field(default=0.95, gt=0, lt=1)
    lambda_: float = Field(default=1.0, ge=0, alias="lambda")
    percentile_margin_error: float = Field(default=0.03, gt=0, lt=1)

    @property
    def samples(self) -> int:
        """How many requests of a model must be known, so that its quantile is within the margin (95 % of the time)."""
        spread = self.alpha * (1 - self.alpha)
        return math.ceil(1.96**2 * spread / self.percentile_margin_error**2)


class CostGuard:
    """Lowest cost as it was seen: the mean of most requests, and that of the dearest beside it."""

    def __init__(self, parameters: CostGuardParameters, *, rng: random.Random) -> None:
        self._parameters = parameters
        self._rng = rng

    def score(self, models: Sequence[Model]) -> Sequence[float]:
        """Return 0.5 for those of which too little is known; now and then 1 for one of them, or of all."""
        known = [at for at, model in enumerate(models) if model.costs.count >= self._parameters.samples]
        scores = [0.5] * len(models)
        if self._rng.random() < self._parameters.epsilon:
            unknown = [at for at in range(len(models)) if at not in known]
            scores[self._rng.choice(unknown or known)] = 1.0
            return scores
        ranks = [self._rank(models[at]) for at in known]
        spread = statistics.pstdev(ranks) if len(ranks) > 1 else 0.0
        if spread:
            middle = statistics.median(ranks)
            for at, rank in zip(known, ranks, strict=True):
                scores[at] = 1 / (1 + math.exp((rank - middle) / spread))
        return scores

    def _rank(self, model: Model) -> float:
        alpha, costs = self._parameters.alpha, model.costs
        return costs.trimmed_mean(0.0, alpha) + self._parameters.lambda_ * costs.trimmed_mean(alpha, 1.0)


def _from_floor(seen: Ttft, inflight: int) -> float:
    return _line((0.0, seen.floor), (seen.inflight_at_p50, seen.p50), inflight)


def _line(low: tuple[float, float], high: tuple[float, float], at: float) -> float:
    return low[1] + (at - low[0]) * (high[1] - low[1]) / (high[0] - low[0])


def _predicted(models: Sequence[Model], predict: Callable[[Ttft, int], float]) -> list[float]:
    times: list[float | None] = []
    for model in models:
        seen = model.ttft
        if not seen.floor:
            times.append(None)
        else:
            times.append(max(seen.floor, predict(seen, model.inflight)) if seen.trusted else seen.floor)
    best = min((time for time in times if time is not None), default=0.0)
    return _least([best if time is None else time for time in times])


def _least(values: Sequence[float]) -> list[float]:
    """Return 1 for the least and 0 for the most; 1 for all when they are equal."""
    low, high = min(values), max(values)
    return [(high - value) / (high - low) if high > low else 1.0 for value in values]
