"""Which model serves a request: filters, scorers and pickers, each by itself and together."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from pointsman.core.errors import UserError
from pointsman.epp.bbr.costs import CostParameters, Costs, CostWindow
from pointsman.epp.bbr.filters import ByField, ByFieldParameters, ByGroup, Filter
from pointsman.epp.bbr.models import Model, Models
from pointsman.epp.bbr.pickers import AnyOne, MaxScore, WeightedRandom
from pointsman.epp.bbr.processors import Draft
from pointsman.epp.bbr.scorers import (
    AwareParameters,
    Cost,
    CostGuard,
    CostGuardParameters,
    Inflight,
    QueueParameters,
    QueueTtft,
    TtftAware,
)
from pointsman.epp.bbr.selector import ModelSelector
from pointsman.epp.bbr.ttft import Ttft, TtftParameters, TtftWindow, percentile
from pointsman.epp.request.refusals import ResourceExhausted

MODELS = """
models:
- {name: a, pricing: {inputPerMillion: 1}, attributes: {family: llama}}
- {name: b, pricing: {input_per_million: 3}, attributes: {family: qwen}}
- {name: c, attributes: {family: qwen}}
groups:
- {name: cheap, models: [a, c]}
"""


def listed() -> Models:
    models = Models()
    assert models.take(MODELS, name="f") == []
    return models


def names(models: Sequence[Model]) -> str:
    return "".join(model.name for model in models)


@pytest.mark.parametrize(
    ("members", "kept"),
    [
        ({}, "abc"),
        ({"model": ""}, "abc"),
        ({"model": "auto"}, "abc"),
        ({"model": "auto/cheap"}, "ac"),
        ({"model": "auto/none"}, ""),
        ({"model": "auto/"}, ""),
        ({"model": "b"}, "b"),
        ({"model": "autob"}, ""),
        ({"model": 1}, ""),
        ({"model": ["b"]}, ""),
    ],
)
def test_groups(members: dict[str, object], kept: str) -> None:
    assert names(ByGroup().keep(members, listed().candidates)) == kept


@pytest.mark.parametrize(
    ("by", "members", "kept"),
    [
        ("", {}, "abc"),
        ("", {"x": ""}, "abc"),
        ("", {"x": "b"}, "b"),
        ("", {"x": "d"}, ""),
        ("", {"x": 1}, ""),
        ("family", {"x": "qwen"}, "bc"),
        ("family", {"x": "b"}, ""),
        ("unknown", {"x": "qwen"}, ""),
    ],
)
def test_members_and_attributes(by: str, members: dict[str, object], kept: str) -> None:
    keeps = ByField(ByFieldParameters(field_name="x", by_field=by))
    assert names(keeps.keep(members, listed().candidates)) == kept


def with_inflight(*counts: int) -> list[Model]:
    models = [Model(f"m{at}") for at in range(len(counts))]
    for model, count in zip(models, counts, strict=True):
        model.inflight = count
    return models


@pytest.mark.parametrize(
    ("counts", "scores"), [((0, 5, 10), (1, 0.5, 0)), ((3, 3), (1, 1)), ((7,), (1,)), ((2, 0), (0, 1))]
)
def test_requests_in_flight(counts: tuple[int, ...], scores: tuple[float, ...]) -> None:
    assert tuple(Inflight().score(with_inflight(*counts))) == scores


def test_cost() -> None:
    models = listed().candidates
    assert list(Cost().score(models)) == pytest.approx([0.75, 0.25, 1.0])
    assert list(Cost().score(models[:1])) == [0.5]
    assert list(Cost().score(with_inflight(0, 0))) == [1.0, 1.0], "free"


class Seen(TtftWindow):
    """A window with given figures."""

    def __init__(self, now: Ttft) -> None:
        super().__init__(TtftParameters())
        self.now = now


def timed(inflight: int, **figures: float) -> Model:
    trusted = "p50" in figures
    model = Model("m", window=Seen(Ttft(trusted=trusted, **figures)) if figures else None)
    model.inflight = inflight
    return model


BUSY = {"floor": 0.1, "p25": 0.3, "p50": 0.5, "inflight_at_p25": 4.0, "inflight_at_p50": 8.0}
NEAR = {"floor": 0.1, "p25": 0.3, "p50": 0.5, "inflight_at_p25": 7.0, "inflight_at_p50": 8.0}
FAST = {"floor": 0.1, "p25": 0.1, "p50": 0.2, "inflight_at_p25": 1.0, "inflight_at_p50": 2.0}


def test_the_time_to_the_first_token_is_predicted_from_the_floor() -> None:
    """At 16 in flight 0.1 + 16 * 0.4 / 8 = 0.9 s, at 0 the floor of 0.1 s, at 4 of the fast one 0.3 s."""
    scorer = QueueTtft(QueueParameters(), rng=random.Random(1))
    models = [timed(16, **BUSY), timed(0, **BUSY), timed(4, **FAST), timed(0), timed(3, floor=0.5)]
    assert list(scorer.score(models)) == pytest.approx([0, 1, 0.75, 1, 0.5])
    assert list(scorer.score([timed(1), timed(2)])) == [1.0, 1.0], "nobody knows anything"


def test_the_lower_point_moves_into_what_was_seen() -> None:
    """With 4 between the points at 16: 0.3 + 12 * 0.2 / 4 = 0.9 s; with 1 between, half of each lower point:
    from (3.5, 0.2) 0.2 + 12.5 * 0.3 / 4.5 = 1.0333 s; and never below the floor.
    """
    scorer = TtftAware(AwareParameters(), rng=random.Random(1))
    spread, near, idle = timed(16, **BUSY), timed(16, **NEAR), timed(0, **BUSY)
    assert list(scorer.score([spread, near, idle])) == pytest.approx([(1.0333333 - 0.9) / (1.0333333 - 0.1), 0, 1])
    wide = TtftAware(AwareParameters(anchor_gap_scale=8.0), rng=random.Random(1))
    assert list(wide.score([spread, idle])) == [0, 1]


def test_a_model_that_is_not_known_well_is_tried_now_and_then() -> None:
    cold, warm, worst = timed(0), timed(8, **BUSY), timed(16, **BUSY)
    aware = TtftAware(AwareParameters(exploration_rate=0.25), rng=random.Random(1))
    scores = Counter(aware.score([cold, warm, worst])[0] for _ in range(1000))
    assert set(scores) == {0.0, 1.0} and 200 < scores[1.0] < 300
    assert all(aware.score([cold, timed(1)])[1] == 1.0 for _ in range(50)), "nobody is there to take over"
    queue = QueueTtft(QueueParameters(exploration_rate=0.25), rng=random.Random(1))
    scores = Counter(queue.score([cold, warm, worst])[0] for _ in range(1000))
    assert 200 < scores[1.0] < 300


def costing(*costs: float, times: int = 100) -> Model:
    model = Model("m", cost_window=CostWindow(CostParameters(flush_interval_duration=0.0)))
    assert model.cost_window is not None
    for _ in range(times):
        for cost in costs:
            model.cost_window.add(cost, at=0.0)
    return model


def test_the_cost_of_most_requests_and_of_the_dearest() -> None:
    """Of 100 each of 1, 2 and 3 the body up to 0.5 is (100 * 1 + 50 * 2) / 150, the tail (50 * 2 + 100 * 3) / 150."""
    costs = costing(1.0, 2.0, 3.0).costs
    assert costs.count == 300
    assert costs.trimmed_mean(0, 0.5) == pytest.approx(4 / 3, rel=0.01)
    assert costs.trimmed_mean(0.5, 1) == pytest.approx(8 / 3, rel=0.01)
    assert costs.trimmed_mean(0, 1) == pytest.approx(2.0)
    assert Costs().trimmed_mean(0, 1) == 0.0


def test_a_digest_stays_small_and_true_at_its_ends_and_an_epoch_begins_anew() -> None:
    window, rng = CostWindow(CostParameters()), random.Random(1)
    values = [rng.expovariate(1.0) for _ in range(50_000)]
    for at, value in enumerate(values):
        window.add(value, at=at / 1000)
    window.add(0.0, at=100.0)
    assert len(window.now.centroids) < 2000
    tail = sorted(values)[int(len(values) * 0.95) :]
    assert window.now.trimmed_mean(0.95, 1) == pytest.approx(sum(tail) / len(tail), rel=0.02)
    assert window.now.trimmed_mean(0, 1) == pytest.approx(sum(values) / len(values), rel=0.001)
    window.add(7.0, at=8000.0)
    assert (window.now.count, window.now.trimmed_mean(0, 1)) == (1, 7.0)


def test_costguard() -> None:
    assert CostGuardParameters().samples == 203
    exploit = CostGuard(CostGuardParameters(epsilon=0.0), rng=random.Random(1))
    cheap, dear, risky = costing(1.0, times=300), costing(3.0, times=300), costing(*[1.0] * 9, 21.0, times=30)
    assert list(exploit.score([cheap, dear])) == pytest.approx([0.7310586, 0.2689414]), "one deviation from the middle"
    first, second, third = exploit.score([cheap, dear, risky])
    assert first > second > third, "outliers count: 2 and 6, but 1.5 + 21 for the third"
    assert list(exploit.score([cheap, costing(1.0)])) == [0.5, 0.5], "too few of the other are known"
    assert list(exploit.score([cheap, costing(1.0, times=300)])) == [0.5, 0.5], "alike"
    explore = CostGuard(CostGuardParameters(epsilon=1.0), rng=random.Random(1))
    assert list(explore.score([cheap, costing(1.0), dear])) == [0.5, 1.0, 0.5], "the one that is not known"
    assert sorted(explore.score([cheap, dear])) == [0.5, 1.0]


def test_percentiles_lie_between_the_nearest() -> None:
    assert [percentile([1.0, 2.0, 4.0], part) for part in (0, 0.25, 0.5, 0.75, 1)] == [1, 1.5, 2, 3, 4]
    assert percentile([], 0.5) == 0


def test_what_a_window_says() -> None:
    window = TtftWindow(TtftParameters(interval_duration=0.0, min_requests=10))
    for at in range(9):
        window.add(0.1 * (at + 1), inflight=at, at=float(at))
    assert (window.now.floor, window.now.trusted) == (0.0, False), "too few to believe"
    for at in range(9, 11):
        window.add(0.1 * (at + 1), inflight=at, at=float(at))
    seen = window.now
    assert (seen.p25, seen.p50, seen.floor) == pytest.approx((0.35, 0.6, 0.2))
    assert (seen.inflight_at_p25, seen.inflight_at_p50) == (2.0, 5.0)
    assert seen.trusted
    for at in range(300, 303):
        window.add(5.0, inflight=9, at=float(at))
    assert window.now.p50 == 5.0
    assert window.now.floor == pytest.approx(0.2), "the floor does not rise with the load"
    assert not window.now.trusted, "too few of late"


def test_a_full_history_loses_its_ends() -> None:
    window = TtftWindow(TtftParameters(interval_duration=0.0, bucket_duration=1.0, bucket_history_size=4))
    for at, seconds in enumerate([0.01, 5.0, 9.0, 6.0, 5.5, 5.2]):
        window.add(seconds, inflight=1, at=float(at))
    assert window._lows == [5.0, 5.5, 6.0]


def test_pickers() -> None:
    a, b, c = with_inflight(0, 0, 0)
    rng = random.Random(1)
    best = Counter(MaxScore(rng=rng).pick([(a, 0.5), (b, 1.0), (c, 1.0)]) for _ in range(400))
    assert a not in best and 150 < best[b] < 250
    anyone = Counter(AnyOne(rng=rng).pick([(a, 0.0), (b, 1.0), (c, 0.5)]) for _ in range(900))
    assert all(240 < anyone[model] < 360 for model in (a, b, c))
    weighted = Counter(WeightedRandom(rng=rng).pick([(a, 3.0), (b, 1.0), (c, 0.0)]) for _ in range(2000))
    assert c not in weighted and 1400 < weighted[a] < 1600
    assert WeightedRandom(rng=rng).pick([(a, 1e-300), (b, 0.0)]) is a, "however small"
    zero = Counter(WeightedRandom(rng=rng).pick([(a, 0.0), (b, -1.0)]) for _ in range(400))
    assert 150 < zero[a] < 250


class Fixed:
    """Scores as given."""

    def __init__(self, *scores: float) -> None:
        self._scores = scores

    def score(self, models: Sequence[Model]) -> Sequence[float]:
        return self._scores[: len(models)]


@pytest.mark.parametrize(
    ("scorers", "filters", "expected"),
    [
        ([(Fixed(0.9, 0.3, 0.6), 1.0)], [], "a"),
        ([(Fixed(0.3, 0.8), 1.0)], [ByField(ByFieldParameters(field_name="x", by_field="family"))], "c"),
        ([(Fixed(1, 0, 0), 3.0), (Fixed(0, 1, 1), 1.0)], [], "a"),
        ([(Fixed(-100, 0.1, 0), 1.0), (Fixed(0, 0, 100), 1.0)], [], "c"),
    ],
)
def test_scores_add_up_by_weight_each_between_0_and_1(
    scorers: list[tuple[Fixed, float]], filters: list[Filter], expected: str
) -> None:
    picker = MaxScore(rng=random.Random(1))
    selector = ModelSelector(listed(), scorers=scorers, filters=filters, picker=picker)
    assert selector.choose(Draft({"x": "qwen"})).name == expected
    assert selector.reads == {"model"}.union(*(each.reads for each in filters))


def test_filters_that_leave_nobody_end_the_request() -> None:
    selector = ModelSelector(listed(), filters=[ByGroup()], picker=MaxScore(rng=random.Random(1)))
    with pytest.raises(ResourceExhausted):
        selector.choose(Draft({"model": "nobody"}))


def test_a_list_of_models_is_followed_and_a_model_that_stays_keeps_what_is_known() -> None:
    models = Models(counts=True)
    wrong = models.take(
        '{"models": [{"name": "a"}, {"name": ""}, {"name": "b", "pricing": {"outputPerMillion": -1}}],'
        ' "groups": [{"name": "g", "models": ["a", "z"]}], "later": 1}',
        name="f",
    )
    assert wrong == [
        "models[1]: it has no name",
        "models[2]: b: a price is below 0",
        "groups: 'z' is no model of the list",
    ]
    (a,) = models.candidates
    a.inflight = 3
    for bad in ("{", "[]", '{"models": 1}'):
        with pytest.raises(UserError):
            models.take(bad, name="f")
    assert models.candidates == [a], "the last good one stays"
    models.take('{"models": [{"name": "b"}, {"name": "a"}]}', name="f")
    assert [(model.name, model.inflight) for model in models.candidates] == [("b", 0), ("a", 3)]
    assert models.counted("a") is a and models.counted("z") is None and models.counted(1) is None
    models.take("", name="f")
    assert models.candidates == []
    assert listed().counted("a") is None, "nobody asked to count"
