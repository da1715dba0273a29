"""Plugins that go by predicted latencies: llm-d's formulas, with predictions and without."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.epp.plugins.making import endpoint, make, matched, names, request

from pointsman.core.values import ConfigError, check
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.plugins.affinity import PREDICTOR
from pointsman.epp.plugins.api import LATENCY_PREDICTIONS, Endpoints, Key, Latency, LatencyPredictions, Slo
from pointsman.epp.plugins.latency import HeadroomTierParameters, LatencyScorerParameters
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Request

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
KEY = Key[LatencyPredictions](LATENCY_PREDICTIONS, producer=PREDICTOR)
SLO = {"x-llm-d-slo-ttft-ms": "1000", "x-llm-d-slo-tpot-ms": "100"}
Room = tuple[float, float] | None


def predicted(rooms: Mapping[str, Room], *, headers: Mapping[str, str] = SLO, **values: Any) -> Request:
    """A request of which each endpoint's headroom against SLO is known."""
    latencies = {f"{name}:8000": Latency(ttft_ms=1000 - r[0], tpot_ms=100 - r[1]) for name, r in rooms.items() if r}
    predictions = LatencyPredictions(latencies=latencies)
    return request(headers=headers, attributes={KEY.name: predictions}, **values)


def busy(rooms: Mapping[str, Room], *, idle: str = "") -> list[EndpointView]:
    return [endpoint(name, inflight_requests=int(name != idle), kv_usage=0.5) for name in rooms]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({}, (0, 0), id="none"),
        pytest.param(SLO, (1000, 100), id="both"),
        pytest.param({"x-slo-ttft-ms": "5", "x-slo-tpot-ms": "2.5"}, (5, 2.5), id="by their old names"),
        pytest.param({"x-slo-ttft-ms": "5", "x-llm-d-slo-ttft-ms": "7"}, (7, 0), id="the new name wins"),
        pytest.param({"x-slo-ttft-ms": "soon", "x-slo-tpot-ms": "-1"}, (0, 0), id="no latencies"),
        pytest.param({"x-slo-ttft-ms": "nan", "x-slo-tpot-ms": "inf"}, (0, 0), id="no numbers to compare with"),
    ],
)
def test_objectives_in_headers(headers: Mapping[str, str], expected: tuple[float, float]) -> None:
    found = Slo.of(request(headers=headers))
    assert (found.ttft_ms, found.tpot_ms) == expected


@pytest.mark.parametrize(
    ("latency", "buffer", "expected"),
    [
        pytest.param(Latency(ttft_ms=400, tpot_ms=30), 1.0, (600, 70), id="what is left"),
        pytest.param(Latency(ttft_ms=1400, tpot_ms=130), 1.0, (-400, -30), id="missed"),
        pytest.param(Latency(ttft_ms=400, tpot_ms=30), 0.5, (600, 20), id="of the TPOT objective times the buffer"),
        pytest.param(Latency(ttft_ms=400), 1.0, (600, 0), id="no TPOT to miss"),
    ],
)
def test_headroom(latency: Latency, buffer: float, expected: tuple[float, float]) -> None:
    predictions = LatencyPredictions(latencies={"a:8000": latency}, slo_buffer=buffer)
    slo = Slo(ttft_ms=1000, tpot_ms=100)
    room = predictions.headroom("a:8000", slo=slo)
    assert room is not None
    assert (room.ttft, room.tpot) == expected
    assert predictions.headroom("b:8000", slo=slo) is None


