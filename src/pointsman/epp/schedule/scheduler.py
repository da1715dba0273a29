"""A configuration at work: producers, admitters, profiles, hooks, in llm-d's order.

`decide` looks and chooses, `commit` tells the plugins what was chosen; a replay decides without committing. Where a
plugin wants a service to be asked, `ahead` comes first: it has the question, and what was found out for it. Nothing
here awaits, so a decision and its reservation are one step of the event loop. A scheduler is never changed: a new
configuration is a new one, and a request that has begun with the old one ends with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pointsman.epp.plugins.api import (
    PEER_ENDPOINT,
    SERVED,
    STAGES,
    Conclusion,
    Endpoints,
    HeaderChanges,
    Key,
    Picked,
    PrefixMatches,
    RequestCost,
)
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.refusals import Answer, Internal, PreconditionFailed, ResourceExhausted
from pointsman.epp.request.request import Needs, Request
from pointsman.epp.schedule.decision import AHEAD, Ahead, Outcome
from pointsman.epp.schedule.explain import DecisionStep, Trace
from pointsman.epp.schedule.points import (
    ADMIT,
    ANSWER,
    BEFORE_SEND,
    CONCLUDE,
    IDENTIFY,
    LEARN,
    NEEDS,
    NEXT_PROFILES,
    ON_ENDPOINTS,
    ON_RESPONSE,
    PRODUCE,
    QUESTION,
    REPORT,
    SATURATION,
    Hooked,
)
from pointsman.epp.schedule.profile import Profile

RESERVED = "x-llm-d-reserved-host-port"
_STAGE_HEADERS = frozenset(
    ("x-prefiller-host-port", "x-encoder-hosts-ports", "x-data-parallel-host-port", "x-kv-cache-source-host-port")
)  # what a sidecar would be told

_NO_CHANGES = HeaderChanges()
_MOST_NEEDS = 64


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a scheduler is made of."""

    profiles: Mapping[str, Profile]
    handler: Hooked  # a ProfileHandler
    detector: Hooked  # a Detector
    producers: Sequence[Hooked]  # in the order of their dependencies
    asks: Hooked | None = None  # the first of the producers that has a question for a service
    concludes: Hooked | None = None  # the handler again, metered as the one that concludes
    readers: Sequence[Hooked] = ()  # who has to know something of a body: producers first
    admitters: Sequence[Hooked] = ()
    before_send: Sequence[Hooked] = ()
    on_response: Sequence[Hooked] = ()
    on_endpoints: Sequence[Hooked] = ()
    responders: Sequence[Hooked] = ()
    reserves: bool = False  # whether a client may ask for an endpoint instead of being sent there
    identities: Sequence[Hooked] = ()
    reporters: Sequence[Hooked] = ()
    learners: Sequence[Hooked] = ()
    parsers: tuple[str, ...] = ()
    cost: Key[RequestCost] | None = None
    matches: Key[PrefixMatches] | None = None


