"""The last decisions, so that a person can ask why.

Kept by request id in a ring. Written at every pick, so it is cheap: the numbers that the policy saw are copied, nothing
is formatted until someone reads.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pointsman.epp.pool import Member
from pointsman.epp.request import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decision with what it was based on."""

    request_id: str
    decision: Decision
    candidates: tuple[tuple[str, int], ...]  # target and requests in flight when it was made

    def to_json(self) -> dict[str, Any]:
        """Return the record as `/debug/decisions` shows it."""
        return {
            "request_id": self.request_id,
            "picked": [member.endpoint.target for member in self.decision.members],
            "reason": self.decision.reason,
            "candidates": [{"address": target, "inflight": inflight} for target, inflight in self.candidates],
        }


class Records:
    """A ring of the last decisions."""

    def __init__(self, *, keep: int = 1000) -> None:
        self._keep = keep
        self._ring: OrderedDict[str, Record] = OrderedDict()

    def add(self, request_id: str, decision: Decision, candidates: Sequence[Member]) -> None:
        """Keep a decision; must be called before its reservation, which changes what the policy saw."""
        seen = tuple([(member.endpoint.target, member.inflight) for member in candidates])
        self._ring[request_id] = Record(request_id=request_id, decision=decision, candidates=seen)
        if len(self._ring) > self._keep:
            self._ring.popitem(last=False)

    def find(self, request_id: str = "") -> list[Record]:
        """Return the decision for one request, or all, newest first."""
        if request_id:
            return [self._ring[request_id]] if request_id in self._ring else []
        return list(reversed(self._ring.values()))
