"""Every extension point of the table: a class with nothing but its method is a plugin, is called, and may fail."""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pointsman.core.documents import to_yaml
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.plugins.api import Conclusion, HeaderChanges
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Pool
from pointsman.epp.request.predictions import PredictionQuestion, PredictionService
from pointsman.epp.request.request import Needs, Prompt, Request
from pointsman.epp.schedule.director import Director, DirectorOptions
from pointsman.epp.schedule.explain import Meters
from pointsman.epp.schedule.points import MAKES_A_PLUGIN, POINTS, SATURATION, WANTS, Point
from pointsman.epp.schedule.records import Records

MODULE = "plugins_of_the_table"
DOCUMENT: dict[str, Any] = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}

QUESTION = PredictionQuestion(service=PredictionService(addresses=()), answer="told", targets=(), rows=())
# What each method answers when it behaves, given what it is given.
ANSWERS: dict[str, Callable[..., Any]] = {
    "filter": lambda _request, endpoints: endpoints,
    "score": lambda _request, endpoints: [1.0] * len(endpoints),
    "pick": lambda _request, endpoints, _scores: endpoints[:1],
    "next_profiles": lambda _request, results: () if results else ("default",),
    "conclude": lambda _request, _results: Conclusion(primary="default"),
    "produce": lambda _request, _endpoints: {"found": 1},
    "needs": lambda _endpoints: Needs(),
    "question": lambda _request, _endpoints: QUESTION,
    "admit": lambda _request, _endpoints: "",
    "saturation": lambda _endpoints: 0.0,
    "wants": lambda _request, _endpoint: False,
    "before_send": lambda _request, _results, _primary: HeaderChanges(set=[("x-sent", "yes")]),
    "on_response": lambda _request, _endpoint: [("x-answered", "yes")],
    "answer": lambda _request, _endpoints: None,
    "identify": lambda _request: "somebody",
    "report": lambda _request, _usage: {"envoy.lb": {"x-cost": 1.0}},
    "learn": lambda _request, _endpoint, _ttft, _tpot: None,
    "on_endpoints": lambda _targets: None,
}
# What a configuration has to say besides the plugin, where that is not enough.
NAMED: dict[str, dict[str, Any]] = {
    "saturation": {"flowControl": {"saturationDetector": {"pluginRef": "mine"}}},
    "wants": {"schedulingProfiles": [{"name": "decode"}, {"name": "prefill"}]},
}


class Asked:
    """A plugin class with one method under test, and how often that was called."""

    def __init__(self, point: Point, *, fails: bool) -> None:
        self.calls = 0
        self._point = point
        self._fails = fails
        methods = [one for one in POINTS if one is point or one.method == point.accompanies]
        if point.method == "next_profiles":  # a handler has both
            methods += [one for one in POINTS if one.accompanies == point.method]
        members: dict[str, Any] = {one.method: staticmethod(self._method(one)) for one in methods}
        self.cls = type("Minimal", (), {**members, "produces": ()})

    def _method(self, point: Point) -> Callable[..., Any]:
        def method(*arguments: Any) -> Any:
            if point is not self._point:
                return ANSWERS[point.method](*arguments)
            self.calls += 1
            if self._fails:
                raise RuntimeError("boom")
            return ANSWERS[point.method](*arguments)

        return method


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, made)
    return made


def configuration(point: Point) -> str:
    plugins: list[dict[str, Any]] = [{"type": f"{MODULE}:Minimal", "name": "mine"}]
    if point is WANTS:
        plugins.append({"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "mine"}}})
    return to_yaml({**DOCUMENT, "plugins": plugins, **NAMED.get(point.method, {})})


def serve(point: Point) -> tuple[Meters, list[tuple[str, str]]]:
    """Decide one request by a configuration that names the plugin; return what failed and was added.

    It may be shed where a detector is asked; that of the default configuration finds endpoints full that were never
    scraped.
    """
    meters = Meters()
    scheduler = Builder(clock=lambda: 0.0, rng=random.Random(7), meters=meters).build(load(configuration(point)))
    pool = Pool(clock=lambda: 0.0)
    director = Director(
        pool=pool,
        scheduler=scheduler.scheduler,
        records=Records(),
        rng=random.Random(7),
        options=DirectorOptions(priority_of=lambda _objective: -1 if point is SATURATION else 0),
    )
    pool.replace([Endpoint(name=name, address=f"10.0.0.{at}", port=8000) for at, name in enumerate("ab", 1)])
    assert director.needs.parsers
    director.direct(Request(id="g", headers={":path": "/v1/models"}, has_body=False))[1].release()
    headers = {"x-llm-d-inference-objective": "batch"}
    request = Request(id="r", headers=headers, model="m", prompt=Prompt(tokens=4))
    ahead = director.ahead(request)
    decision, reservation = director.direct(request if ahead is None else ahead.answered(request, None))
    added = [*decision.set_headers]
    if decision.answer is not None:
        added += decision.answer(decision.members[0].view, None)
    if decision.learn is not None:
        decision.learn(10.0, None)
    if decision.report is not None:
        decision.report({"prompt_tokens": 1})
    reservation.release()
    return meters, added


def test_the_tests_know_every_point() -> None:
    assert [point.method for point in POINTS] == [*ANSWERS]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.method)
def test_a_class_with_only_this_method_is_loaded_and_called(point: Point, module: ModuleType) -> None:
    asked = Asked(point, fails=False)
    vars(module)["Minimal"] = asked.cls
    meters, _ = serve(point)
    assert asked.calls > 0
    assert sum(meter.errors for meter in meters) == 0


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.method)
def test_its_failure_costs_its_own_contribution_only(point: Point, module: ModuleType) -> None:
    asked = Asked(point, fails=True)
    vars(module)["Minimal"] = asked.cls
    meters, added = serve(point)
    failed = {(meter.point, meter.name): meter.errors for meter in meters if meter.errors}
    culprit = "disagg-profile-handler" if point is WANTS else "mine"
    assert failed == {(point.label, culprit): asked.calls}, "counted where the table says, and nobody else failed"
    assert added == []


@pytest.mark.parametrize(
    ("method", "header"), [("before_send", ("x-sent", "yes")), ("on_response", ("x-answered", "yes"))]
)
def test_what_a_hook_adds_arrives(method: str, header: tuple[str, str], module: ModuleType) -> None:
    (point,) = (one for one in POINTS if one.method == method)
    vars(module)["Minimal"] = Asked(point, fails=False).cls
    assert header in serve(point)[1]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.method)
def test_a_point_is_a_method_of_its_protocol(point: Point) -> None:
    assert point.method in vars(point.protocol)


@pytest.mark.parametrize("point", MAKES_A_PLUGIN, ids=lambda point: point.method)
def test_the_guide_names_it(point: Point) -> None:
    guide = Path(__file__).parents[4] / "docs" / "how-to" / "write-a-plugin.md"
    assert f"| `{point.method}(" in guide.read_text()
