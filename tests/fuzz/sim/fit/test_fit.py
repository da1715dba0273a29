"""The fit finds the coefficients behind a run, and its errors on the real recording stay within the budget."""

import csv
import gzip
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.core.errors import UserError
from pointsman.sim.engine.engine import EngineConfig
from pointsman.sim.engine.stepmodel import StepModel
from pointsman.sim.fit import recordings
from pointsman.sim.fit.fit import errors as unseen_errors
from pointsman.sim.fit.fit import fit, judged
from pointsman.sim.fit.recorded import Recorded
from pointsman.sim.fit.recordings import Recording
from pointsman.sim.fit.replays import replay
from pointsman.sim.fit.report import as_percent, compare

TRUE = StepModel(weights=0.010, token=50e-6, decode_seq=40e-6, context_token=0.15e-6, mixed_context_token=0.15e-6)


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
    (recording,) = recordings.load(write(made_up(seed=1, rate=8.0), tmp_path))
    found = fit([recording]).model
    assert found.weights == pytest.approx(TRUE.weights, rel=0.1)
    assert found.token == pytest.approx(TRUE.token, rel=0.1)
    assert found.context_token == pytest.approx(TRUE.context_token, rel=0.2)
    other = made_up(seed=2, rate=5.0)
    for row in compare(other.requests, replay(other, found).requests):
        # a single first token depends on the moment within a step at which its request came
        assert abs(row.error) < (0.15 if row.statistic == "each" else 0.05), row


def test_the_later_half_is_met_by_a_fit_to_the_first() -> None:
    ((name, rows),) = judged([made_up(seed=1, rate=8.0)])
    assert "later half" in name
    for row in rows:
        # a single first token depends on the moment within a step at which its request came
        assert abs(row.error) < (0.15 if row.statistic == "each" else 0.05), row


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
    ((large,), (small,)) = recordings.load(tmp_path), recordings.load(tmp_path, blocks=400)
    assert (large.engine.blocks, small.engine.blocks) == (None, 400)
    assert replay(small, TRUE).requests[-1].last_token > replay(large, TRUE).requests[-1].last_token


DATA = pytest.mark.skipif("POINTSMAN_DATA" not in os.environ, reason="POINTSMAN_DATA names no folder with vllm-runs/")


def as_vllm_logs(measured: Path) -> Iterator[str]:
    """What vLLM itself logs of steps that were measured: what they held, and how long their output was waited for."""
    with gzip.open(measured, "rt") as file:
        rows = list(csv.DictReader(file))
    for number, (row, after) in enumerate(zip(rows, [*rows[1:], rows[-1]], strict=True)):
        out = float(row["t_out"])
        launched = float((after if float(after["t_exec"]) < out else row)["t_exec_end"])
        yield (
            f"(EngineCore_DP0 pid=7) INFO 11-15 10:00:00 [core.py:300] Iteration({number}): {row['prefill_chunks']} "
            f"context requests, {row['prefill_tokens']} context tokens, {row['decode_seqs']} generation requests, "
            f"{row['decode_seqs']} generation tokens, iteration elapsed time: {max(out - launched, 0) * 1e3:.2f} ms\n"
        )


@DATA
def test_vllms_own_log_is_as_good_as_measured_steps(tmp_path: Path) -> None:
    runs = []
    for name in ("load10", "load40", "long"):
        real, copy = Path(os.environ["POINTSMAN_DATA"]) / "vllm-h200" / name, tmp_path / name
        copy.mkdir()
        for file in ("meta.json", "requests.jsonl"):
            (copy / file).write_text((real / file).read_text())
        (copy / "vllm.log").write_text("".join(as_vllm_logs(real / "steps.csv.gz")))
        ((told,), (measured,)) = recordings.load(copy), recordings.load(real)
        assert [s.batch for s in told.steps] == [s.batch for s in measured.steps]
        late = sorted(abs(a.output - b.output) for a, b in zip(told.steps, measured.steps, strict=True))
        assert late[len(late) // 2] < 0.002
        runs.append(told)
    unseen = recordings.load(Path(os.environ["POINTSMAN_DATA"]) / "vllm-h200" / "load70")
    errors = as_percent(unseen_errors(unseen, fit(runs).model))
    assert abs(errors["ttft"]["mean"]) < 15 and max(abs(errors[m]["mean"]) for m in ("tpot", "e2e")) < 5, errors
    assert max(abs(errors[m]["p99"]) for m in errors) < 20, errors


@DATA
@pytest.mark.parametrize(
    ("model", "run", "budget"),
    [
        pytest.param("rtxpro6000-llama-3.1-8b", "vllm-runs/RTXPRO6000-Llama-3.1-8B", (2, 2, 2), id="RTX PRO 6000"),
        pytest.param("h200-llama-3.1-8b", "vllm-h200/load70", (15, 5, 20), id="H200 under load"),
        pytest.param("h200-llama-3.1-8b", "vllm-h200/long", (15, 5, 20), id="H200, long prompts"),
    ],
)
def test_shipped_models_meet_the_error_budget_on_real_runs(model: str, run: str, budget: tuple[int, int, int]) -> None:
    from pointsman.sim.fit import command

    folder = Path(os.environ["POINTSMAN_DATA"]) / run
    errors = json.loads(command.run(command.Asked([folder], model=model, as_json=True)))
    first, mean, tail = budget
    assert abs(errors["ttft"]["mean"]) < first, errors
    assert max(abs(errors[metric]["mean"]) for metric in ("tpot", "e2e")) < mean, errors
    assert max(abs(errors[metric]["p99"]) for metric in errors) < tail, errors
