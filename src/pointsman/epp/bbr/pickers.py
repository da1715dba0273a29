"""Which of the scored models it is."""

import random
from collections.abc import Sequence
from typing import Protocol

from pointsman.epp.bbr.models import Model

Scored = Sequence[tuple[Model, float]]
_LEAST = 1e-10  # a draw of 0 would be no draw


class ModelPicker(Protocol):
    """Chooses one."""

    def pick(self, scored: Scored) -> Model:
        """Return it; there is at least one to choose from."""


class MaxScore:
    """The best; of several any."""

    def __init__(self, *, rng: random.Random) -> None:
        self._rng = rng

    def pick(self, scored: Scored) -> Model:
        """Return it."""
        best = max(score for _, score in scored)
        return self._rng.choice([model for model, score in scored if score == best])


class AnyOne:
    """Any, whatever the scores say."""

    def __init__(self, *, rng: random.Random) -> None:
        self._rng = rng

    def pick(self, scored: Scored) -> Model:
        """Return it."""
        return self._rng.choice([model for model, _ in scored])


class WeightedRandom:
    """Any, as often as its share of the scores; any at all when all are 0."""

    def __init__(self, *, rng: random.Random) -> None:
        self._rng = rng

    def pick(self, scored: Scored) -> Model:
        """Return the one with the largest key: a draw to the power of how far its score is from the best."""
        best = max(score for _, score in scored)
        if best <= 0:
            return AnyOne(rng=self._rng).pick(scored)
        keys = [((self._rng.random() or _LEAST) ** (best / score), model) for model, score in scored if score > 0]
        return max(keys, key=lambda each: each[0])[1]
