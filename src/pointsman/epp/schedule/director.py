"""From a request to a reserved endpoint: what the headers mean, candidates, decision, record, reservation.

All of it is one step without an await, so whatever is decided next already sees this pick. The scheduler can be
exchanged between two picks; a request keeps the one that it began with.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pointsman.epp.metrics.picker import PickerMetrics
from pointsman.epp.metrics.request import Bookkeeper
from pointsman.epp.metrics.tracing import TRACEPARENT
from pointsman.epp.plugins.api import HeaderChanges
from pointsman.epp.pool.pool import Member, Pool, Reservation
from pointsman.epp.request.refusals import BadRequest, Refusal, ResourceExhausted, no_candidates, no_pods
from pointsman.epp.request.request import Needs, Request, readable
from pointsman.epp.request.rewrites import Rewritten
from pointsman.epp.schedule.decision import Ahead, Decision, Outcome
from pointsman.epp.schedule.explain import Trace
from pointsman.epp.schedule.records import Record, Records
from pointsman.epp.schedule.scheduler import Scheduler, prefers

OBJECTIVE = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
FAIRNESS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
REWRITE = ("x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite")
EXPLAIN = "x-pointsman-explain"
_LONGEST_MODEL = 1024


@dataclass(slots=True, kw_only=True)
class RequestTally:
    """What happened to requests, for the metrics."""

    picked: int = 0
    refused: dict[str, int] = field(default_factory=dict)  # by canonical code
    served_elsewhere: int = 0  # Envoy's retry, or its fallback, chose another than the pick
    ended: dict[str, int] = field(default_factory=dict)  # by cause


@dataclass(frozen=True, kw_only=True)
class DirectorOptions:
    """What the operator allows, and who knows about objectives and rewrites."""

    use_subset: bool = True
    emit_scores: bool = False
    explain: bool = False  # keep a full record of every decision
    explain_on_demand: bool = False  # … of those whose header asks for it
    priority_of: Callable[[str], int] = lambda _objective: 0
    rewrite: Callable[[str], Rewritten | None] = lambda _model: None  # the target of a model, where a rule has one


class StagedReservation(Reservation):
    """A place at the endpoint that serves, and until the first byte places where the earlier stages run."""

    __slots__ = ("_stages",)

    def __init__(self, member: Member, *, tokens: int, media: int, stages: Sequence[Reservation]) -> None:
        super().__init__(member, tokens=tokens, media=media)
        self._stages = list(stages)

    def first_byte(self) -> None:
        """The stages before decode are over."""
        self._end_stages()
        super().first_byte()

    def release(self) -> None:
        """Free all places."""
        self._end_stages()
        super().release()

    def _end_stages(self) -> None:
        while self._stages:
            self._stages.pop().release()


class Director:
    """Decides, and keeps account of what it decided."""

    def __init__(
        self,
        *,
        pool: Pool,
        scheduler: Scheduler,
        records: Records,
        rng: random.Random,
        options: DirectorOptions | None = None,
        books: Bookkeeper | None = None,
    ) -> None:
        self._rng = rng
        self._books = books or Bookkeeper(PickerMetrics(), clock=time.monotonic)
        self._options = options or DirectorOptions()
        self._targets: frozenset[str] = frozenset()
        self.scheduler = scheduler
        self.pool = pool
        self.records = records
        self.tally = RequestTally()
        self.explain_next = 0  # of the next decisions so many are traced, for somebody who watches
        pool.watch(self._endpoints_changed)

    def use(self, scheduler: Scheduler) -> None:
        """Decide by another configuration from now on."""
        self.scheduler = scheduler
        scheduler.endpoints_changed(self._targets)

    def _endpoints_changed(self, members: Sequence[Member]) -> None:
        self._targets = frozenset(member.endpoint.target for member in members)
        self.scheduler.endpoints_changed(self._targets)

    @property
    def needs(self) -> Needs:
        """What must be known of a body before `direct`."""
        return self.scheduler.needs([member.view for member in self.pool.members[:1]])

    def target_of(self, model: str, *, headers: Mapping[str, str]) -> Rewritten:
        """Return which model serves requests for one: as a rule says, else a header, else itself."""
        found = self._options.rewrite(model)
        return found or Rewritten(rewrite="", model=either(headers, REWRITE) or model)

    def ahead(self, request: Request) -> Ahead | None:
        """Return what a service is to be asked before `direct`; None for nothing."""
        candidates = self.pool.within(request.subset if self._options.use_subset else None)
        return self.scheduler.ahead(request, tuple([member.view for member in candidates])) if candidates else None

    def direct(self, request: Request) -> tuple[Decision, Reservation]:
        """Pick and reserve.

        Raises Refusal when the request cannot be served.
        """
        since = self._books.now()
        try:
            if not request.has_body and self.scheduler.answers:
                self.scheduler.answer(request, [member.view for member in self.pool.members])
            if request.has_body:
                request = self._understand(request)
            elif prefers(request.headers.get("prefer", ""), "reserve-endpoint"):
                raise BadRequest("Prefer: reserve-endpoint needs a body: send the request that is to be placed")
            candidates = self.pool.within(request.subset if self._options.use_subset else None)
            if not candidates:
                raise no_candidates() if request.has_body or request.subset is not None else no_pods()
            if not request.has_body:
                decision, reservation = self._draw(request, candidates, at=since)
            else:
                request, decision, reservation = self._decide(request, candidates, since=since)
            first = decision.members[0]
            meter = self._books.picked(request, first.view, pod=first.endpoint.pod, since=since)
            reservation.meter = meter
            if decision.target:
                reservation.sent_to = decision.target.partition(",")[0]
            if meter.span is not None:
                carried = (*decision.set_headers, (TRACEPARENT, meter.span.traceparent))
                decision = msgspec.structs.replace(decision, set_headers=carried)
            return decision, reservation
        except Refusal as refusal:
            self.refused(request, refusal)
            raise

    def refused(self, request: Request, refusal: Refusal) -> None:
        """Count a request that is answered by us; `direct` does so itself."""
        self._books.refused(request, code=refusal.code)
        self.tally.refused[refusal.code] = self.tally.refused.get(refusal.code, 0) + 1

    def _understand(self, request: Request) -> Request:
        """Add what headers, objectives and rewrite rules say about a request.

        Raises BadRequest when it should name a model and nothing does.
        """
        headers = request.headers
        objective = either(headers, OBJECTIVE)
        fairness = either(headers, FAIRNESS)
        if not fairness and self.scheduler.identifies:
            fairness = readable(self.scheduler.identify(request))
        target, rule = request.target_model, request.rewrite
        if not target:
            found = self.target_of(request.model, headers=headers)
            target, rule = found.model, found.rewrite
        if rule:
            self._books.rewrote(rewrite=rule, model=request.model, target=target)
        if request.wants_model and not target:
            raise BadRequest("model not found in request body")
        if len(request.model) > _LONGEST_MODEL:  # it is kept in metrics and records
            raise BadRequest(
                f"the model's name has {len(request.model)} characters: at most {_LONGEST_MODEL} are allowed"
            )
        if not objective and not fairness and target == request.target_model:
            return request
        return msgspec.structs.replace(
            request,
            objective=objective,
            priority=self._options.priority_of(objective) if objective else request.priority,
            fairness_id=fairness or request.fairness_id,
            target_model=target,
        )

    def _decide(
        self, request: Request, candidates: Sequence[Member], *, since: float
    ) -> tuple[Request, Decision, Reservation]:
        scheduler, options = self.scheduler, self._options
        views = tuple([member.view for member in candidates])  # which no plugin can change
        scheduler.admit(request, views)
        explain = options.explain or (options.explain_on_demand and request.headers.get(EXPLAIN) == "1")
        if self.explain_next:
            self.explain_next -= 1
            explain = True
        trace = Trace() if explain else None
        try:
            outcome = scheduler.decide(request, views, trace=trace)
        except ResourceExhausted:
            self._books.not_scheduled(request, since=since)
            raise
        changes = scheduler.commit(outcome, trace=trace)
        scheduler.name_endpoint(outcome, changes)
        decision = self._decision(outcome, changes)
        decided = outcome.request
        self.records.add(
            Record(request=decided, candidates=views, at=since, outcome=outcome, trace=trace, weight=decided.weight)
        )
        self.tally.picked += 1
        return outcome.request, decision, self._reserve(outcome, decision.members[0])

    def _decision(self, outcome: Outcome, changes: HeaderChanges) -> Decision:
        picked, scheduler = outcome.picked, self.scheduler
        found = [self.pool.get(endpoint.target) for endpoint in picked.endpoints]
        members = [member for member in found if member is not None]
        if not members:
            raise no_candidates()
        scores: Mapping[str, float] = {}
        if self._options.emit_scores:
            scores = dict(zip([each.target for each in picked.candidates], picked.scores, strict=True))
        return Decision(
            members=members,
            target_model=outcome.request.target_model,
            set_headers=changes.set,
            remove_headers=changes.remove,
            scores=scores,
            target=outcome.target,
            answer=(lambda view, served: scheduler.respond(outcome.request, view, served=served))
            if scheduler.responds
            else None,
            learn=(lambda ttft_ms, tpot_ms: scheduler.learn(outcome, ttft_ms=ttft_ms, tpot_ms=tpot_ms))
            if scheduler.learns
            else None,
            report=(lambda usage: scheduler.report(outcome.request, usage)) if scheduler.reports else None,
        )

    def _reserve(self, outcome: Outcome, member: Member) -> Reservation:
        """Count the request where it decodes and, until its first byte, where its other stages run."""
        target, scheduler = member.endpoint.target, self.scheduler
        tokens, media = scheduler.tokens(outcome, target), scheduler.media(outcome, target)
        stages = []
        if len(outcome.results) > 1:
            for profile, picked in outcome.results.items():
                other = None if picked is None or profile == outcome.primary else self.pool.get(picked.first.target)
                if other is not None:
                    at = other.endpoint.target
                    work = scheduler.tokens(outcome, at)
                    stages.append(Reservation(other, tokens=work, media=scheduler.media(outcome, at)))
        if stages:
            return StagedReservation(member, tokens=tokens, media=media, stages=stages)
        return Reservation(member, tokens=tokens, media=media)

    def _draw(self, request: Request, candidates: Sequence[Member], *, at: float) -> tuple[Decision, Reservation]:
        """Pick for a request without a body: there is nothing to schedule by, so anyone will do."""
        member = candidates[int(self._rng.random() * len(candidates))]
        views = [each.view for each in candidates]
        self.records.add(Record(request=request, candidates=views, at=at, drawn=member.view, weight=request.weight))
        self.tally.picked += 1
        return Decision(members=(member,)), Reservation(member)

    def served(self, reservation: Reservation, target: str) -> Member | None:
        """Note which endpoint Envoy says it really used."""
        member = self.pool.get(target)
        if member is not None and target != reservation.sent_to:
            self.tally.served_elsewhere += 1
            reservation.move(member)
        return member

    def ended(self, cause: str) -> None:
        """Count how a request ended."""
        self.tally.ended[cause] = self.tally.ended.get(cause, 0) + 1


def either(headers: Mapping[str, str], names: tuple[str, str]) -> str:
    """Return a header by its name, else by its deprecated one."""
    found = headers.get(names[0]) or headers.get(names[1])
    return readable(found) if found else ""
