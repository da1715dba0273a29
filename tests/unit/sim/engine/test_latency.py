"""The latency models: the Go simulator's formulas without its rounding, and the linear step."""

from typing import Any

import pytest

from pointsman.sim.engine.chance import Chance
from pointsman.sim.engine.latency import Batch, Pace, PacedModel


@pytest.mark.parametrize(
    ("pace", "batch", "seconds"),
    [
        pytest.param({"time_to_first_token": 0.2}, {"prefill_tokens": 9}, 0.2, id="constant"),
        pytest.param({"inter_token_latency": 0.0001}, {"decode_seqs": 1}, 0.0001, id="below a millisecond"),
        pytest.param(
            {"prefill_overhead": 0.03, "prefill_time_per_token": 0.00025},
            {"prefill_tokens": 100},
            0.055,
            id="per token",
        ),
        pytest.param(
            {"calculator": "per-token", "time_to_first_token": 9.0, "prefill_overhead": 0.5},
            {"prefill_tokens": 1},
            0.5,
            id="the choice wins over what was set",
        ),
        pytest.param(
            {"time_to_first_token": 0.1, "time_factor_under_load": 3.0, "max_num_seqs": 5},
            {"prefill_tokens": 1, "running": 3},
            0.2,
            id="half the load, half the slow-down",
        ),
        pytest.param(
            {"time_to_first_token": 0.1, "time_factor_under_load": 3.0, "max_num_seqs": 1},
            {"prefill_tokens": 1},
            0.1,
            id="one slot has no load",
        ),
        pytest.param(
            {"kv_cache_transfer_latency": 0.02, "time_to_first_token": 5.0, "time_factor_under_load": 2.0},
            {"remote_tokens": 50, "prefill_tokens": 50, "running": 5},
            0.02,
            id="a transfer knows no load",
        ),
        pytest.param({"kv_cache_transfer_time_per_token": 0.001}, {"remote_tokens": 50}, 0.05, id="transfer per token"),
    ],
)
def test_paced(pace: dict[str, Any], batch: dict[str, Any], seconds: float) -> None:
    model = PacedModel(Pace(**pace))
    assert model.step_time(Batch(**batch)) == pytest.approx(seconds)


def test_samples_stay_within_the_band_and_keep_the_mean() -> None:
    model = PacedModel(Pace(inter_token_latency=0.02, inter_token_latency_std_dev=0.006))
    chance = Chance(1, "r", "latency")
    drawn = [model.step_time(Batch(decode_seqs=1, chance=chance)) for _ in range(5000)]
    assert min(drawn) >= 0.3 * 0.02 and max(drawn) <= 1.7 * 0.02
    assert sum(drawn) / len(drawn) == pytest.approx(0.02, rel=0.02)
    assert len(set(drawn)) > 4000
