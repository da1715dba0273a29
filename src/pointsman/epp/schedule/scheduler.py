"""A configuration at work: producers, admitters, profiles, hooks, in llm-d's order.

`decide` looks and chooses, `commit` tells the plugins what was chosen; a replay decides without committing. Nothing
here awaits, so a decision and its reservation are one step of the event loop. A scheduler is never changed: a new
configuration is a new one, and a request that has begun with the old one ends with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pointsman.epp.plugins.api import (
    Conclusion,
    Endpoints,
    HeaderChanges,
    Key,
    Picked,
    PrefixMatches,
    RequestCost,
)
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.refusals import Internal, PreconditionFailed, ResourceExhausted
from pointsman.epp.request.request import Needs, Request
from pointsman.epp.schedule.explain import Trace
from pointsman.epp.schedule.points import (
    ADMIT,
    BEFORE_SEND,
    CONCLUDE,
    NEEDS,
    NEXT_PROFILES,
    ON_ENDPOINTS,
    ON_RESPONSE,
    PRODUCE,
    SATURATION,
    Hooked,
)
from pointsman.epp.schedule.profile import Profile

_NO_CHANGES = HeaderChanges()


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a scheduler is made of."""

    profiles: Mapping[str, Profile]
    handler: Hooked  # a ProfileHandler
    detector: Hooked  # a Detector
    producers: Sequence[Hooked]  # in the order of their dependencies
    admitters: Sequence[Hooked] = ()
    before_send: Sequence[Hooked] = ()
    on_response: Sequence[Hooked] = ()
    on_endpoints: Sequence[Hooked] = ()
    parsers: tuple[str, ...] = ()
    cost: Key[RequestCost] | None = None
    matches: Key[PrefixMatches] | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A decision before it is carried out."""

    request: Request  # with what the producers found out
    results: Mapping[str, Picked | None]
    primary: str
    target: str = ""

    @property
    def picked(self) -> Picked:
        """What serves the request."""
        picked = self.results[self.primary]
        assert picked is not None, "a conclusion names a profile that has endpoints"
        return picked


class Scheduler:
    """Chooses among endpoints as one configuration says."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._only = parts.profiles.get(getattr(parts.handler.plugin, "only_profile", ""))
        self._needs: dict[int, Needs] = {}  # by the first endpoint's block size, on which alone they depend
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
            found = self._needs[block] = self._find_needs(endpoints)
        return found

    def _find_needs(self, endpoints: Endpoints) -> Needs:
        """Ask the producers; the first that wants hashes says how."""
        if not self._reads:
            return Needs(parsers=self._parts.parsers)
        wanting = [each for each in self._parts.producers if NEEDS.on(each.plugin)]
        asked = [needs for each in wanting if (needs := NEEDS.call(each, endpoints)) is not None]
        hashed = next((each for each in asked if each.block_tokens), Needs())
        return Needs(
            body=True,
            parsers=self._parts.parsers,
            prompt=any(each.prompt for each in asked),
            block_tokens=hashed.block_tokens,
            max_blocks=hashed.max_blocks,
            media=any(each.media for each in asked),
            estimates=next((each.estimates for each in asked if each.estimates is not None), None),
            tokenizer=next((each.tokenizer for each in asked if each.tokenizer is not None), None),
        )

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
        for hooked in self._parts.producers:
            facts |= PRODUCE.call(hooked, request, endpoints, given=endpoints, steps=steps)
        for hooked in self._parts.admitters:
            if reason := ADMIT.call(hooked, request, endpoints, given=endpoints, steps=steps):
                raise Internal(f"request cannot be admitted: {reason}")
        outcome = self._run_profiles(request, endpoints, trace=trace)
        if "if-available" in request.headers.get("prefer", ""):
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
                results[name] = None if profile is None else profile.run(request, endpoints, trace=trace)
        found: Conclusion | None = None
        if results:
            found = CONCLUDE.call(handler, request, results, given=endpoints, steps=steps)
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
        return HeaderChanges(
            set=[pair for each in changes for pair in each.set],
            remove=[name for each in changes for name in each.remove],
        )

    def tokens(self, outcome: Outcome, target: str) -> int:
        """Return how many tokens of work the request is at an endpoint; 0 when nobody knows."""
        cost = self._parts.cost.of(outcome.request) if self._parts.cost is not None else None
        return cost.at(target) if cost is not None else 0

    def respond(self, request: Request, endpoint: EndpointView) -> list[tuple[str, str]]:
        """Return what plugins add to the response's headers."""
        added: list[tuple[str, str]] = []
        for hooked in self._parts.on_response:
            added += ON_RESPONSE.call(hooked, request, endpoint)
        return added

    @property
    def responds(self) -> bool:
        """Whether any plugin adds to responses."""
        return bool(self._parts.on_response)

    def endpoints_changed(self, targets: frozenset[str]) -> None:
        """Tell the plugins who is there now."""
        for hooked in self._parts.on_endpoints:
            ON_ENDPOINTS.call(hooked, targets)
