"""The scheduler seam, `pick(request, candidates) -> Decision`, and the first policy behind it."""

import random
from collections.abc import Sequence
from typing import Protocol

from pointsman.epp.pool import Member
from pointsman.epp.request import Decision, Request


class Policy(Protocol):
    """Chooses among candidates. Pure but for its own random numbers; candidates are never empty."""

    needs_body: bool
    """Whether it can decide only when the whole body is here."""

    def pick(self, request: Request, candidates: Sequence[Member]) -> Decision:
        """Return the decision. May raise a Refusal."""


class LeastInflight:
    """The endpoint with the fewest requests of ours in flight; ties are broken at random, so equals share evenly."""

    needs_body = False

    def __init__(self, *, rng: random.Random, fallbacks: int = 2) -> None:
        self._rng = rng
        self._keep = 1 + fallbacks

    def pick(self, request: Request, candidates: Sequence[Member]) -> Decision:  # noqa: ARG002 - the seam's shape
        """Return the least busy, followed by the next ones for Envoy's retries."""
        draw = self._rng.random
        ranked = sorted([(member.inflight, draw(), at) for at, member in enumerate(candidates)])
        least = ranked[0][0]
        ties = sum(1 for inflight, _, _ in ranked if inflight == least)
        how = "" if ties == 1 else f", drawn from {ties} that tie"
        return Decision(
            members=[candidates[at] for _, _, at in ranked[: self._keep]],
            reason=f"least in flight: {least} of {len(candidates)} endpoints' {least}–{ranked[-1][0]}{how}",
        )