@pytest.mark.parametrize(
    ("rooms", "explore", "kept"),
    [
        pytest.param({"a": (10, 5)}, 0.0, ["a"], id="one that meets"),
        pytest.param({"a": None, "b": None}, 0.0, ["a", "b"], id="no predictions"),
        pytest.param({"a": (100, 50), "b": (200, 80)}, 0.0, ["a", "b"], id="all meet"),
        pytest.param({"a": (100, 50), "b": (200, 80)}, 1.0, ["a", "b"], id="all meet, nothing to explore"),
        pytest.param({"a": (-100, -50), "b": (-200, -80)}, 0.0, ["a", "b"], id="all miss"),
        pytest.param({"a": (100, 50), "b": (200, 80), "c": (-100, -50)}, 0.0, ["a", "b"], id="those that meet"),
        pytest.param({"a": (100, 50), "b": (-1, 80), "c": (1, -50)}, 0.0, ["a"], id="both must be met"),
        pytest.param({"a": (0, 0), "b": (-1, 0)}, 0.0, ["a"], id="exactly met is met"),
        pytest.param({"a": (100, 50), "b": (-100, -50)}, 1.0, ["b"], id="exploring"),
        pytest.param({"a": (100, 50), "b": None}, 0.0, ["a"], id="unknown is not met"),
        pytest.param({"a": (100, 50), "b": None}, 1.0, ["b"], id="unknown is explored"),
    ],
)
def test_headroom_tiers(rooms: Mapping[str, Room], explore: float, kept: list[str]) -> None:
    tiers = make("slo-headroom-tier-filter", epsilonExploreNeg=explore)
    assert names(tiers.filter(predicted(rooms), busy(rooms))) == kept


def test_headroom_tiers_explore_as_often_as_they_are_told() -> None:
    tiers = make("slo-headroom-tier-filter", epsilonExploreNeg=0.25)
    rooms: dict[str, Room] = {"good": (1, 1), "bad": (-1, -1)}
    seen = [names(tiers.filter(predicted(rooms), busy(rooms)))[0] for _ in range(2000)]
    assert 0.2 < seen.count("bad") / len(seen) < 0.3


def test_headroom_tiers_without_objectives_keep_everyone() -> None:
    rooms: dict[str, Room] = {"a": (500, 50), "b": (-500, -50)}
    tiers = make("slo-headroom-tier-filter", epsilonExploreNeg=0)
    assert names(tiers.filter(predicted(rooms, headers={}), busy(rooms))) == ["a", "b"]


@pytest.mark.parametrize(
    ("rooms", "parameters", "expected"),
    [
        pytest.param({"a": (10, 10), "b": (110, 60)}, {}, [1.01, 0.01], id="least to spare is best"),
        pytest.param(
            {"a": (10, 10), "b": (110, 60)}, {"headroomSelectionStrategy": "most"}, [0.01, 1.01], id="most to spare"
        ),
        pytest.param({"a": (0, 0), "b": (25, 50), "c": (100, 100)}, {}, [1.01, 0.71, 0.01], id="0.8 TTFT, 0.2 TPOT"),
        pytest.param(
            {"a": (0, 0), "b": (25, 50), "c": (100, 100)},
            {"ttftWeight": 2, "tpotWeight": 2},
            [1.01, 0.63, 0.01],
            id="weights are shares",
        ),
        pytest.param(
            {"a": (0, 100), "b": (50, 0), "c": (100, 50)},
            {"ttftWeight": 0, "tpotWeight": 0},
            [1.01, 0.51, 0.01],
            id="no weights: TTFT",
        ),
        pytest.param({"a": (50, 10), "b": (50, 60)}, {}, [1.01, 0.01], id="equal TTFT has no say"),
        pytest.param({"a": (10, 50), "b": (60, 50)}, {"ttftWeight": 0}, [1.01, 0.01], id="equal TPOT has no say"),
        pytest.param({"a": (50, 50), "b": (50, 50)}, {}, [0.51, 0.51], id="all equal"),
        pytest.param({"a": (50, 50), "b": (-50, 50), "c": (50, -1)}, {}, [0.51, 0, 0], id="who misses gets nothing"),
        pytest.param({"a": (50, 50), "b": None}, {}, [0.01, 1.01], id="unknown is exactly on its objectives"),
        pytest.param({"a": (-10, -10), "b": (-110, -60)}, {}, [1.01, 0.01], id="both missed: by least"),
        pytest.param(
            {"a": (-10, -10), "b": (-110, -60)},
            {"headroomSelectionStrategy": "most"},
            [1.01, 0.01],
            id="missed by least even with most",
        ),
        pytest.param(
            {"a": (-1, -1), "b": (-5, 5), "c": (500, -90), "d": (500, -80)},
            {},
            [0, 0, 0.01, 1.01],
            id="only TPOT missed goes first",
        ),
        pytest.param({"a": (-1, -1), "b": (-5, 5), "c": (-9, 5)}, {}, [0, 1.01, 0.01], id="then only TTFT missed"),
    ],
)
def test_latency_scorer(rooms: Mapping[str, Room], parameters: dict[str, Any], expected: list[float]) -> None:
    scorer = make("latency-scorer", **parameters)
    assert scorer.score(predicted(rooms), busy(rooms)) == pytest.approx(expected)


