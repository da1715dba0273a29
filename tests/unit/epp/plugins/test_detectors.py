"""Saturation against llm-d's own expected values."""

from typing import Any

import pytest
from tests.unit.epp.plugins.making import endpoint, make, names, request, several

from pointsman.core.values import check
from pointsman.epp.plugins.detectors import UtilizationParameters
from pointsman.epp.pool.view import NEVER_SCRAPED, EndpointView

STALE = "stale"


def seen(*rows: Any) -> list[EndpointView]:
    """Endpoints by (queue, kv), or stale ones."""
    fresh = (endpoint(f"e{at}", waiting=row[0], kv_usage=row[1]) for at, row in enumerate(rows) if row is not STALE)
    return [*fresh, *(endpoint("old", updated_at=-10.0) for row in rows if row is STALE)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([], 1.0, id="nobody"),
        pytest.param([(2, 0.5)], 0.5556, id="one, well below"),
        pytest.param([STALE], 1.0, id="stale"),
        pytest.param([(10, 0.1)], 2.0, id="queue"),
        pytest.param([(1, 0.95)], 1.0556, id="kv"),
        pytest.param([(1, 0.1), (0, 0.2)], 0.2111, id="two"),
        pytest.param([(1, 0.1), STALE], 0.6, id="one stale"),
        pytest.param([(1, 0.1), (15, 0.2)], 1.6, id="one far beyond"),
        pytest.param([STALE, (20, 0.2), (1, 0.99)], 2.0333, id="all of it"),
        pytest.param([(5, 0.1)], 1.0, id="exactly"),
    ],
)
def test_utilization(rows: list[Any], expected: float) -> None:
    detector = make(
        "utilization-detector", queueDepthThreshold=5, kvCacheUtilThreshold=0.9, metricsStalenessThreshold="100ms"
    )
    assert detector.saturation(seen(*rows)) == pytest.approx(expected, abs=1e-4)


def test_an_endpoint_that_was_never_scraped_is_full() -> None:
    never = EndpointView(name="a", target="a:1", address="a", port=1, metrics=NEVER_SCRAPED)
    assert make("utilization-detector").saturation([never]) == 1.0


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        pytest.param([(5, 0.5), (6, 0.5)], ["e0"], id="queue limit 6"),
        pytest.param([(0, 0.95), (0, 0.96)], ["e0"], id="kv limit .96"),
        pytest.param([(0, 0.1), STALE], ["e0"], id="stale"),
        pytest.param([STALE, STALE], ["old", "old"], id="all stale: all stay"),
        pytest.param([(9, 0.1), (0, 0.99)], ["e0", "e1"], id="all full: all stay"),
    ],
)
def test_utilization_as_a_filter(rows: list[Any], kept: list[str]) -> None:
    detector = make("utilization-detector", headroom=0.2)
    assert names(detector.filter(request(), seen(*rows))) == kept


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"queueDepthThreshold": 0}, id="queue"),
        pytest.param({"kvCacheUtilThreshold": 0}, id="kv 0"),
        pytest.param({"kvCacheUtilThreshold": 1.5}, id="kv above 1"),
        pytest.param({"metricsStalenessThreshold": "0s"}, id="staleness"),
        pytest.param({"metricsStalenessThreshold": "soon"}, id="not a duration"),
        pytest.param({"headroom": -0.1}, id="headroom"),
    ],
)
def test_utilization_refuses_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    (problem,) = check(UtilizationParameters, wrong, path="p").problems
    assert problem.path == f"p.{next(iter(wrong))}"


@pytest.mark.parametrize(
    ("inflight", "expected"),
    [
        pytest.param([], 1.0, id="nobody"),
        pytest.param([5], 0.5, id="half"),
        pytest.param([10, 0], 0.5, id="one full"),
        pytest.param([15, 5], 1.0, id="uneven"),
        pytest.param([15, 15], 1.5, id="beyond"),
        pytest.param([0], 0.0, id="unknown"),
    ],
)
def test_concurrency(inflight: list[int], expected: float) -> None:
    detector = make("concurrency-detector", maxConcurrency=10)
    assert detector.saturation(several("inflight_requests", inflight)) == pytest.approx(expected)


def test_concurrency_by_tokens_and_by_the_worse_of_both() -> None:
    view = endpoint(inflight_requests=5, inflight_tokens=900)
    tokens = make("concurrency-detector", concurrencyMode="tokens", maxTokenConcurrency=1000)
    both = make("concurrency-detector", concurrencyMode="hybrid", maxConcurrency=5, maxTokenConcurrency=1000)
    assert tokens.saturation([view]) == pytest.approx(0.9)
    assert both.saturation([view]) == pytest.approx(1.0)


def test_concurrency_as_a_filter_drops_at_the_limit_even_everyone() -> None:
    detector = make("concurrency-detector", maxConcurrency=50, headroom=0.2)
    assert names(detector.filter(request(), several("inflight_requests", [59, 60, 61]))) == ["e0"]
    assert detector.filter(request(), several("inflight_requests", [60])) == []


@pytest.mark.parametrize(
    ("priority", "waiting", "chance"),
    [
        pytest.param(0, 50, 0.0, id="not sheddable"),
        pytest.param(-1, 0, 0.0, id="idle"),
        pytest.param(-1, 50, 1.0, id="far beyond"),
    ],
)
def test_probabilistic_admitter(priority: int, waiting: int, chance: float) -> None:
    admitter = make("probabilistic-admitter")
    views = [endpoint(waiting=waiting)]
    turned_away = sum(bool(admitter.admit(request(priority=priority), views)) for _ in range(100))
    assert turned_away == 100 * chance


def test_probabilistic_admitter_grows_with_the_fifth_power() -> None:
    admitter = make("probabilistic-admitter")
    assert admitter.chance([endpoint(waiting=1)]) == pytest.approx(0.2**5 * 300)
    assert admitter.chance([endpoint(kv_usage=0.2), endpoint()]) == pytest.approx((0.125**5) * 300)


def test_stale_metrics_may_be_left_out() -> None:
    fresh, stale = endpoint("a", waiting=2, updated_at=10.0), endpoint("b", waiting=9, updated_at=0.0)
    assert make("utilization-detector", now=10.0).saturation([fresh, stale]) == pytest.approx((0.4 + 1.0) / 2)
    assert make("utilization-detector", now=10.0, stalenessPolicy="ignore").saturation([fresh, stale]) == 0.4
    assert make("utilization-detector", now=10.0, stalenessPolicy="ignore").saturation([stale]) == 1.0
