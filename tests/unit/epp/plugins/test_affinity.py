"""Affinity plugins against llm-d's own expected values."""

import pytest
from tests.unit.epp.plugins.making import endpoint, make, matched, names, request

from pointsman.core.values import check
from pointsman.epp.plugins.affinity import PrefixCacheParameters
from pointsman.epp.plugins.api import LATENCY_PREDICTIONS, Key, Latency, LatencyPredictions, Picked
from pointsman.epp.pool.view import Lora


def lora(*running: str, waiting: tuple[str, ...] = (), most: int) -> Lora:
    return Lora(running=frozenset(running), waiting=frozenset(waiting), max_active=most)


@pytest.mark.parametrize(
    ("adapters", "expected"),
    [
        pytest.param(lora("a1", "a2", most=5), 1.0, id="active"),
        pytest.param(lora("a1", "a2", most=2), 1.0, id="active and full"),
        pytest.param(lora("a2", waiting=("a1",), most=5), 0.8, id="room, though it waits"),
        pytest.param(lora("a2", most=2), 0.8, id="room"),
        pytest.param(lora("a3", waiting=("a1",), most=2), 0.6, id="full, but it waits"),
        pytest.param(lora("a4", "a5", most=2), 0.0, id="full"),
        pytest.param(lora(most=0), 0.0, id="no adapters at all"),
    ],
)
def test_lora(adapters: Lora, expected: float) -> None:
    scorer = make("lora-affinity-scorer")
    assert scorer.score(request(target_model="a1"), [endpoint(lora=adapters)]) == [expected]


@pytest.mark.parametrize(
    ("weight", "scale", "match", "total", "block", "expected"),
    [
        pytest.param(0, 8192, 5, 10, 16, 0.5, id="half"),
        pytest.param(0, 8192, 2, 10, 16, 0.2, id="a fifth"),
        pytest.param(0.5, 100, 5, 10, 1, 0.25125, id="weighted, short"),
        pytest.param(0.5, 100, 50, 100, 1, 0.375, id="weighted, long"),
        pytest.param(1, 100, 10, 10, 64, 1.0, id="length alone, capped"),
    ],
)
def test_prefix(weight: float, scale: int, match: int, total: int, block: int, expected: float) -> None:
    scorer = make("prefix-cache-scorer", matchLengthWeight=weight, matchLengthScaleTokens=scale)
    seen = matched({"a:8000": match}, total=total, block_tokens=block)
    assert scorer.score(seen, [endpoint("a"), endpoint("b")]) == pytest.approx([expected, 0])


def test_prefix_without_any_match_information_is_zero() -> None:
    assert make("prefix-cache-scorer").score(request(), [endpoint("a"), endpoint("b")]) == [0, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"matchLengthWeight": 1.1}, id="weight above 1"),
        pytest.param({"matchLengthWeight": -0.1}, id="weight below 0"),
        pytest.param({"matchLengthScaleTokens": 0}, id="scale 0"),
    ],
)
def test_prefix_refuses_parameters_out_of_range(wrong: dict[str, float]) -> None:
    (problem,) = check(PrefixCacheParameters, wrong, path="parameters").problems
    assert problem.path == f"parameters.{next(iter(wrong))}"


def picked(*endpoints: str) -> Picked:
    views = [endpoint(name) for name in endpoints]
    return Picked(endpoints=views, candidates=views, scores=[1.0] * len(views))


def test_no_hit_lru_ranks_the_never_used_first_and_then_by_age() -> None:
    scorer = make("no-hit-lru-scorer")
    views = [endpoint(name) for name in "abc"]
    assert scorer.score(request(), views) == pytest.approx([1, 0.5, 0])
    scorer.before_send(request(), {"default": picked("a")}, "default")
    scorer.before_send(request(), {"default": picked("b")}, "default")
    assert scorer.score(request(), views) == pytest.approx([0.5, 0, 1]), "c was never used, a longer ago than b"
    scorer.before_send(request(), {"default": picked("a")}, "default")
    assert scorer.score(request(), views) == pytest.approx([0, 0.5, 1])


def test_no_hit_lru_stays_out_of_it_when_someone_has_a_hit() -> None:
    scorer = make("no-hit-lru-scorer")
    warm = matched({"a:8000": 1}, total=4)
    assert scorer.score(warm, [endpoint("a"), endpoint("b")]) == [0.5, 0.5]
    scorer.before_send(warm, {"default": picked("a")}, "default")
    assert scorer.score(request(), [endpoint("a"), endpoint("b")]) == [1, 0], "a warm request is not noted"


def test_no_hit_lru_notes_the_prefill_endpoint_and_forgets_who_is_gone() -> None:
    scorer = make("no-hit-lru-scorer")
    scorer.before_send(request(), {"decode": picked("a"), "prefill": picked("b")}, "decode")
    views = [endpoint(name) for name in "abc"]
    assert scorer.score(request(), views) == pytest.approx([0.5, 0, 1])
    scorer.on_endpoints(frozenset({"b:8000", "c:8000"}))
    assert scorer.score(request(), views) == pytest.approx([1, 0, 0.5])
    assert scorer.score(request(), views[:1]) == [1.0]


def test_no_hit_lru_is_bounded() -> None:
    scorer = make("no-hit-lru-scorer", lruSize=1)
    for name in "ab":
        scorer.before_send(request(), {"default": picked(name)}, "default")
    assert scorer.score(request(), [endpoint("b"), endpoint("a")]) == [0, 1]


