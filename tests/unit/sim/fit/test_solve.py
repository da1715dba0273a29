"""Least squares that stay above zero, and how sure they are."""

import random
from math import inf

import pytest

from pointsman.sim.fit.solve import solve


def test_known_coefficients_are_found_with_their_uncertainty() -> None:
    rng = random.Random(1)
    rows = [(1.0, rng.uniform(0, 5000), rng.uniform(0, 1e6)) for _ in range(400)]
    values = [0.005 + 2e-5 * a + 3e-8 * b + rng.gauss(0, 1e-3) for _, a, b in rows]
    found = solve(rows, values)
    for value, error, true in zip(found.values, found.errors, (0.005, 2e-5, 3e-8), strict=True):
        assert abs(value - true) < 4 * error and error < 0.2 * true


def test_what_the_rows_never_vary_has_no_certainty() -> None:
    found = solve([(1.0, 0.0), (1.0, 0.0), (1.0, 0.0)], [2.0, 2.0, 2.0])
    assert found.values == pytest.approx([2.0, 0.0]) and found.errors[1] == inf


def test_no_coefficient_is_negative() -> None:
    rows = [(1.0, float(x)) for x in range(10)]
    assert min(solve(rows, [10.0 - x for x in range(10)]).values) >= 0
