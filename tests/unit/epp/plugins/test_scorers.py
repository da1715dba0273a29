"""Load scorers against llm-d's own expected values."""

from typing import Any

import pytest
from tests.unit.epp.plugins.making import INFLIGHT, costing, endpoint, make, request, several

from pointsman.epp.plugins.api import INFLIGHT_LOAD, Key, PrefixMatches, RequestCost


@pytest.mark.parametrize(
    ("type_name", "field", "values", "expected"),
    [
        pytest.param("queue-scorer", "waiting", [10, 5, 0], [0, 0.5, 1], id="queue"),
        pytest.param("queue-scorer", "waiting", [4, 4, 4], [1, 1, 1], id="queue, all equal"),
        pytest.param("queue-scorer", "waiting", [3], [1], id="queue, one endpoint"),
        pytest.param("running-requests-size-scorer", "running", [10, 5, 0], [0, 0.5, 1], id="running"),
        pytest.param("running-requests-size-scorer", "running", [2, 2], [1, 1], id="running, all equal"),
        pytest.param("kv-cache-utilization-scorer", "kv_usage", [0.8, 0.5, 0.0], [0.2, 0.5, 1], id="kv"),
        pytest.param("active-request-scorer", "inflight_requests", [1, 0, 2], [0.5, 1, 0], id="active, 1 0 2"),
        pytest.param("active-request-scorer", "inflight_requests", [4, 0, 1], [0, 1, 0.75], id="active, 4 0 1"),
        pytest.param("active-request-scorer", "inflight_requests", [0, 0], [1, 1], id="active, none"),
    ],
)
def test_scores(type_name: str, field: str, values: list[Any], expected: list[float]) -> None:
    assert make(type_name).score(request(), several(field, values)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("waiting", "expected"), [pytest.param(2, 0.4, id="2"), pytest.param(0, 0.5, id="0"), pytest.param(15, 0, id="15")]
)
def test_load_aware_scores_half_and_less_with_a_queue(waiting: int, expected: float) -> None:
    scorer = make("load-aware-scorer", threshold=10)
    assert scorer.score(request(), [endpoint(waiting=waiting)]) == pytest.approx([expected])


def test_active_request_treats_the_idle_as_equal_and_caps_the_busy() -> None:
    scorer = make("active-request-scorer", idleThreshold=2, maxBusyScore=0.5)
    endpoints = several("inflight_requests", [0, 2, 3, 6])
    assert scorer.score(request(), endpoints) == pytest.approx([1, 1, 0.25, 0])


@pytest.mark.parametrize(
    ("inflight", "cost", "expected"),
    [
        pytest.param([0, 500, 1000], 0, [1, 0.5, 0], id="in flight only"),
        pytest.param([0, 250, 750], 250, [0.75, 0.5, 0], id="with this request"),
        pytest.param([5000], 0, [0], id="beyond the threshold"),
    ],
)
def test_token_load(inflight: list[int], cost: int, expected: list[float]) -> None:
    scorer = make("token-load-scorer", queueThresholdTokens=1000)
    assert scorer.score(costing(cost), several("inflight_tokens", inflight)) == pytest.approx(expected)


def test_token_load_is_full_marks_where_nothing_is_known() -> None:
    assert make("token-load-scorer").score(request(), [endpoint()]) == [1.0]


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        pytest.param(
            {"type": "linear_lower_is_better", "normalization": {"fixedRange": {"min": 0, "max": 100}}},
            [0.9, 0.5, 0.0, 0.0],
            id="lower, fixed",
        ),
        pytest.param(
            {"type": "linear_higher_is_better", "normalization": {"fixedRange": {"min": 0, "max": 100}}},
            [0.1, 0.5, 1.0, 0.0],
            id="higher, fixed, clamped",
        ),
        pytest.param(
            {"type": "linear_higher_is_better", "normalization": {"adaptiveRange": {}}},
            [0.0, 40 / 190, 1.0, 0.0],
            id="higher, adaptive",
        ),
        pytest.param({"type": "linear_higher_is_better"}, [0.0, 40 / 190, 1.0, 0.0], id="adaptive unless it says so"),
    ],
)
def test_endpoint_attribute(algorithm: dict[str, Any], expected: list[float]) -> None:
    scorer = make("endpoint-attribute-scorer", attributeKey="temp", algorithm=algorithm)
    endpoints = several("attributes", [{"temp": 10.0}, {"temp": 50.0}, {"temp": 200.0}, {}])
    assert scorer.score(request(), endpoints) == pytest.approx(expected)


def test_endpoint_attribute_when_all_are_equal_or_none_is_there() -> None:
    algorithm = {"type": "linear_lower_is_better", "normalization": {"adaptiveRange": {}}}
    scorer = make("endpoint-attribute-scorer", attributeKey="temp", algorithm=algorithm)
    assert scorer.score(request(), several("attributes", [{"temp": 5.0}, {"temp": 5.0}, {}])) == [1.0, 1.0, 0.0]
    assert scorer.score(request(), several("attributes", [{}, {}])) == [0.0, 0.0]


def test_tokens_of_images_may_weigh_more() -> None:
    cost = RequestCost(prompt=300, media=100)
    asked = request(attributes={Key[RequestCost](INFLIGHT_LOAD, producer=INFLIGHT).name: cost})
    assert make("token-load-scorer", queueThresholdTokens=1000).score(asked, [endpoint("a")]) == [0.7]
    heavy = make("token-load-scorer", queueThresholdTokens=1000, nonTextTokenWeight=2)
    assert heavy.score(asked, [endpoint("a")]) == [0.6]


def test_tokens_of_images_that_are_in_flight_weigh_as_much() -> None:
    views = [endpoint("a", inflight_tokens=200, inflight_media=200), endpoint("b", inflight_tokens=300)]
    plain = make("token-load-scorer", queueThresholdTokens=1000)
    assert plain.score(request(), views) == pytest.approx([0.8, 0.7])
    heavy = make("token-load-scorer", queueThresholdTokens=1000, nonTextTokenWeight=2)
    assert heavy.score(request(), views) == pytest.approx([0.6, 0.7])
    light = make("token-load-scorer", queueThresholdTokens=1000, nonTextTokenWeight=0.5)
    assert light.score(request(), views) == pytest.approx([0.9, 0.7])


def test_what_is_cached_of_a_prompt_weighs_nothing() -> None:
    matches = PrefixMatches(total=10, block_tokens=30, blocks={"a:8000": 10}, cached={"a:8000": 10})
    cost = RequestCost(prompt=300, media=100, matches=matches)
    asked = request(attributes={Key[RequestCost](INFLIGHT_LOAD, producer=INFLIGHT).name: cost})
    heavy = make("token-load-scorer", queueThresholdTokens=1000, nonTextTokenWeight=2)
    assert heavy.score(asked, [endpoint("a"), endpoint("b")]) == pytest.approx([1.0, 0.6])
