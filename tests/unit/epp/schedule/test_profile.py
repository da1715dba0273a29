"""A profile: filters, scores, pick; and plugins that misbehave."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.epp.plugins.making import endpoint, names, request

from pointsman.epp.plugins.api import Context, Endpoints
from pointsman.epp.plugins.pickers import MaxScorePicker, PickerParameters
from pointsman.epp.request.refusals import BadRequest
from pointsman.epp.request.request import Request
from pointsman.epp.schedule.explain import Meter, Trace
from pointsman.epp.schedule.points import Hooked, clamp
from pointsman.epp.schedule.profile import Profile

VIEWS = tuple(endpoint(name) for name in "abc")


def meter(name: str) -> Meter:
    return Meter(point="test", type_name=name, name=name)


class Scores:
    def __init__(self, *values: Any) -> None:
        self.values = values

    def score(self, _request: Request, _endpoints: Endpoints) -> Any:
        return self.values


class Keeps:
    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def filter(self, _request: Request, endpoints: Endpoints) -> Any:
        return [each for each in endpoints if each.name in self.kept]


class Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def filter(self, _request: Request, _endpoints: Endpoints) -> Endpoints:
        raise self.error

    def score(self, _request: Request, _endpoints: Endpoints) -> Sequence[float]:
        raise self.error

    def pick(self, _request: Request, _endpoints: Endpoints, _scores: Sequence[float]) -> Endpoints:
        raise self.error


class Empties:
    def score(self, _request: Request, endpoints: Any) -> Sequence[float]:
        endpoints.clear()
        return []


class Chooses:
    """Filters and picks what it is told to."""

    def __init__(self, chosen: Any) -> None:
        self.chosen = chosen

    def filter(self, _request: Request, _endpoints: Endpoints) -> Any:
        return self.chosen

    def pick(self, _request: Request, _endpoints: Endpoints, _scores: Sequence[float]) -> Any:
        return self.chosen


def profile(*, filters: Sequence[Any] = (), scorers: Sequence[tuple[Any, float]] = (), picker: Any = None) -> Profile:
    context = Context(name="p", clock=lambda: 0.0, rng=random.Random(7))
    return Profile(
        "default",
        filters=[Hooked(each, meter(f"filter-{at}")) for at, each in enumerate(filters)],
        scorers=[Hooked(each, meter(f"scorer-{at}"), weight) for at, (each, weight) in enumerate(scorers)],
        picker=Hooked(picker or MaxScorePicker(PickerParameters(), context=context), meter("picker")),
    )


def test_scores_are_weighted_and_summed() -> None:
    picked = profile(scorers=[(Scores(1.0, 0.5, 0.0), 2.0), (Scores(0.0, 1.0, 0.5), 3.0)]).run(request(), VIEWS)
    assert picked is not None
    assert list(picked.scores) == pytest.approx([2.0, 4.0, 1.5])
    assert names(picked.endpoints) == ["b"]


def test_filters_run_in_order_and_stop_when_nobody_is_left() -> None:
    later = Raises(RuntimeError("must not be asked"))
    nobody = profile(filters=[Keeps("ab"), Keeps("c"), later])
    assert nobody.run(request(), VIEWS) is None
    assert nobody._filters[2].meter.calls == 0
    some = profile(filters=[Keeps("ab"), Keeps("bc")]).run(request(), VIEWS)
    assert some is not None and names(some.candidates) == ["b"]


@pytest.mark.parametrize(
    ("score", "expected"), [(1.5, 1.0), (-0.5, 0.0), (float("inf"), 1.0), (float("nan"), 0.0), (0.3, 0.3)]
)
def test_what_is_no_score_from_0_to_1_is_clamped(score: float, expected: float) -> None:
    picked = profile(scorers=[(Scores(score, 0.0, 0.0), 1.0)]).run(request(), VIEWS)
    assert picked is not None and picked.scores[0] == expected
    if not 0 <= score <= 1:
        assert clamp(score) == expected


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(Raises(RuntimeError("boom")), id="raises"),
        pytest.param(Raises(SystemExit(3)), id="wants to end the process"),
        pytest.param(Empties(), id="wants to change what it was given"),
        pytest.param(Scores(1.0, 1.0), id="too few"),
        pytest.param(Scores(1.0, 1.0, 1.0, 1.0), id="too many"),
        pytest.param(Scores("1", 0, 0), id="not numbers"),
    ],
)
def test_a_scorer_that_fails_contributes_nothing(bad: Any) -> None:
    tried = profile(scorers=[(bad, 9.0), (Scores(0.0, 0.0, 1.0), 1.0)])
    picked = tried.run(request(), VIEWS)
    assert picked is not None and list(picked.scores) == [0.0, 0.0, 1.0]
    assert [step.meter.errors for step in tried._scorers] == [1, 0]


def test_a_filter_that_fails_drops_nobody() -> None:
    tried = profile(filters=[Raises(RuntimeError("boom")), Keeps("a")])
    picked = tried.run(request(), VIEWS)
    assert picked is not None and names(picked.candidates) == ["a"]
    assert tried._filters[0].meter.errors == 1


def test_a_picker_that_fails_is_replaced_by_the_best_score() -> None:
    tried = profile(scorers=[(Scores(0.0, 1.0, 0.5), 1.0)], picker=Raises(RuntimeError("boom")))
    picked = tried.run(request(), VIEWS)
    assert picked is not None and names(picked.endpoints) == ["b"]
    assert tried._picker.meter.errors == 1


@pytest.mark.parametrize("chosen", [None, 7, ["a"], [None], object()])
def test_what_is_no_endpoint_is_not_chosen(chosen: Any) -> None:
    tried = profile(filters=[Chooses(chosen)], scorers=[(Scores(0.0, 1.0, 0.5), 1.0)], picker=Chooses(chosen))
    picked = tried.run(request(), VIEWS)
    assert picked is not None and names(picked.endpoints) == ["b"]
    assert tried._filters[0].meter.errors == tried._picker.meter.errors == 1


@pytest.mark.parametrize("where", ["filters", "scorers", "picker"])
def test_a_refusal_is_an_answer_and_no_failure(where: str) -> None:
    refusing = Raises(BadRequest("no"))
    given: dict[str, Any] = {"filters": [refusing], "scorers": [(refusing, 1.0)], "picker": refusing}
    tried = profile(**{where: given[where]})
    with pytest.raises(BadRequest):
        tried.run(request(), VIEWS)


def test_a_trace_says_who_dropped_whom_and_what_each_scorer_said() -> None:
    trace = Trace()
    tried = profile(filters=[Keeps("ab")], scorers=[(Scores(0.2, 0.8), 2.0), (Raises(ValueError("bad day")), 1.0)])
    tried.run(request(), VIEWS, trace=trace)
    found = trace.to_json()["profiles"]["default"]
    assert found["candidates"] == [
        {"address": "a:8000", "scores": {"scorer-0": 0.2}},
        {"address": "b:8000", "scores": {"scorer-0": 0.8}},
        {"address": "c:8000", "dropped_by": "filter-0"},
    ]
    assert found["weights"] == {"scorer-0": 2.0, "scorer-1": 1.0}
    assert [row["plugin"] for row in found["plugins"]] == ["filter-0", "scorer-0", "scorer-1", "picker"]
    assert all(row["microseconds"] > 0 for row in found["plugins"])
    assert "bad day" in found["plugins"][2]["error"]


def test_every_plugin_is_timed() -> None:
    tried = profile(filters=[Keeps("abc")], scorers=[(Scores(0, 0, 0), 1.0)])
    for _ in range(3):
        tried.run(request(), VIEWS)
    meters = [tried._filters[0].meter, tried._scorers[0].meter, tried._picker.meter]
    assert [each.calls for each in meters] == [3, 3, 3]
    assert all(each.nanos > 0 and each.errors == 0 for each in meters)
