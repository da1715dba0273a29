"""Pickers: order, length, and chances."""

from collections import Counter

import pytest
from tests.unit.epp.plugins.making import endpoint, make, names, request

VIEWS = [endpoint(name) for name in "abc"]


def draws(picker: object, scores: list[float], *, times: int = 3000) -> Counter[str]:
    return Counter(picker.pick(request(), VIEWS, scores)[0].name for _ in range(times))  # type: ignore[attr-defined] # a plugin by its methods


def test_max_score_takes_the_best_in_order() -> None:
    scores = [0.2, 0.9, 0.5]
    assert names(make("max-score-picker").pick(request(), VIEWS, scores)) == ["b"]
    assert names(make("max-score-picker", maxNumOfEndpoints=2).pick(request(), VIEWS, scores)) == ["b", "c"]
    assert names(make("max-score-picker", maxNumOfEndpoints=9).pick(request(), VIEWS, scores)) == ["b", "c", "a"]


@pytest.mark.parametrize("count", [1, 2])
def test_max_score_breaks_ties_evenly(count: int) -> None:
    seen = draws(make("max-score-picker", maxNumOfEndpoints=count), [1.0, 0.5, 1.0])
    assert set(seen) == {"a", "c"}
    assert 1300 < seen["a"] < 1700


def test_random_gives_everyone_the_same_chance() -> None:
    seen = draws(make("random-picker"), [1.0, 0.0, 0.0])
    assert all(800 < seen[name] < 1200 for name in "abc")


def test_weighted_random_follows_the_scores() -> None:
    seen = draws(make("weighted-random-picker"), [3.0, 1.0, 0.0], times=4000)
    assert 2800 < seen["a"] < 3200
    assert seen["c"] == 0


def test_weighted_random_without_scores_is_random() -> None:
    seen = draws(make("weighted-random-picker"), [0.0, 0.0, 0.0])
    assert all(800 < seen[name] < 1200 for name in "abc")
