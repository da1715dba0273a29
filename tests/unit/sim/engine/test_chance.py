"""Draws: the same for the same key, spread as they should be."""

from collections import Counter

import pytest

from pointsman.sim.engine.chance import Chance


def test_the_same_key_draws_the_same_and_another_does_not() -> None:
    first, again, other = Chance(1, "r", "x"), Chance(1, "r", "x"), Chance(1, "r", "y")
    drawn = [first.bits() for _ in range(5)]
    assert drawn == [again.bits() for _ in range(5)]
    assert drawn != [other.bits() for _ in range(5)]


def test_numbers_are_spread_evenly() -> None:
    chance = Chance("spread")
    counts = Counter(chance.between(1, 6) for _ in range(6000))
    assert set(counts) == {1, 2, 3, 4, 5, 6} and min(counts.values()) > 850
    assert sum(chance.happens(30) for _ in range(5000)) / 5000 == pytest.approx(0.3, abs=0.03)
    assert not any(chance.happens(0) for _ in range(100)) and all(chance.happens(100) for _ in range(100))


def test_normal_draws_have_the_mean_and_the_deviation() -> None:
    chance = Chance("normal")
    drawn = [chance.gauss(10, 2) for _ in range(5000)]
    mean = sum(drawn) / len(drawn)
    assert mean == pytest.approx(10, abs=0.15)
    assert (sum((x - mean) ** 2 for x in drawn) / len(drawn)) ** 0.5 == pytest.approx(2, abs=0.1)