class Scheduler:
    """Chooses among endpoints as one configuration says."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._only = parts.profiles.get(getattr(parts.handler.plugin, "only_profile", ""))
        self._needs: dict[int, Needs] = {}  # by the first endpoint's block size, on which alone they depend
        self.answers = bool(parts.responders)  # whether any plugin answers requests itself
        self.identifies = bool(parts.identities)  # whether any plugin knows whose requests are
        self.learns = bool(parts.learners)  # … wants to know how long responses took
        self.reports = bool(parts.reporters)  # … tells the proxy something
        self.responds = bool(parts.on_response)  # … adds to responses
        asker = parts.asks.plugin if parts.asks is not None else None
        before = next((at for at, each in enumerate(parts.producers) if each.plugin is asker), len(parts.producers))
        self._before_asking = tuple(parts.producers[:before])
        self._after_asking = tuple(parts.producers[before:])
        self._reads = any(parser != "passthrough-parser" for parser in parts.parsers)

    @property
    def parsers(self) -> tuple[str, ...]:
        """Who reads bodies, by type, in order."""
        return self._parts.parsers

    def needs(self, endpoints: Endpoints) -> Needs:
        """Return what must be known of a body before `decide`; asked for every request, so remembered."""
        block = endpoints[0].metrics.cache.block_tokens if endpoints else 0
        found = self._needs.get(block)
        if found is None:
            if len(self._needs) >= _MOST_NEEDS:  # a model server that says another block size with every scrape
                self._needs.clear()
            found = self._needs[block] = self._find_needs(endpoints)
        return found

    def _find_needs(self, endpoints: Endpoints) -> Needs:
        """Ask whoever reads; the first that wants hashes says how."""
        if not self._reads:
            return Needs(parsers=self._parts.parsers)
        asked = [needs for each in self._parts.readers if (needs := NEEDS.call(each, endpoints)) is not None]
        hashed = next((each for each in asked if each.block_tokens), Needs())
        return Needs(
            body=True,
            parsers=self._parts.parsers,
            prompt=any(each.prompt for each in asked),
            block_tokens=hashed.block_tokens,
            max_blocks=hashed.max_blocks,
            media=any(each.media for each in asked),
            hints=any(each.hints for each in asked),
            estimates=next((each.estimates for each in asked if each.estimates is not None), None),
            tokenizer=next((each.tokenizer for each in asked if each.tokenizer is not None), None),
            predictor=next((each.predictor for each in asked if each.predictor is not None), None),
        )

    def ahead(self, request: Request, endpoints: Endpoints) -> Ahead | None:
        """Return what a service is to be asked before `decide`, and what is known by then; None for nothing."""
        if self._parts.asks is None:
            return None
        steps: list[DecisionStep] = []
        facts = dict(request.attributes)
        request = msgspec.structs.replace(request, attributes=facts)
        for hooked in self._before_asking:
            facts |= PRODUCE.call(hooked, request, endpoints, given=endpoints, steps=steps)
        asked = QUESTION.call(self._parts.asks, request, endpoints)
        return None if asked is None else Ahead(scheduler=self, question=asked, facts=facts, steps=steps)

    def admit(self, request: Request, endpoints: Endpoints) -> None:
        """Shed what may be shed when the pool is full.

        Raises Refusal.
        """
        if request.priority < 0 and SATURATION.call(self._parts.detector, endpoints) >= 1.0:
            raise ResourceExhausted("system saturated, sheddable request dropped")

    def decide(self, request: Request, endpoints: Endpoints, *, trace: Trace | None = None) -> Outcome:
        """Return whom to send the request to; `endpoints` are never empty.

        Raises Refusal.
        """
        steps = None if trace is None else trace.others
        facts = dict(request.attributes)
        request = msgspec.structs.replace(request, attributes=facts)
        producers = self._parts.producers
        if facts:
            ahead = facts.pop(AHEAD, None)
            if isinstance(ahead, Ahead) and ahead.scheduler is self:
                producers = self._after_asking
                if steps is not None:
                    steps += ahead.steps
        for hooked in producers:
            facts |= PRODUCE.call(hooked, request, endpoints, given=endpoints, steps=steps)
        for hooked in self._parts.admitters:
            if reason := ADMIT.call(hooked, request, endpoints, given=endpoints, steps=steps):
                raise Internal(f"request cannot be admitted: {reason}")
        outcome = self._run_profiles(request, endpoints, trace=trace)
        if (wishes := request.headers.get("prefer")) is not None and prefers(wishes, "if-available"):
            self._check_cached(outcome)
        return outcome

    def _run_profiles(self, request: Request, endpoints: Endpoints, *, trace: Trace | None) -> Outcome:
        handler, profiles = self._parts.handler, self._parts.profiles
        results: dict[str, Picked | None] = {}
        if self._only is not None:  # the usual case: a handler that has nothing to decide is not asked
            results[self._only.name] = self._only.run(request, endpoints, trace=trace)
            if results[self._only.name] is not None:
                return Outcome(request=request, results=results, primary=self._only.name)
        steps = None if trace is None else trace.others
        while True:
            wanted = NEXT_PROFILES.call(handler, request, results, given=endpoints, steps=steps)
            names = [name for name in wanted if name not in results]
            if not names:
                break
            for name in names:
                profile = profiles.get(name)
                peer = next((picked.first for picked in results.values() if picked is not None), None)
                if peer is not None:
                    request = msgspec.structs.replace(request, attributes={**request.attributes, PEER_ENDPOINT: peer})
                results[name] = None if profile is None else profile.run(request, endpoints, trace=trace)
        found: Conclusion | None = None
        if results:
            found = CONCLUDE.call(self._parts.concludes or handler, request, results, given=endpoints, steps=steps)
        if found is None or results.get(found.primary) is None:
            found = self._make_do(request, endpoints, results, trace=trace)
        return Outcome(request=request, results=results, primary=found.primary, target=found.target)

    def _make_do(
        self, request: Request, endpoints: Endpoints, results: dict[str, Picked | None], *, trace: Trace | None
    ) -> Conclusion:
        """Conclude where the handler failed: by the first profile.

        Raises Refusal when that has nobody either.
        """
        name, profile = next(iter(self._parts.profiles.items()))
        if name not in results:
            results[name] = profile.run(request, endpoints, trace=trace)
        if results[name] is None:
            raise ResourceExhausted(f"failed to find target endpoint: profile {name}", dropped="rejected-saturated")
        return Conclusion(primary=name)

    def _check_cached(self, outcome: Outcome) -> None:
        """Refuse a request that is wanted only where its prefix is cached (RFC 7240's `Prefer: if-available`)."""
        matches = self._parts.matches.of(outcome.request) if self._parts.matches is not None else None
        if matches is None or not matches.cached.get(outcome.picked.first.target):
            raise PreconditionFailed("no decode worker has the requested KV cache")

    def name_endpoint(self, outcome: Outcome, changes: HeaderChanges) -> None:
        """Answer who asks where a request would go, and send it nowhere: after `commit`, as if it had been sent.

        Raises Answer, or Internal where no plugin allows that.
        """
        wishes = outcome.request.headers.get("prefer")
        if wishes is None or not prefers(wishes, "reserve-endpoint"):
            return
        if not self._parts.reserves:
            raise Internal("Prefer: reserve-endpoint needs the plugin reserve-endpoint, which is not configured")
        target = outcome.target.partition(",")[0] or outcome.picked.first.target
        stages = [(name, value) for name, value in changes.set if name in _STAGE_HEADERS]
        raise Answer(204, headers=((RESERVED, target), ("Preference-Applied", "reserve-endpoint"), *stages))

    def answer(self, request: Request, endpoints: Endpoints) -> None:
        """Let plugins answer a request without a body.

        Raises Answer where one does.
        """
        for hooked in self._parts.responders:
            found = ANSWER.call(hooked, request, endpoints)
            if found is not None:
                raise found

    def commit(self, outcome: Outcome, *, trace: Trace | None = None) -> HeaderChanges:
        """Tell the plugins, and return what they change in the request's headers."""
        changes: list[HeaderChanges] = []
        steps = None if trace is None else trace.others
        request, results, primary, given = outcome.request, outcome.results, outcome.primary, outcome.picked.candidates
        for hooked in self._parts.before_send:
            change = BEFORE_SEND.call(hooked, request, results, primary, given=given, steps=steps)
            if change is not None:
                changes.append(change)
        if not changes:
            return _NO_CHANGES
        if len(changes) == 1:
            return changes[0]
        values = {name: value for each in changes for name, value in each.set}  # one value for a header: the last
        removed = dict.fromkeys(name for each in changes for name in each.remove if name not in values)
        return HeaderChanges(set=list(values.items()), remove=list(removed))

    def tokens(self, outcome: Outcome, target: str) -> int:
        """Return how many tokens of work the request is at an endpoint; 0 when nobody knows."""
        cost = self._parts.cost.of(outcome.request) if self._parts.cost is not None else None
        return cost.at(target) if cost is not None else 0

    def media(self, outcome: Outcome, target: str) -> int:
        """Return how many of those tokens are of images, videos and sounds."""
        cost = self._parts.cost.of(outcome.request) if self._parts.cost is not None else None
        return cost.media_at(target) if cost is not None and cost.media else 0

    def respond(self, request: Request, endpoint: EndpointView, *, served: str | None = None) -> list[tuple[str, str]]:
        """Return what plugins add to the response's headers; `served` is whom the proxy names, if it says anything."""
        if served is not None:
            request = msgspec.structs.replace(request, attributes={**request.attributes, SERVED: served})
        added: list[tuple[str, str]] = []
        for hooked in self._parts.on_response:
            added += ON_RESPONSE.call(hooked, request, endpoint)
        return added

    def identify(self, request: Request) -> str:
        """Return whose request it is, as far as a plugin knows."""
        return next((who for hooked in self._parts.identities if (who := IDENTIFY.call(hooked, request))), "")

    def report(self, request: Request, usage: Mapping[str, object]) -> dict[str, dict[str, float]]:
        """Return what plugins tell the proxy about a response that is complete."""
        found: dict[str, dict[str, float]] = {}
        for hooked in self._parts.reporters:
            for space, said in REPORT.call(hooked, request, usage).items():
                found.setdefault(space, {}).update(said)
        return found

    def learn(self, outcome: Outcome, *, ttft_ms: float, tpot_ms: float | None) -> None:
        """Tell plugins how long a response took, from the endpoint that was picked for it."""
        request = outcome.request
        if len(outcome.results) > 1:
            stages = {name: picked.first for name, picked in outcome.results.items() if picked is not None}
            request = msgspec.structs.replace(request, attributes={**request.attributes, STAGES: stages})
        for hooked in self._parts.learners:
            LEARN.call(hooked, request, outcome.picked.first, ttft_ms, tpot_ms)

    def endpoints_changed(self, targets: frozenset[str]) -> None:
        """Tell the plugins who is there now."""
        for hooked in self._parts.on_endpoints:
            ON_ENDPOINTS.call(hooked, targets)


def prefers(header: str, wish: str) -> bool:
    """Return whether RFC 7240's `Prefer` names a wish: in any case, among others, with or without a value."""
    words = (part.partition(";")[0].partition("=")[0].strip().lower() for part in header.split(","))
    return wish in words
