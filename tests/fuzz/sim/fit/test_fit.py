"""The fit finds the coefficients behind a run, and its errors on the real recording stay within the budget."""

import json
import os
import random
from pathlib import Path

import pytest

from pointsman.core.errors import UserError
from pointsman.sim.engine.engine import EngineConfig
from pointsman.sim.engine.latency import StepModel
from pointsman.sim.fit import fit, recordings
from pointsman.sim.fit.recordings import Recorded, Recording, replay

TRUE = StepModel(base=0.010, prefill_token=50e-6, prefill_context=0.0, decode_seq=40e-6, context_token=0.15e-6)


def made_up(*, seed: int, rate: float) -> Recording:
    """A run of an engine whose coefficients we know."""
    rng = random.Random(seed)
    at, requests = 0.0, []
    for _ in range(70):
        at += rng.expovariate(rate)
        requests.append(Recorded(rng.randint(50, 2500), rng.randint(20, 300), at, 0.0, 0.0, 0.0))
    plan = Recording("made-up", "m", EngineConfig(max_num_seqs=64, pipelined=True), requests)
    return Recording("made-up", "m", plan.engine, replay(plan, TRUE).requests)


def write(recording: Recording, folder: Path) -> Path:
    """Store a run as vLLM's recorder does, with arrivals on another clock."""
    kwargs = {"max_num_seqs": recording.engine.max_num_seqs, "max_num_batched_tokens": 2048}
    (folder / "meta.json").write_text(json.dumps({"model": "m", "engine_kwargs": kwargs}))
    rows = [
        {
            "input_toks": r.prompt_tokens,
            "output_toks": r.output_tokens,
            "arrival_time": 1_777_000_000.0 + r.arrival,
            "queued_ts": 4000.0 + r.arrival,
            "scheduled_ts": 4000.0 + r.scheduled,
            "first_token_ts": 4000.0 + r.first_token,
            "last_token_ts": 4000.0 + r.last_token,
        }
        for r in recording.requests
    ]
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_the_coefficients_of_a_known_engine_are_found_again(tmp_path: Path) -> None:
    recording = recordings.load(write(made_up(seed=1, rate=8.0), tmp_path))
    found = fit.fit(recording)
    assert found.base == pytest.approx(TRUE.base, rel=0.1)
    assert found.prefill_token == pytest.approx(TRUE.prefill_token, rel=0.1)
    assert found.context_token == pytest.approx(TRUE.context_token, rel=0.2)
    held_out = made_up(seed=2, rate=5.0)
    for row in fit.table(held_out, found):
        assert abs(row.error) < 0.05, row


def test_requests_that_the_fit_has_not_seen_are_met_as_well() -> None:
    recording = made_up(seed=1, rate=8.0)
    for row in fit.held_out(recording, folds=2):
        assert abs(row.error) < 0.05, row
    wrong = [Recorded(r.prompt_tokens, r.output_tokens, r.arrival, r.scheduled, r.first_token, r.last_token * 3)
             if i % 2 else r for i, r in enumerate(recording.requests)]  # fmt: skip
    unseen = fit.fit(Recording("x", "m", recording.engine, wrong), seen=range(0, 70, 2))
    assert unseen.base == pytest.approx(TRUE.base, rel=0.1)  # times that it may not see do not mislead it


def test_the_file_that_it_writes_is_a_step_model(tmp_path: Path) -> None:
    from pointsman.core.documents import parse_yaml
    from pointsman.sim.engine.latency import step_model

    text = fit.document(made_up(seed=1, rate=8.0), TRUE)
    model = step_model(parse_yaml(text, name="x"), name="x")
    assert model.base == pytest.approx(TRUE.base) and model.context_token == pytest.approx(TRUE.context_token)
    assert parse_yaml(text, name="x")["errors"]["ttft"]["mean_percent"] == 0.0


@pytest.mark.parametrize(
    ("meta", "rows", "complaint"),
    [
        pytest.param(None, "", "meta.json cannot be read", id="no meta"),
        pytest.param("{", "", "is not JSON", id="bad meta"),
        pytest.param("{}", "", "holds no requests", id="empty"),
        pytest.param("{}", '{"input_toks": 1}', "lacks", id="missing times"),
        pytest.param('{"engine_kwargs": {"data_parallel_size": 2}}', "{}", "several engines", id="ranks"),
    ],
)
def test_a_folder_that_is_no_recording_is_one_clear_sentence(
    tmp_path: Path, meta: str | None, rows: str, complaint: str
) -> None:
    if meta is not None:
        (tmp_path / "meta.json").write_text(meta)
    (tmp_path / "requests.jsonl").write_text(rows)
    with pytest.raises(UserError, match=complaint):
        recordings.load(tmp_path)


def test_the_size_of_the_kv_cache_is_taken_over(tmp_path: Path) -> None:
    write(made_up(seed=1, rate=8.0), tmp_path)
    assert recordings.load(tmp_path).engine.blocks is None
    small = recordings.load(tmp_path, blocks=400)
    assert small.engine.blocks == 400
    assert replay(small, TRUE).requests[-1].last_token > replay(recordings.load(tmp_path), TRUE).requests[-1].last_token


@pytest.mark.skipif("POINTSMAN_DATA" not in os.environ, reason="POINTSMAN_DATA names no folder with vllm-runs/")
def test_the_shipped_coefficients_meet_the_error_budget_on_the_real_run() -> None:
    from pointsman.sim.server import load_step_model
    from pointsman.sim.settings import Settings

    folder = Path(os.environ["POINTSMAN_DATA"]) / "vllm-runs" / "RTXPRO6000-Llama-3.1-8B"
    model = load_step_model(Settings(model="m", latency_calculator="step"))
    assert model is not None
    budget = {"ttft": 0.01, "tpot": 0.01, "e2e": 0.01}
    for row in fit.table(recordings.load(folder), model):
        limit = 0.08 if row.statistic == "each" and row.metric == "ttft" else budget[row.metric]
        assert abs(row.error) < limit, row