def test_latency_scorer_prefers_the_idle_when_all_miss() -> None:
    rooms: dict[str, Room] = {"a": (-1, 5), "b": (-900, -90)}
    scorer = make("latency-scorer")
    assert scorer.score(predicted(rooms), busy(rooms, idle="b")) == pytest.approx([0, 0.51])
    assert scorer.score(predicted(rooms), busy(rooms)) == pytest.approx([0.51, 0])


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        pytest.param({}, [0.3, 0.92], id="equal weights"),
        pytest.param({"compositeQueueWeight": 0, "compositePrefixWeight": 0}, [0.4, 1.0], id="KV cache alone"),
        pytest.param({"compositeKVWeight": 0, "compositePrefixWeight": 0}, [0, 1.0], id="queue alone"),
        pytest.param({"compositeKVWeight": 0, "compositeQueueWeight": 0}, [0.5, 0.75], id="prefix alone"),
        pytest.param(
            {"compositeKVWeight": 0, "compositeQueueWeight": 0, "compositePrefixWeight": 0},
            [0.4, 1.0],
            id="no weights: KV cache",
        ),
    ],
)
def test_latency_scorer_without_predictions(parameters: dict[str, Any], expected: list[float]) -> None:
    scorer = make("latency-scorer", **parameters)
    seen = matched({"a:8000": 2, "b:8000": 3}, total=4)
    views = [endpoint("a", kv_usage=0.6, waiting=8), endpoint("b", kv_usage=0.0, waiting=0)]
    assert scorer.score(seen, views) == pytest.approx(expected)


def test_latency_scorer_without_anything_to_go_by() -> None:
    assert make("latency-scorer").score(request(), [endpoint("a"), endpoint("b")]) == pytest.approx([0.67, 0.67])


ONLY_TTFT = {"x-slo-ttft-ms": "1000"}


@pytest.mark.parametrize(
    ("priority", "rooms", "headers", "idle", "admitted"),
    [
        pytest.param(-1, {"a": (-1, -1)}, SLO, "", False, id="nobody can"),
        pytest.param(0, {"a": (-1, -1)}, SLO, "", True, id="not sheddable"),
        pytest.param(-1, {"a": (-1, -1), "b": (1, 1)}, SLO, "", True, id="one can"),
        pytest.param(-1, {"a": (-1, 1), "b": (1, -1)}, SLO, "", False, id="each misses one"),
        pytest.param(-1, {"a": (-1, -1), "b": (-1, -1)}, SLO, "b", True, id="one is idle"),
        pytest.param(-1, {"a": (-1, -1), "b": None}, SLO, "", False, id="unknown is no promise"),
        pytest.param(-1, {"a": None}, SLO, "", True, id="no predictions"),
        pytest.param(-1, {"a": (-1, -1)}, {}, "", True, id="no objectives"),
        pytest.param(-1, {"a": (1, -1)}, ONLY_TTFT, "", True, id="meets the one that there is"),
        pytest.param(-1, {"a": (-1, 1)}, ONLY_TTFT, "", False, id="misses the one that there is"),
    ],
)
def test_latency_admitter(
    priority: int, rooms: Mapping[str, Room], headers: Mapping[str, str], idle: str, admitted: bool
) -> None:
    reason = make("latency-slo-admitter").admit(
        predicted(rooms, headers=headers, priority=priority), busy(rooms, idle=idle)
    )
    assert reason == ("" if admitted else "no valid endpoint available to serve the request")


