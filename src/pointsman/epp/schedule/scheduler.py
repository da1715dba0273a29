"""A configuration at work: producers, admitters, profiles, hooks, in llm-d's order.

`decide` looks and chooses, `commit` tells the plugins what was chosen; a replay decides without committing. Nothing
here awaits, so a decision and its reservation are one step of the event loop. A scheduler is never changed: a new
configuration is a new one, and a request that has begun with the old one ends with it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Generic, TypeVar

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
from pointsman.epp.request.refusals import Internal, PreconditionFailed, Refusal, ResourceExhausted
from pointsman.epp.request.request import Needs, Request
from pointsman.epp.schedule.explain import Meter, Step, Trace
from pointsman.epp.schedule.profile import Profile

_NO_CHANGES = HeaderChanges()

T = TypeVar("T")
Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True)
class _Point(Generic[Answer_co]):
    """A method that plugins may have: how its answer is read, and what stands in for one that fails."""

    method: str
    read: Callable[[Any], Answer_co]
    default: Answer_co


def _maybe(kind: type[T]) -> Callable[[Any], T | None]:
    """Return a reader that takes an instance or None, and nothing else."""

    def read(answer: Any) -> T | None:
        if answer is not None and not isinstance(answer, kind):
            raise TypeError(f"expected {kind.__name__}, not {type(answer).__name__}")
        return answer

    return read


_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00\r\n]*")


def _header(pair: Any) -> tuple[str, str]:
    """Return a header that Envoy takes; it answers 500 to any other."""
    name, value = pair
    if not isinstance(name, str) or not isinstance(value, str):
        raise TypeError(f"a header is a name and a value, both str, not {pair!r}")
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise ValueError(f"{pair!r} is no header")
    return name, value


def _headers(answer: Any) -> list[tuple[str, str]]:
    return [_header(pair) for pair in answer]


def _changes(answer: Any) -> HeaderChanges | None:
    found = _maybe(HeaderChanges)(answer)
    if found is None:
        return None
    return HeaderChanges(set=_headers(found.set), remove=[_header((name, ""))[0] for name in found.remove])


def _reason(answer: Any) -> str:
    return str(answer) if answer else ""


_PRODUCE = _Point[dict[str, object]]("produce", dict, {})
_ADMIT = _Point[str]("admit", _reason, "")
_NEEDS = _Point[Needs | None]("needs", _maybe(Needs), None)
_SATURATION = _Point[float]("saturation", float, 0.0)
_NEXT_PROFILES = _Point[Sequence[str]]("next_profiles", tuple, ())
_CONCLUDE = _Point[Conclusion | None]("conclude", _maybe(Conclusion), None)
_BEFORE_SEND = _Point[HeaderChanges | None]("before_send", _changes, None)
_ON_RESPONSE = _Point[list[tuple[str, str]]]("on_response", _headers, [])
_ON_ENDPOINTS = _Point[None]("on_endpoints", lambda _: None, None)


@dataclass(frozen=True, slots=True)
class Hooked:
    """A plugin at one extension point, with its meter."""

    plugin: Any
    meter: Meter


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

    def __init__(self, parts: Parts, *, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._parts = parts
        self._nanos = clock
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
        wanting = [each for each in self._parts.producers if hasattr(each.plugin, "needs")]
        asked = [needs for each in wanting if (needs := self._call(each, _NEEDS, endpoints)) is not None]
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
        if request.priority < 0 and self._call(self._parts.detector, _SATURATION, endpoints) >= 1.0:
            raise ResourceExhausted("system saturated, sheddable request dropped")

    def decide(self, request: Request, endpoints: Endpoints, *, trace: Trace | None = None) -> Outcome:
        """Return whom to send the request to; `endpoints` are never empty.

        Raises Refusal.
        """
        facts = dict(request.attributes)
        request = msgspec.structs.replace(request, attributes=facts)
        for hooked in self._parts.producers:
            facts |= self._call(hooked, _PRODUCE, request, endpoints, given=endpoints, trace=trace)
        for hooked in self._parts.admitters:
            if reason := self._call(hooked, _ADMIT, request, endpoints, given=endpoints, trace=trace):
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
        while True:
            wanted = self._call(handler, _NEXT_PROFILES, request, results, given=endpoints, trace=trace)
            names = [name for name in wanted if name not in results]
            if not names:
                break
            for name in names:
                profile = profiles.get(name)
                results[name] = None if profile is None else profile.run(request, endpoints, trace=trace)
        found: Conclusion | None = None
        if results:
            found = self._call(handler, _CONCLUDE, request, results, given=endpoints, trace=trace)
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
        given = outcome.picked.candidates
        for hooked in self._parts.before_send:
            arguments = (outcome.request, outcome.results, outcome.primary)
            change = self._call(hooked, _BEFORE_SEND, *arguments, given=given, trace=trace)
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
            added += self._call(hooked, _ON_RESPONSE, request, endpoint)
        return added

    @property
    def responds(self) -> bool:
        """Whether any plugin adds to responses."""
        return bool(self._parts.on_response)

    def endpoints_changed(self, targets: frozenset[str]) -> None:
        """Tell the plugins who is there now."""
        for hooked in self._parts.on_endpoints:
            self._call(hooked, _ON_ENDPOINTS, targets)

    def _call(
        self, hooked: Hooked, point: _Point[T], *arguments: Any, given: Endpoints = (), trace: Trace | None = None
    ) -> T:
        """Call a plugin; a failure, or an answer that is none, costs its own contribution only."""
        start, problem = self._nanos(), ""
        try:
            result = point.read(getattr(hooked.plugin, point.method)(*arguments))
        except Refusal:
            raise
        except (Exception, SystemExit) as error:
            hooked.meter.failed(error)
            result, problem = point.default, repr(error)
        nanos = self._nanos() - start
        hooked.meter.add(nanos)
        if trace is not None:
            trace.others.append(Step(hooked.meter.point, hooked.meter.name, nanos, given, error=problem))
        return result
