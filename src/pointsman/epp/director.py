"""From a request to a reserved endpoint: candidates, policy, record, reservation, in one step without an await."""

from dataclasses import dataclass, field

from pointsman.epp.policy import Policy
from pointsman.epp.pool import Member, Pool, Reservation
from pointsman.epp.records import Records
from pointsman.epp.refusals import Refusal, no_candidates, no_pods
from pointsman.epp.request import Decision, Request


@dataclass(slots=True, kw_only=True)
class Tally:
    """What happened to requests, for the metrics."""

    picked: int = 0
    refused: dict[str, int] = field(default_factory=dict)  # by canonical code
    served_elsewhere: int = 0  # Envoy's retry, or its fallback, chose another than the pick
    ended: dict[str, int] = field(default_factory=dict)  # by cause


class Director:
    """Decides, and keeps account of what it decided."""

    def __init__(self, *, pool: Pool, policy: Policy, records: Records, use_subset: bool = True) -> None:
        self._policy = policy
        self._use_subset = use_subset
        self.pool = pool
        self.records = records
        self.tally = Tally()

    @property
    def needs_body(self) -> bool:
        """Whether the policy has to see the body before it can pick."""
        return self._policy.needs_body

    def direct(self, request: Request) -> tuple[Decision, Reservation]:
        """Pick and reserve.

        Raises Refusal when the request cannot be served.
        """
        try:
            candidates = self.pool.within(request.subset if self._use_subset else None)
            if not candidates:
                raise no_candidates() if request.has_body or request.subset is not None else no_pods()
            decision = self._policy.pick(request, candidates)
        except Refusal as refusal:
            self.tally.refused[refusal.code] = self.tally.refused.get(refusal.code, 0) + 1
            raise
        self.records.add(request.id, decision, candidates)
        self.tally.picked += 1
        return decision, Reservation(decision.members[0])

    def served(self, reservation: Reservation, target: str) -> Member | None:
        """Note which endpoint Envoy says it really used."""
        member = self.pool.get(target)
        if member is not None:
            reservation.move(member)
        return member

    def ended(self, cause: str) -> None:
        """Count how a request ended."""
        self.tally.ended[cause] = self.tally.ended.get(cause, 0) + 1
