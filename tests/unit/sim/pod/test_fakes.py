"""Fake metrics: waves and what is refused."""

from typing import Any

import pytest

from pointsman.core.errors import UserError
from pointsman.sim.pod import fakes
from pointsman.sim.pod.metrics import Gauges


@pytest.mark.parametrize(
    ("wave", "values"),
    [
        pytest.param("oscillate:0:10:4s", [5, 10, 5, 0, 5], id="oscillate"),
        pytest.param("ramp:0:8:2s", [0, 4, 8, 8, 8], id="ramp"),
        pytest.param("rampreset:0:8:2s", [0, 4, 0, 4, 0], id="rampreset"),
        pytest.param("squarewave:1:9:2s", [1, 9, 1, 9, 1], id="squarewave"),
    ],
)
def test_waves_by_the_second(wave: str, values: list[float]) -> None:
    shown = fakes.parse({"running-requests": wave})
    assert [shown.gauges(seconds=t, since=0).running for t in range(5)] == pytest.approx(values)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        pytest.param([], "must be a mapping", id="no mapping"),
        pytest.param({"running-requests": -1}, "zero or more", id="negative"),
        pytest.param({"running-requests": "jump:0:1:1s"}, "func is one of", id="unknown wave"),
        pytest.param({"running-requests": "ramp:0:1:0s"}, "the rest positive", id="no period"),
        pytest.param({"ttft-buckets-values": 5}, "must be a list of counts", id="no list"),
        pytest.param({"ttft-buckets-values": [1.5]}, "write a whole number", id="no count"),
        pytest.param({"prefix-cache-hits": 5}, "go together", id="half"),
        pytest.param({"prefix-cache-hits": 5, "prefix-cache-queries": 4}, "no more hits", id="more hits"),
        pytest.param({"request-success-total": 5}, "must map reasons", id="no reasons"),
        pytest.param({"loras": [5]}, "must be a list of", id="no adapters"),
        pytest.param({"loras": [{"timestamp": "x"}]}, "write seconds", id="no time"),
    ],
)
def test_bad_fakes_are_named(document: Any, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        fakes.parse(document)


def test_lies_are_factors() -> None:
    told = fakes.lied(Gauges(10, 4, 0.5), {"running": 0.5, "usage": 0})
    assert (told.running, told.waiting, told.usage) == (5, 4, 0)
