"""Pickers: from scores to the endpoints to try, best first. Ties are always broken at random."""

import heapq
import math
import random
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from pointsman.epp.plugins.api import Context, Endpoints, Parameters
from pointsman.epp.request.request import Request


class PickerParameters(Parameters):
    """What all pickers take."""

    or_default: ClassVar[frozenset[str]] = frozenset(("max_num_of_endpoints",))

    max_num_of_endpoints: int = Field(default=1, ge=1, description="How many endpoints the destination header lists.")


class MaxScorePicker:
    """The highest score wins."""

    def __init__(self, parameters: PickerParameters, *, context: Context) -> None:
        self._count = parameters.max_num_of_endpoints
        self._rng = context.rng

    def pick(self, _request: Request, endpoints: Endpoints, scores: Sequence[float]) -> Endpoints:
        """Return the best."""
        left, chosen = list(scores), []
        for _ in range(min(self._count, len(left))):
            at = self._best(left)
            chosen.append(endpoints[at])
            left[at] = -math.inf
        return chosen

    def _best(self, scores: Sequence[float]) -> int:
        """Return where the highest score is; a few passes at C's speed beat one of ours, or a sort."""
        best = max(scores)
        at, ties = scores.index(best), scores.count(best)
        if ties > 1:
            for _ in range(int(self._rng.random() * ties)):
                at = scores.index(best, at + 1)
        return at


class RandomPicker:
    """Everyone has the same chance."""

    def __init__(self, parameters: PickerParameters, *, context: Context) -> None:
        self._count = parameters.max_num_of_endpoints
        self._rng = context.rng

    def pick(self, _request: Request, endpoints: Endpoints, _scores: Sequence[float]) -> Endpoints:
        """Return a sample."""
        return draw(endpoints, count=self._count, rng=self._rng)


class WeightedRandomPicker:
    """The chance is in proportion to the score (Efraimidis and Spirakis' A-Res: the largest U^(1/score) win)."""

    def __init__(self, parameters: PickerParameters, *, context: Context) -> None:
        self._count = parameters.max_num_of_endpoints
        self._rng = context.rng

    def pick(self, _request: Request, endpoints: Endpoints, scores: Sequence[float]) -> Endpoints:
        """Return a weighted sample; without any score above 0, a plain one."""
        rng = self._rng
        if max(scores) <= 0:
            return draw(endpoints, count=self._count, rng=rng)
        keys = [(rng.random() ** (1.0 / score) if score > 0 else 0.0, at) for at, score in enumerate(scores)]
        return [endpoints[at] for _, at in heapq.nlargest(self._count, keys)]


def draw(endpoints: Endpoints, *, count: int, rng: random.Random) -> Endpoints:
    """Return `count` of the endpoints in random order, or all when there are fewer."""
    return rng.sample(endpoints, min(count, len(endpoints)))
