"""Step logs: an engine that we know, logged as a recorder does, is found again; what a log does not tell is named."""

import csv
import gzip
from dataclasses import fields
from pathlib import Path

import pytest

from pointsman.core.errors import UserError
from pointsman.sim.engine.engine import EngineConfig
from pointsman.sim.engine.latency import Batch
from pointsman.sim.engine.stepmodel import StepModel
from pointsman.sim.fit import report
from pointsman.sim.fit.fit import fit, judged, unidentified
from pointsman.sim.fit.recorded import Recorded
from pointsman.sim.fit.recordings import Recording
from pointsman.sim.fit.replays import replay
from pointsman.sim.fit.stepfit import StepFit
from pointsman.sim.fit.steplog import read

TRUE = StepModel(
    weights=5e-3, free_tokens=128, token=20e-6, decode_seq=8e-6, context_token=35e-9, mixed_context_token=50e-9,
    prefill_context=1.5e-9, prompt=0.4e-3, prepare=1.5e-3, launch_graph=1e-3, launch_piecewise=6e-3, launch_eager=20e-3,
    host_seq=10e-6, graph_tokens=512,
)  # fmt: skip
COLUMNS = (
    "t_sched", "t_exec", "t_exec_end", "t_out", "t_out_end", "prefill_tokens", "prefill_context", "prefill_chunks",
    "decode_seqs", "context_tokens", "running", "gpu_gap_ms", "gpu_ms",
)  # fmt: skip


def plan(*, rate: float, prompt: int, name: str) -> Recording:
    """A load of prompts of many lengths up to the given one, evenly spread."""
    requests = [
        Recorded(20 + number * 7919 % prompt, 30 + number * 31 % 150, number / rate, 0, 0, 0) for number in range(150)
    ]
    return Recording(name, "m", EngineConfig(max_num_batched_tokens=8192, pipelined=True), requests, graph_tokens=512)


def logged(load: Recording, folder: Path) -> Recording:
    """Run the load on the known engine, and log its steps as a recorder on the real one does."""
    run = replay(load, TRUE)
    rows: list[list[float]] = []
    ends: list[float] = []
    hosts: list[float] = []
    host = gpu = 0.0
    for number, batch in enumerate(run.batches):
        begun = max(host, ends[number - 2] if number >= 2 else 0.0)
        ready, launched = TRUE.host_time(batch)
        start = max(gpu, begun + ready)
        early = max(gpu, begun + 1e-4)  # where a recorder marks the GPU's start: it counts the wait for the host
        end = max(start + TRUE.step_time(batch), begun + launched)
        host = begun + launched
        hosts.append(host)
        ends.append(end)
        rows.append([begun, begun, host, 0.0, 0.0, *held(batch), (early - gpu) * 1e3, (end - early) * 1e3])
        gpu = end
    for number, row in enumerate(rows):
        following = hosts[number + 1] if number + 1 < len(hosts) else 0.0
        row[3] = row[4] = max(ends[number], following)
    folder.mkdir()
    with gzip.open(folder / "steps.csv.gz", "wt") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    (steps,) = read(folder).values()
    assert len(steps) == len(run.batches)
    return Recording(load.name, "m", load.engine, run.requests, steps, 0.0, 512)


def held(batch: Batch) -> list[float]:
    return [
        batch.prefill_tokens,
        batch.prefill_context,
        batch.prompts,
        batch.decode_seqs,
        batch.context_tokens,
        batch.running,
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    folder = tmp_path_factory.mktemp("runs")
    loads = [plan(rate=40, prompt=600, name="chat"), plan(rate=8, prompt=6000, name="long")]
    return [logged(load, folder / load.name) for load in loads]


def test_a_known_engine_is_found_again_from_its_steps(runs: list[Recording]) -> None:
    found = fit(runs)
    for name, near in (
        ("weights", 0.03), ("token", 0.03), ("context_token", 0.1), ("mixed_context_token", 0.2),
        ("prefill_context", 0.1), ("prompt", 0.3), ("launch_piecewise", 0.3), ("launch_eager", 0.3), ("prepare", 0.5),
    ):  # fmt: skip
        assert getattr(found.model, name) == pytest.approx(getattr(TRUE, name), rel=near), name
    assert abs(found.model.free_tokens - 128) <= 32
    for recording in runs:
        errors = report.as_percent(report.compare(recording.requests, replay(recording, found.model).requests))
        assert max(abs(errors[metric]["mean"]) for metric in errors) < 3, errors


def test_each_run_is_judged_by_a_fit_to_the_others(runs: list[Recording]) -> None:
    names = [name for name, _ in judged(runs)]
    assert names == ["chat, fitted to the others", "long, fitted to the others"]


def test_what_the_runs_do_not_tell_is_named_with_what_to_record(runs: list[Recording]) -> None:
    quiet = [step for step in runs[0].steps if step.batch.prefill_tokens + step.batch.decode_seqs < 500]
    found = fit([Recording("quiet", "m", runs[0].engine, runs[0].requests, quiet, 0.0, 512)])
    assert unidentified(found)["launch_eager"] == "steps with more tokens than the largest CUDA graph"
    assert "not identified" in report.coefficients(found)


def test_what_a_sequence_costs_the_host_is_not_told_by_a_few(runs: list[Recording], tmp_path: Path) -> None:
    crowd = logged(plan(rate=200, prompt=600, name="crowd"), tmp_path / "crowd")
    assert max(step.batch.running for step in runs[0].steps) < 48 < max(step.batch.running for step in crowd.steps)
    assert "host_seq" in unidentified(fit(runs))
    assert "host_seq" not in unidentified(fit([*runs, crowd]))


def test_runs_of_different_engines_are_not_fitted_together(runs: list[Recording]) -> None:
    chat, long = runs
    with pytest.raises(UserError, match="fit them apart"):
        fit([chat, Recording("other", "m", long.engine, long.requests, long.steps, 0.0, 2048)])
    with pytest.raises(UserError, match="one model at a time"):
        fit([chat, Recording("other", "n", long.engine, long.requests, long.steps, 0.0, 512)])


def test_a_model_and_its_file_are_the_same(runs: list[Recording]) -> None:
    from pointsman.core.documents import parse_yaml
    from pointsman.sim.engine.stepmodel import step_model

    found = StepFit(TRUE, {"weights": 1e-5})
    text = report.document(runs, found, errors={}, unidentified=["prompt"])
    read_back = step_model(parse_yaml(text, name="x"), name="x")
    for field in fields(StepModel):
        assert getattr(read_back, field.name) == pytest.approx(getattr(TRUE, field.name)), field.name


def test_a_plot_shows_both_sides(runs: list[Recording]) -> None:
    from xml.etree import ElementTree as ET

    drawn = ET.fromstring(report.plot(runs[0].requests, runs[0].requests, title="a < b"))
    assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == 6


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(b"not gzip", "cannot be read", id="no gzip"),
        pytest.param(gzip.compress(b"t_sched\n1\n"), "t_exec_end is missing", id="columns"),
        pytest.param(gzip.compress(b"t_sched,t_exec_end\n1,x\n"), "line 2: t_exec_end", id="no number"),
    ],
)
def test_a_step_log_of_another_kind_is_one_clear_sentence(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "steps.csv.gz").write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        read(tmp_path)
