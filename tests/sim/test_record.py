"""Recording a running engine and fitting a model to it: the engine is a simulator whose model we know."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
from tests.sim.simulator import Start

from pointsman.sim.fit import presets, record, recordings


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pointsman", "sim", *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_recording_of_a_known_engine_can_be_judged_and_fitted(start: Start, tmp_path: Path) -> None:
    engine = (
        "--max-num-seqs",
        "64",
        "--max-model-len",
        "8192",
        "--enable-kvcache",
        "--kv-cache-size",
        "9000",
        "--zmq-endpoint",
        "",
    )
    log = tmp_path / "server.log"
    with log.open("w") as file:
        details = "--enable-logging-iteration-details"
        simulator = start("--latency-model", "rtxpro6000-llama-3.1-8b", details, *engine, log=file)
    httpx.post(f"{simulator.url}/v1/completions", json={"model": "test-model", "prompt": "before", "max_tokens": 3})
    out = tmp_path / "run"
    load = ("--rate", "15", "--seconds", "4", "--prompt-tokens", "300", "--output-tokens", "30", "--longest", "2000")
    said = run("record", simulator.url, "--out", str(out), *load, "--setting", "max_num_seqs=64", "--log", str(log))
    (recording,) = recordings.load(out)
    assert f"requests recorded, 0 lost, {len(recording.steps)} steps" in said
    assert sum(step.batch.prefill_tokens for step in recording.steps) == sum(
        r.prompt_tokens for r in recording.requests
    )
    assert (recording.engine.max_num_seqs, recording.engine.blocks) == (64, 9000)
    sent = list(record.plan(record.Load(rate=15, seconds=4, prompt_tokens=300, output_tokens=30, longest=2000)))
    assert sorted((r.prompt_tokens, r.output_tokens) for r in recording.requests) == sorted(
        (p.prompt, p.output) for p in sent
    )
    errors = json.loads(run("fit", "--model", presets.DEFAULT, "--json", str(out)))
    assert abs(errors["tpot"]["p50"]) < 25, errors  # a busy machine may delay it, but not by much
    run("fit", str(out), "--out", str(tmp_path / "model.yaml"), "--plot", str(tmp_path / "plot.svg"))
    assert presets.load(str(tmp_path / "model.yaml")).weights > 0
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")


def test_an_engine_that_is_not_there_is_one_clear_sentence(tmp_path: Path) -> None:
    words = ["record", "http://127.0.0.1:9", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pointsman", "sim", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and "does not answer as vLLM does" in done.stderr and "Traceback" not in done.stderr


def test_each_rank_gets_its_turn_and_a_log_without_steps_is_said(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("INFO started\n")
    simulator = start("--max-num-seqs", "64", "--max-model-len", "8192")
    load = ("--rate", "10", "--seconds", "1", "--output-tokens", "3", "--longest", "600")
    ranks = ("--setting", "data_parallel_size=2", "--log", str(log))
    said = run("record", simulator.url, "--out", str(tmp_path / "run"), *load, *ranks)
    assert "no steps (start vLLM with --enable-logging-iteration-details)" in said
    rows = [json.loads(line) for line in (tmp_path / "run" / "requests.jsonl").read_text().splitlines()]
    assert {row["data_parallel_rank"] for row in rows} == {0, 1}
    assert len(recordings.load(tmp_path / "run")) == 2


def test_a_log_that_is_not_there_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    words = ["record", "http://127.0.0.1:9", "--out", str(tmp_path), "--log", str(tmp_path / "none.log")]
    done = subprocess.run(
        [sys.executable, "-m", "pointsman", "sim", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and "name vLLM's log file" in done.stderr and "Traceback" not in done.stderr