def test_header_label_affinity() -> None:
    scorer = make("header-label-affinity-scorer", headerName="X-Zone", labelKey="zone")
    views = [endpoint("a", labels={"zone": "z1"}), endpoint("b", labels={"zone": "z2"}), endpoint("c")]
    assert scorer.score(request(headers={"x-zone": "z2"}), views) == [0, 1, 0]
    assert scorer.score(request(), views) == [0, 0, 0]


@pytest.mark.parametrize(
    ("blocks", "tokens", "kept"),
    [
        pytest.param({"a:8000": 9}, (0, 0), ["a"], id="sticky"),
        pytest.param({"a:8000": 7}, (0, 0), ["a", "b"], id="below the threshold"),
        pytest.param({"a:8000": 9}, (15_928 * 20, 0), ["a", "b"], id="20 s of queue cost more than 18 s"),
        pytest.param({"a:8000": 9}, (15_928 * 10, 0), ["a"], id="10 s of queue cost less"),
        pytest.param({}, (0, 0), ["a", "b"], id="nobody"),
    ],
)
def test_prefix_affinity_filter(blocks: dict[str, int], tokens: tuple[int, int], kept: list[str]) -> None:
    views = [endpoint(name, inflight_tokens=count) for name, count in zip("ab", tokens, strict=True)]
    assert names(make("prefix-cache-affinity-filter").filter(matched(blocks, total=10), views)) == kept


def test_prefix_affinity_filter_says_why() -> None:
    filtering = make("prefix-cache-affinity-filter", explorationProbability=0.0)
    busy, idle = endpoint("a", inflight_tokens=15_928 * 20), endpoint("b")
    sticky = matched({"a:8000": 9}, total=10)
    filtering.filter(sticky, [busy, idle])
    filtering.filter(sticky, [endpoint("a"), idle])
    filtering.filter(sticky, [idle, endpoint("c")])
    filtering.filter(request(), [busy, idle])
    filtering.filter(sticky, [busy])
    assert filtering.affinity_outcomes == {"load_override": 1, "sticky": 1, "no_match": 2, "not_applicable": 1}
    exploring = make("prefix-cache-affinity-filter", explorationProbability=1.0)
    assert exploring.filter(sticky, [busy, idle]) == [busy, idle]
    assert exploring.affinity_outcomes == {"exploration": 1}


def test_prefix_affinity_filter_compares_shares_as_they_are() -> None:
    views = [endpoint("a"), endpoint("b")]
    filtering = make("prefix-cache-affinity-filter", affinityThreshold=0.55)
    assert names(filtering.filter(matched({"a:8000": 55}, total=100), views)) == ["a"], "55 of 100 are .55"


def test_prefix_affinity_filter_without_a_penalty_waits_as_long_as_it_takes() -> None:
    views = [endpoint("a", inflight_tokens=10**9), endpoint("b")]
    sticky = make("prefix-cache-affinity-filter", maxTTFTPenaltyMs=0)
    assert names(sticky.filter(matched({"a:8000": 9}, total=10), views)) == ["a"]


@pytest.mark.parametrize(
    ("ttft", "kept"),
    [
        pytest.param({"a": 500, "b": 50}, ["a", "b"], id="costs too much more"),
        pytest.param({"a": 150, "b": 50}, ["a"], id="costs no more than allowed"),
        pytest.param({"a": 150}, ["a"], id="only the sticky one is known"),
        pytest.param({"b": 50}, ["a", "b"], id="only the other one is known"),
        pytest.param({}, ["a"], id="nothing is predicted for them"),
        pytest.param(None, ["a"], id="nothing is predicted"),
    ],
)
def test_prefix_affinity_filter_by_predicted_ttft(ttft: dict[str, float] | None, kept: list[str]) -> None:
    by_prediction = make(
        "prefix-cache-affinity-filter",
        ttftSource="latencyPredictor",
        maxTTFTPenaltyMs=100,
        latencyPredictionInfoProducerName="mine",
    )
    seen = matched({"a:8000": 9}, total=10)
    if ttft is not None:
        predictions = LatencyPredictions(latencies={f"{name}:8000": Latency(ttft_ms=ms) for name, ms in ttft.items()})
        key = Key[LatencyPredictions](LATENCY_PREDICTIONS, producer="mine")
        seen = request(attributes={**seen.attributes, key.name: predictions})
    views = [endpoint("a", inflight_tokens=10**9), endpoint("b")]
    assert names(by_prediction.filter(seen, views)) == kept


def test_prefix_affinity_filter_explores_sometimes() -> None:
    explorer = make("prefix-cache-affinity-filter", explorationProbability=1.0)
    views = [endpoint("a"), endpoint("b")]
    assert explorer.filter(matched({"a:8000": 9}, total=10), views) is views


def test_a_hit_of_an_endpoint_that_is_no_candidate_is_none() -> None:
    scorer = make("no-hit-lru-scorer")
    cold = matched({"gone:8000": 3}, total=4)
    endpoints = [endpoint("a"), endpoint("b")]
    assert sorted(scorer.score(cold, endpoints)) == [0.0, 1.0], "ranked, because none of these has it"
    assert scorer.score(matched({"a:8000": 3}, total=4), endpoints) == [0.5, 0.5]
