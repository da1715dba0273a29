import math

import pytest

from pointsman.epp.pool.freshness import blend, trust


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        pytest.param(0.0, 1.0, id="new"),
        pytest.param(0.2, 1.0, id="still fresh"),
        pytest.param(1.1, 0.5, id="half way"),
        pytest.param(2.0, 0.0, id="at the threshold"),
        pytest.param(math.inf, 0.0, id="never scraped"),
    ],
)
def test_trust_falls_in_a_straight_line(age: float, expected: float) -> None:
    assert trust(age, threshold=2.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("scraped", "since", "own", "trusted", "expected"),
    [
        pytest.param(7, 0, 3, 1.0, 7, id="fresh and nothing since: exactly the scrape"),
        pytest.param(7, 2, 3, 1.0, 9, id="picks since the scrape count"),
        pytest.param(1, -4, 0, 1.0, 0, id="ends since the scrape never go below zero"),
        pytest.param(7, 2, 3, 0.0, 3, id="stale: our own count"),
        pytest.param(8, 0, 4, 0.5, 6, id="in between"),
    ],
)
def test_load_to_rank_by(scraped: float, since: int, own: int, trusted: float, expected: float) -> None:
    assert blend(scraped, since=since, own=own, trust=trusted) == expected
