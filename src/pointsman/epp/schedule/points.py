"""The extension points: which methods make a class a plugin, and how each of them is called.

This is the one table. The registry recognises plugins by it, the builder meters and hooks them by it, and whoever calls
a plugin does so through its point. A call is guarded: a plugin that raises, or answers what is no answer, loses its own
contribution to this one decision and is counted; what stands in for it is written beside the call. A `Refusal` is an
answer and passes.

A new point is a protocol in `plugins.api`, a row here, and a place that calls it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Generic, TypeVar, TypeVarTuple

from pointsman.epp.plugins import api
from pointsman.epp.plugins.api import Conclusion, Endpoints, HeaderChanges, Results
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.predictions import PredictionQuestion
from pointsman.epp.request.refusals import Answer as AnswerOfOurs
from pointsman.epp.request.refusals import Refusal
from pointsman.epp.request.request import Needs, Request
from pointsman.epp.schedule.explain import DecisionStep, Meter

T = TypeVar("T")
Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True, slots=True)
class Hooked:
    """A plugin at one extension point, with its meter."""

    plugin: Any
    meter: Meter
    weight: float = 1.0  # of a scorer


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """A method that plugins may have."""

    name: str  # what a plugin that has it is called
    protocol: type[Any]
    method: str
    label: str  # the `extension_point` of the metrics under which its time and its failures are counted
    accompanies: str = ""  # the method beside which it is looked for: alone it makes no plugin

    def on(self, plugin: Any) -> bool:
        """Return whether a plugin, or a class of them, has it."""
        return hasattr(plugin, self.method)


@dataclass(frozen=True, kw_only=True, eq=False)
class GuardedPoint(Point, Generic[Answer, *Arguments]):
    """A point that the scheduler calls itself."""

    ask: Callable[[Any, *Arguments], Answer]  # call the plugin and read its answer; raises whatever it likes
    instead: Callable[[*Arguments], Answer]  # what stands in for a plugin that failed

    def call(
        self, hooked: Hooked, *arguments: *Arguments, given: Endpoints = (), steps: list[DecisionStep] | None = None
    ) -> Answer:
        """Return the plugin's answer, or what stands in for it; `steps` collects who did what to the endpoints `given`.

        Raises Refusal when the plugin refuses the request.
        """
        problem = ""
        start = perf_counter_ns()
        try:
            answer = self.ask(hooked.plugin, *arguments)
        except Refusal:
            raise
        except (Exception, SystemExit) as error:
            hooked.meter.failed(error)
            answer, problem = self.instead(*arguments), repr(error)
        nanos = perf_counter_ns() - start
        hooked.meter.add(nanos)
        if steps is not None:
            steps.append(DecisionStep(self.label, hooked.meter.name, nanos, given, answer, hooked.weight, problem))
        return answer


# -- what is called, and how its answer is read -----------------------------------------------------------------------


def _filter(plugin: api.Filter, request: Request, endpoints: Endpoints) -> Endpoints:
    return _views(plugin.filter(request, endpoints))


def _add_scores(
    plugin: api.Scorer, request: Request, endpoints: Endpoints, totals: list[float], weight: float
) -> Sequence[float] | None:
    """Return the scores, having added them to the totals: all of them, or none."""
    scores = plugin.score(request, endpoints)
    if len(scores) != len(endpoints):
        raise ValueError(f"{len(scores)} scores for {len(endpoints)} endpoints")
    if any(scores):  # often nobody has anything, and a thousand zeros need not be added
        totals[:] = [
            total + weight * (score if 0.0 <= score <= 1.0 else clamp(score))
            for total, score in zip(totals, scores, strict=True)
        ]
    return scores


def clamp(score: float) -> float:
    """Return a score outside of 0..1 as the nearest end; what is not a number is worth nothing."""
    return 1.0 if score > 1.0 else 0.0


def _pick(plugin: api.Picker, request: Request, endpoints: Endpoints, totals: Sequence[float]) -> Endpoints:
    picked = _views(plugin.pick(request, endpoints, totals))
    _ = picked[0]
    return picked


def _best(_request: Request, endpoints: Endpoints, totals: Sequence[float]) -> Endpoints:
    return (endpoints[totals.index(max(totals))],)


def _views(chosen: Endpoints) -> Endpoints:
    """Return what a plugin chose, so that nobody can change it for the next.

    Raises TypeError when it chose anything but endpoints.
    """
    chosen = tuple(chosen)
    strange = set(map(type, chosen)) - {EndpointView}
    if strange:
        raise TypeError(f"it chose {', '.join(sorted(kind.__name__ for kind in strange))} among endpoints")
    return chosen


def _needs(plugin: api.BodyReader, endpoints: Endpoints) -> Needs | None:
    return _maybe(Needs, plugin.needs(endpoints))


def _question(plugin: api.Asks, request: Request, endpoints: Endpoints) -> PredictionQuestion | None:
    return _maybe(PredictionQuestion, plugin.question(request, endpoints))


def _produce(plugin: api.Producer, request: Request, endpoints: Endpoints) -> Mapping[str, object]:
    return dict(plugin.produce(request, endpoints))


def _admit(plugin: api.Admitter, request: Request, endpoints: Endpoints) -> str:
    reason = plugin.admit(request, endpoints)
    return str(reason) if reason else ""


def _saturation(plugin: api.Detector, endpoints: Endpoints) -> float:
    return float(plugin.saturation(endpoints))


def _next_profiles(plugin: api.ProfileHandler, request: Request, results: Results) -> Sequence[str]:
    return tuple(plugin.next_profiles(request, results))


def _conclude(plugin: api.ProfileHandler, request: Request, results: Results) -> Conclusion | None:
    return _maybe(Conclusion, plugin.conclude(request, results))


def _before_send(plugin: api.BeforeSend, request: Request, results: Results, primary: str) -> HeaderChanges | None:
    found = _maybe(HeaderChanges, plugin.before_send(request, results, primary))
    if found is None:
        return None
    return HeaderChanges(set=_headers(found.set), remove=[_header((name, ""))[0] for name in found.remove])


def _on_response(plugin: api.OnResponse, request: Request, endpoint: EndpointView) -> list[tuple[str, str]]:
    return _headers(plugin.on_response(request, endpoint))


def _answer(plugin: api.Answers, request: Request, endpoints: Endpoints) -> AnswerOfOurs | None:
    return _maybe(AnswerOfOurs, plugin.answer(request, endpoints))


def _identify(plugin: api.Identifies, request: Request) -> str:
    return str(plugin.identify(request) or "")


def _report(plugin: api.Reports, request: Request, usage: Mapping[str, Any]) -> Mapping[str, dict[str, float]]:
    found = plugin.report(request, usage)
    return {str(space): {str(name): float(value) for name, value in said.items()} for space, said in found.items()}


def _learn(plugin: api.Learns, request: Request, endpoint: EndpointView, ttft_ms: float, tpot_ms: float | None) -> None:
    plugin.learn(request, endpoint, ttft_ms, tpot_ms)


def _on_endpoints(plugin: api.OnEndpoints, targets: frozenset[str]) -> None:
    plugin.on_endpoints(targets)


def _maybe(kind: type[T], answer: Any) -> T | None:
    """Return an instance or None.

    Raises TypeError for anything else.
    """
    if answer is not None and not isinstance(answer, kind):
        raise TypeError(f"expected {kind.__name__}, not {type(answer).__name__}")
    return answer


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


# -- the table --------------------------------------------------------------------------------------------------------

FILTER = GuardedPoint(
    name="filter",
    protocol=api.Filter,
    method="filter",
    label="Filter",
    ask=_filter,
    instead=lambda _request, endpoints: endpoints,  # it drops nobody
)
SCORE = GuardedPoint(
    name="scorer",
    protocol=api.Scorer,
    method="score",
    label="Scorer",
    ask=_add_scores,
    instead=lambda *_: None,  # the totals stay as they were
)
PICK = GuardedPoint(name="picker", protocol=api.Picker, method="pick", label="Picker", ask=_pick, instead=_best)
NEXT_PROFILES = GuardedPoint(
    name="profile handler",
    protocol=api.ProfileHandler,
    method="next_profiles",
    label="ProfilePicker",
    ask=_next_profiles,
    instead=lambda *_: (),
)
CONCLUDE = GuardedPoint(
    name="profile handler",
    protocol=api.ProfileHandler,
    method="conclude",
    label="ProcessProfilesResults",
    accompanies="next_profiles",
    ask=_conclude,
    instead=lambda *_: None,  # the first profile concludes
)
PRODUCE = GuardedPoint(
    name="producer",
    protocol=api.Producer,
    method="produce",
    label="DataProducer",
    ask=_produce,
    instead=lambda *_: {},
)
NEEDS = GuardedPoint(
    name="producer",
    protocol=api.BodyReader,
    method="needs",
    label="DataProducer",
    accompanies="produce",
    ask=_needs,
    instead=lambda _endpoints: None,
)
QUESTION = GuardedPoint(
    name="producer",
    protocol=api.Asks,
    method="question",
    label="DataProducer",
    accompanies="produce",
    ask=_question,
    instead=lambda *_: None,  # nobody is asked
)
ADMIT = GuardedPoint(
    name="admitter",
    protocol=api.Admitter,
    method="admit",
    label="Admission",
    ask=_admit,
    instead=lambda *_: "",  # it admits
)
SATURATION = GuardedPoint(
    name="detector",
    protocol=api.Detector,
    method="saturation",
    label="SaturationDetector",
    ask=_saturation,
    instead=lambda _endpoints: 0.0,  # nothing is shed
)
# A decider is asked by the profile handler that refers to it, whose guard is around it.
WANTS = Point(name="decider", protocol=api.Decider, method="wants", label=NEXT_PROFILES.label)
BEFORE_SEND = GuardedPoint(
    name="before-send hook",
    protocol=api.BeforeSend,
    method="before_send",
    label="PreRequest",
    ask=_before_send,
    instead=lambda *_: None,
)
ON_RESPONSE = GuardedPoint(
    name="response hook",
    protocol=api.OnResponse,
    method="on_response",
    label="ResponseReceived",
    ask=_on_response,
    instead=lambda *_: [],
)
ANSWER = GuardedPoint(
    name="responder",
    protocol=api.Answers,
    method="answer",
    label="RequestHeader",
    ask=_answer,
    instead=lambda *_: None,  # the request goes on
)
IDENTIFY = GuardedPoint(
    name="identity",
    protocol=api.Identifies,
    method="identify",
    label="RequestHeader",
    ask=_identify,
    instead=lambda _request: "",
)
REPORT = GuardedPoint(
    name="reporter",
    protocol=api.Reports,
    method="report",
    label="ResponseComplete",
    ask=_report,
    instead=lambda *_: {},
)
LEARN = GuardedPoint(
    name="learner",
    protocol=api.Learns,
    method="learn",
    label="ResponseComplete",
    ask=_learn,
    instead=lambda *_: None,
)
ON_ENDPOINTS = GuardedPoint(
    name="endpoint hook",
    protocol=api.OnEndpoints,
    method="on_endpoints",
    label="EndpointNotification",
    ask=_on_endpoints,
    instead=lambda _targets: None,
)

POINTS: tuple[Point, ...] = (
    FILTER, SCORE, PICK, NEXT_PROFILES, CONCLUDE, PRODUCE, NEEDS, QUESTION, ADMIT, SATURATION, WANTS, BEFORE_SEND,
    ON_RESPONSE, ANSWER, IDENTIFY, REPORT, LEARN, ON_ENDPOINTS,
)  # fmt: skip
IN_PROFILES: tuple[Point, ...] = (FILTER, SCORE, PICK)
MAKES_A_PLUGIN: tuple[Point, ...] = tuple(point for point in POINTS if not point.accompanies)


def names_of(cls: type[Any]) -> tuple[str, ...]:
    """Return what a class can be, in words."""
    return tuple(point.name for point in MAKES_A_PLUGIN if point.on(cls))
