"""Admitters: who is turned away before anything is picked. Only requests of negative priority ever are."""

import math
import random
from typing import ClassVar

from pydantic import Field

from pointsman.epp.plugins.api import Context, Endpoints, Parameters
from pointsman.epp.request.request import Request


class ProbabilisticParameters(Parameters):
    """What `probabilistic-admitter` takes."""

    or_default: ClassVar[frozenset[str]] = frozenset(
        (
            "queue_depth_threshold",
            "kv_cache_util_threshold",
            "power",
            "k",
        )
    )

    queue_depth_threshold: float = Field(default=5, gt=0)
    kv_cache_util_threshold: float = Field(default=0.8, gt=0, le=1)
    power: float = Field(default=5, gt=0)
    k: float = Field(default=300, ge=0)


class ProbabilisticAdmitter:
    """Sheds requests of negative priority with the chance min(1, k · mean(max(queue / 5, kv / 0.8)) ^ power)."""

    def __init__(self, parameters: ProbabilisticParameters, *, context: Context) -> None:
        self._parameters = parameters
        self._rng: random.Random = context.rng

    def admit(self, request: Request, endpoints: Endpoints) -> str:
        """Draw, when the request may be shed."""
        if request.priority >= 0 or not endpoints:
            return ""
        chance = self.chance(endpoints)
        if self._rng.random() >= chance:
            return ""
        return f"shed at a pool saturation that rejects {chance:.0%} of sheddable requests"

    def chance(self, endpoints: Endpoints) -> float:
        """Return the probability with which a sheddable request is turned away now."""
        limits = self._parameters
        total = sum(
            max(each.waiting / limits.queue_depth_threshold, each.kv_usage / limits.kv_cache_util_threshold)
            for each in endpoints
        )
        return min(math.pow(total / len(endpoints), limits.power) * limits.k, 1.0)