@pytest.mark.parametrize(("usage", "admitted"), [(0.019, True), (0.02, False)])
def test_latency_admitter_trusts_a_cold_endpoint(usage: float, admitted: bool) -> None:
    views = [endpoint("a", inflight_requests=1, kv_usage=usage)]
    assert (make("latency-slo-admitter").admit(predicted({"a": (-1, -1)}, priority=-1), views) == "") is admitted


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        pytest.param(HeadroomTierParameters, {"epsilonExploreNeg": 1.5}, id="more than always"),
        pytest.param(LatencyScorerParameters, {"headroomSelectionStrategy": "best"}, id="no strategy"),
        pytest.param(LatencyScorerParameters, {"compositeKVWeight": -1}, id="negative weight"),
    ],
)
def test_wrong_parameters(kind: type[Any], wrong: dict[str, Any]) -> None:
    assert check(kind, wrong, path="parameters").problems


class Oracle:
    """A user's own predictor, which knows what everyone else has to find out."""

    def __init__(self) -> None:
        self.key = Key[LatencyPredictions](LATENCY_PREDICTIONS, producer="oracle")
        self.produces = (self.key,)

    def produce(self, _request: Request, endpoints: Endpoints) -> Mapping[str, object]:
        latencies = {each.target: Latency(ttft_ms=each.port, tpot_ms=1) for each in endpoints}
        return {self.key.name: LatencyPredictions(latencies=latencies)}


CONFIG = """
plugins:
- {type: "tests.unit.epp.plugins.test_latency:Oracle", name: oracle}
- {type: slo-headroom-tier-filter, parameters: {epsilonExploreNeg: 0, latencyPredictionInfoProducerName: oracle}}
- {type: latency-scorer, parameters: {latencyPredictionInfoProducerName: oracle}}
- {type: latency-slo-admitter, parameters: {latencyPredictionInfoProducerName: oracle}}
"""


def builder() -> Builder:
    return Builder(clock=lambda: 0.0, rng=random.Random(7))


def test_a_predictor_of_the_users_own_decides() -> None:
    scheduler = builder().build(load(HEAD + CONFIG)).scheduler
    views = [endpoint("a", port=900), endpoint("b", port=990), endpoint("c", port=2000)]
    picked = scheduler.decide(request(headers=SLO), views).picked
    assert names(picked.candidates) == ["a", "b"]
    assert picked.first.name == "b"


def test_without_a_predictor_they_load_and_go_by_load() -> None:
    plugins = "plugins: [{type: slo-headroom-tier-filter}, {type: latency-scorer}, {type: latency-slo-admitter}]\n"
    scheduler = builder().build(load(HEAD + plugins)).scheduler
    picked = scheduler.decide(request(headers=SLO, priority=-1), [endpoint("a", waiting=4), endpoint("b")]).picked
    assert picked.first.name == "b"
    assert picked.scores == pytest.approx([0.33, 0.67])


def test_a_predictor_that_a_file_names_must_be_there() -> None:
    plugins = "plugins: [{type: latency-scorer, parameters: {latencyPredictionInfoProducerName: oracel}}]\n"
    with pytest.raises(ConfigError, match="needs LatencyPredictionInfo from 'oracel', which is no plugin"):
        builder().build(load(HEAD + plugins))


@pytest.mark.parametrize(
    "plugin",
    [
        "{type: prefix-cache-affinity-filter, parameters: {ttftSource: latencyPredictor}}",
        "{type: latency-scorer}",
        "{type: slo-headroom-tier-filter}",
        "{type: latency-slo-admitter}",
    ],
)
def test_a_predictor_is_added_where_latencies_are_to_be_predicted(plugin: str) -> None:
    assert "predicted-latency-producer" in builder().build(load(f"{HEAD}plugins: [{plugin}]\n")).made
