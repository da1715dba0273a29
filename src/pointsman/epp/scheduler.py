"""A configuration at work: producers, admitters, profiles, hooks, in llm-d's order.

`decide` looks and chooses, `commit` tells the plugins what was chosen; a replay decides without committing. Nothing
here awaits, so a decision and its reservation are one step of the event loop. A scheduler is never changed: a new
configuration is a new one, and a request that has begun with the old one ends with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import msgspec

from pointsman.epp.explain import Meter, Step, Trace
from pointsman.epp.plugins.api import (
    Conclusion,
    Detector,
    Endpoints,
    HeaderChanges,
    Key,
    OnEndpoints,
    OnResponse,
    Picked,
    PrefixMatches,
    ProfileHandler,
    RequestCost,
)
from pointsman.epp.profile import Profile
from pointsman.epp.refusals import Internal, PreconditionFailed, Refusal, ResourceExhausted
from pointsman.epp.request import Needs, Request
from pointsman.epp.view import EndpointView

_NO_CHANGES = HeaderChanges()


@dataclass(frozen=True, slots=True)
class Hooked:
    """A plugin at one extension point, with its meter."""

    plugin: Any
    meter: Meter


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a scheduler is made of."""

    profiles: Mapping[str, Profile]
    handler: ProfileHandler
    detector: Detector
    producers: Sequence[Hooked]  # in the order of their dependencies
    admitters: Sequence[Hooked] = ()
    before_send: Sequence[Hooked] = ()
    on_response: Sequence[Hooked] = ()
    on_endpoints: Sequence[OnEndpoints] = ()
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

    def __init__(self, parts: Parts, *, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._parts = parts
        self._nanos = clock
        self._reads = any(parser != "passthrough-parser" for parser in parts.parsers)

    def needs(self, endpoints: Endpoints) -> Needs:
        """Return what must be known of a body before `decide`; the first that wants hashes says how."""
        if not self._reads:
            return Needs(parsers=self._parts.parsers)
        asked = [each.plugin.needs(endpoints) for each in self._parts.producers if hasattr(each.plugin, "needs")]
        hashed = next((each for each in asked if each.block_tokens), Needs())
        return Needs(
            body=True,
            parsers=self._parts.parsers,
            prompt=any(each.prompt for each in asked),
            block_tokens=hashed.block_tokens,
            max_blocks=hashed.max_blocks,
        )

    def admit(self, request: Request, endpoints: Endpoints) -> None:
        """Shed what may be shed when the pool is full.

        Raises Refusal.
        """
        if request.priority < 0 and self._parts.detector.saturation(endpoints) >= 1.0:
            raise ResourceExhausted("system saturated, sheddable request dropped")

    def decide(self, request: Request, endpoints: Endpoints, *, trace: Trace | None = None) -> Outcome:
        """Return whom to send the request to; `endpoints` are never empty.

        Raises Refusal.
        """
        facts = dict(request.attributes)
        request = msgspec.structs.replace(request, attributes=facts)
        for hooked in self._parts.producers:
            facts.update(self._call(hooked, "produce", endpoints, {}, request, endpoints, trace=trace))
        for hooked in self._parts.admitters:
            if reason := self._call(hooked, "admit", endpoints, "", request, endpoints, trace=trace):
                raise Internal(f"request cannot be admitted: {reason}")
        outcome = self._run_profiles(request, endpoints, trace=trace)
        if "if-available" in request.headers.get("prefer", ""):
            self._check_cached(outcome)
        return outcome

    def _run_profiles(self, request: Request, endpoints: Endpoints, *, trace: Trace | None) -> Outcome:
        handler, profiles = self._parts.handler, self._parts.profiles
        results: dict[str, Picked | None] = {}
        while wanted := [name for name in handler.next_profiles(request, results) if name not in results]:
            for name in wanted:
                profile = profiles.get(name)
                results[name] = None if profile is None else profile.run(request, endpoints, trace=trace)
        if not results:
            raise ResourceExhausted("failed to find target endpoint: no profile was run", dropped="rejected-saturated")
        conclusion: Conclusion = handler.conclude(request, results)
        return Outcome(request=request, results=results, primary=conclusion.primary, target=conclusion.target)

    def _check_cached(self, outcome: Outcome) -> None:
        """Refuse a request that is wanted only where its prefix is cached (RFC 7240's `Prefer: if-available`)."""
        matches = self._parts.matches.of(outcome.request) if self._parts.matches is not None else None
        if matches is None or not matches.cached.get(outcome.picked.first.target):
            raise PreconditionFailed("no decode worker has the requested KV cache")

    def commit(self, outcome: Outcome, *, trace: Trace | None = None) -> HeaderChanges:
        """Tell the plugins, and return what they change in the request's headers."""
        changes: list[HeaderChanges] = []
        given = outcome.picked.candidates
        for hooked in self._parts.before_send:
            arguments = (outcome.request, outcome.results, outcome.primary)
            change = self._call(hooked, "before_send", given, None, *arguments, trace=trace)
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
            plugin: OnResponse = hooked.plugin
            try:
                added += plugin.on_response(request, endpoint)
            except Exception as error:
                hooked.meter.failed(error)
        return added

    @property
    def responds(self) -> bool:
        """Whether any plugin adds to responses."""
        return bool(self._parts.on_response)

    def endpoints_changed(self, targets: frozenset[str]) -> None:
        """Tell the plugins who is there now."""
        for plugin in self._parts.on_endpoints:
            plugin.on_endpoints(targets)

    def _call(
        self, hooked: Hooked, method: str, given: Endpoints, default: Any, *arguments: Any, trace: Trace | None
    ) -> Any:
        """Call a plugin; a failure costs its own contribution only."""
        start, problem = self._nanos(), ""
        try:
            result = getattr(hooked.plugin, method)(*arguments)
        except Refusal:
            raise
        except Exception as error:
            hooked.meter.failed(error)
            result, problem = default, repr(error)
        nanos = self._nanos() - start
        hooked.meter.add(nanos)
        if trace is not None:
            trace.others.append(Step(hooked.meter.point, hooked.meter.name, nanos, given, error=problem))
        return result
