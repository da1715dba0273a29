"""Recordings of others: what is wrong with one is said in a sentence, and nothing of it reaches the errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.errors import UserError
from pointsman.sim.fit import command, recordings

GOOD = {
    "request_id": "r7",
    "input_toks": 20,
    "output_toks": 5,
    "arrival_time": 1e9,
    "queued_ts": 50.0,
    "scheduled_ts": 50.1,
    "first_token_ts": 50.2,
    "last_token_ts": 50.3,
}


def write(folder: Path, row: dict[str, Any], *, meta: dict[str, Any] | None = None, **settings: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "meta.json").write_text(json.dumps({"model": "m", "engine_kwargs": settings, **(meta or {})}))
    rows = [GOOD, {**GOOD, **row}]
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        pytest.param({"input_toks": "12"}, "request r7 has input_toks '12': write a count", id="text"),
        pytest.param({"input_toks": 12.5}, "input_toks 12.5", id="half a token"),
        pytest.param({"input_toks": -5}, "input_toks -5", id="negative"),
        pytest.param({"output_toks": 0}, "output_toks 0: .* leave out requests that failed", id="failed"),
        pytest.param({"output_toks": 10**9}, "output_toks 1000000000", id="endless"),
        pytest.param({"first_token_ts": None}, "first_token_ts None: write seconds", id="no time"),
        pytest.param({"last_token_ts": float("inf")}, "last_token_ts inf", id="infinite"),
        pytest.param({"arrival_time": float("nan")}, "arrival_time nan", id="not a number"),
        pytest.param({"last_token_ts": 50.15}, "last_token_ts before first_token_ts", id="backwards"),
        pytest.param({"first_token_ts": 0.0}, "first_token_ts before queued_ts", id="never"),
    ],
)
def test_a_request_that_cannot_be_is_refused(tmp_path: Path, row: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        recordings.load(write(tmp_path / "run", row))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        pytest.param({"pipeline_parallel_size": "2"}, "pipeline_parallel_size is '2': write a whole number", id="text"),
        pytest.param({"decode_context_parallel_size": 2}, "which we do not model: one GPU", id="context parallel"),
        pytest.param({"max_num_partial_prefills": 4}, "which we do not model: our engine cuts", id="partial"),
        pytest.param({"long_prefill_token_threshold": 256}, "smaller chunks than ours", id="long prompts"),
        pytest.param({"kv_offloading_size": 4}, "host's memory", id="offloading"),
        pytest.param({"num_gpu_blocks_override": 1}, "needs 2 KV blocks of 16 tokens, and there were 1", id="blocks"),
    ],
)
def test_settings_that_we_do_not_model_are_refused(tmp_path: Path, settings: Any, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        recordings.load(write(tmp_path / "run", {}, **settings))


def test_sizes_of_graphs_that_are_no_list_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cudagraph_capture_sizes must be a list"):
        recordings.load(write(tmp_path / "run", {}, meta={"cudagraph_capture_sizes": 512}))


def test_a_run_without_moments_of_scheduling_is_judged(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", {})
    rows = [{k: v for k, v in GOOD.items() if k != "scheduled_ts"}]
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = command.Asked([folder], model="h200-llama-3.1-8b", as_json=True)
    assert set(json.loads(command.run(asked))) == {"ttft", "tpot", "e2e"}
