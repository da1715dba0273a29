"""vLLM's own log of its steps: with the requests of the run it tells what a log of measured steps does."""

import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.unit.sim.fit.test_stepfit import TRUE, plan

from pointsman.core.errors import UserError
from pointsman.sim.engine.engine import Seq, Step, Work
from pointsman.sim.engine.latency import Batch
from pointsman.sim.engine.steps import StepEngine
from pointsman.sim.fit import fit, recordings, report
from pointsman.sim.fit.enginelog import EngineLog
from pointsman.sim.fit.iterations import Iteration, parse, steps
from pointsman.sim.fit.recorded import Recorded
from pointsman.sim.fit.recordings import Recording
from pointsman.sim.fit.replays import Watched
from pointsman.sim.pod.iterations import logger

LINE = (
    "(EngineCore_DP1 pid=1205) INFO 07-09 03:15:05 [v1/engine/core.py:359] Iteration(15): 2 context requests, 7986 "
    "context tokens, 14 generation requests, 14 generation tokens, iteration elapsed time: 1115.50 ms"
)


def run(load: Recording, *, rank: int = -1) -> tuple[list[Recorded], list[Batch], str]:
    """Run a load on the known engine: its requests with their times, what the steps held, and its log."""
    batches: list[Batch] = []
    engine = StepEngine(load.engine, latency=Watched(TRUE, batches.append))
    text = io.StringIO()
    log = logger(text, rank=rank, wall=lambda: 1e9)

    def note(found: Iterable[Step]) -> None:
        for step in found:
            log(step)

    seqs: list[Seq] = []
    for number, request in enumerate(load.requests):
        note(engine.advance(request.arrival))
        work = Work(str(number), request.prompt_tokens, request.output_tokens)
        seqs.append(engine.submit(work, now=request.arrival))
    while (wake := engine.next_wake) is not None:
        note(engine.advance(wake))
    done = [
        Recorded(s.work.prompt_tokens, s.work.output_tokens, s.arrival, s.scheduled_at, s.first_token_at, s.finished_at)
        for s in seqs
    ]
    return done, batches, text.getvalue()


def write(folder: Path, ranks: list[tuple[list[Recorded], str]], *, tell: bool = True, **settings: object) -> Path:
    """Write a recording of one engine, or of several."""
    folder.mkdir()
    meta = {"model": "m", "engine_kwargs": {"max_num_batched_tokens": 8192, **settings}}
    (folder / "meta.json").write_text(json.dumps({**meta, "cudagraph_capture_sizes": [1, 512]}))
    rows = [
        {
            "input_toks": r.prompt_tokens,
            "output_toks": r.output_tokens,
            "arrival_time": 1e9 + r.arrival,
            "queued_ts": 4000.0 + r.arrival,
            "scheduled_ts": 4000.0 + r.scheduled,
            "first_token_ts": 4000.0 + r.first_token,
            "last_token_ts": 4000.0 + r.last_token,
            **({"data_parallel_rank": rank} if tell and len(ranks) > 1 else {}),
        }
        for rank, (requests, _) in enumerate(ranks)
        for r in requests
    ]
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "vllm.log").write_text("INFO: started\n" + "".join(text for _, text in ranks))
    return folder


def test_a_line_of_vllm_is_read_whatever_stands_around_it() -> None:
    lines = ["INFO starting", LINE, LINE.replace("_DP1", "") + ", GPU KV cache usage: 3.1%"]
    assert list(parse(lines)) == [Iteration(1, 2, 7986, 14, 14, 1.1155), Iteration(0, 2, 7986, 14, 14, 1.1155)]


def test_the_steps_are_those_that_the_engine_made() -> None:
    requests, batches, text = run(plan(rate=40, prompt=600, name="chat"))
    found = steps(list(parse(text.splitlines())), requests, graph_tokens=512)
    made = [step.batch for step in found]
    assert len(made) == len(batches)
    for ours, real in zip(made, batches, strict=True):
        assert ours.prefill_tokens == real.prefill_tokens
        assert ours.prefill_context == real.prefill_context
        assert (ours.decode_seqs, ours.context_tokens) == (real.decode_seqs, real.context_tokens)
        assert (ours.prompts, ours.running) == (real.prompts, real.running)
    assert [s.output for s in found] == sorted(s.output for s in found)


def test_a_known_engine_is_found_again_from_its_log(tmp_path: Path) -> None:
    runs = []
    for load in (plan(rate=40, prompt=600, name="chat"), plan(rate=8, prompt=6000, name="long")):
        requests, _, text = run(load)
        runs += recordings.load(write(tmp_path / load.name, [(requests, text)]))
    found = fit.fit(runs)
    for name, near in (
        ("weights", 0.05), ("token", 0.05), ("context_token", 0.3), ("prefill_context", 0.2),
        ("launch_piecewise", 0.3), ("launch_eager", 0.3),
    ):  # fmt: skip
        assert getattr(found.model, name) == pytest.approx(getattr(TRUE, name), rel=near), name
    for each in runs:
        errors = report.as_percent(fit.errors([each], found.model))
        assert max(abs(errors[metric]["mean"]) for metric in errors) < 5, errors


def test_each_rank_is_an_engine_of_its_own_and_a_run_is_judged_over_all(tmp_path: Path) -> None:
    loads = [plan(rate=40, prompt=600, name="a"), plan(rate=30, prompt=900, name="b")]
    ranks = [(requests, text) for requests, _, text in (run(load, rank=n) for n, load in enumerate(loads))]
    folder = write(tmp_path / "both", ranks, data_parallel_size=2)
    first, second = recordings.load(folder)
    assert (len(first.requests), len(second.requests)) == (150, 150)
    assert first.steps and second.steps and first.name == second.name == "both"
    assert sum(s.batch.prefill_tokens for s in second.steps) == sum(r.prompt_tokens for r in ranks[1][0])
    (rows,) = (fit.errors(each, fit.fit([first, second]).model) for each in fit.runs([first, second]).values())
    assert max(abs(row.error) for row in rows if row.statistic == "mean") < 0.05
    ((name, _),) = fit.judged([first, second])
    assert name == "both, its later half by a fit to the first"


def test_ranks_that_nobody_tells_apart_are_refused(tmp_path: Path) -> None:
    ranks = [
        (requests, text) for requests, _, text in (run(plan(rate=40, prompt=600, name="a"), rank=n) for n in (0, 1))
    ]
    with pytest.raises(UserError, match="write data_parallel_rank into every line of requests"):
        recordings.load(write(tmp_path / "silent", ranks, tell=False, data_parallel_size=2))
    folder = write(tmp_path / "csv", ranks, data_parallel_size=2)
    columns = "t_sched,t_exec_end,t_out,t_out_end,gpu_ms,gpu_gap_ms,prefill_tokens,prefill_context,decode_seqs"
    columns, row = f"{columns},context_tokens,running,prefill_chunks", ",".join("1" * 12)
    (folder / "steps.csv").write_text(f"{columns},data_parallel_rank\n{row},1\n{row},0\n{row},1\n")
    assert [len(rank.steps) for rank in recordings.load(folder)] == [1, 2]
    (folder / "steps.csv").write_text(f"{columns}\n{row}\n")
    with pytest.raises(UserError, match="write data_parallel_rank into every line of the steps"):
        recordings.load(folder)
    with pytest.raises(UserError, match="wait for each other"):
        recordings.load(write(tmp_path / "experts", ranks, data_parallel_size=2, enable_expert_parallel=True))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param(lambda t: t.replace("1 generation tokens", "40 generation tokens"), "preempted", id="preempted"),
        pytest.param(lambda t: t + t, "prompt tokens and requests.jsonl", id="another run as well"),
        pytest.param(lambda t: t.replace(" ms\n", " ms (dummy)\n"), "dummy iterations", id="lockstep"),
        pytest.param(
            lambda t: t.replace(" generation requests, ", "1 generation requests, ").replace(
                " generation tokens", "1 generation tokens"
            ),
            "decode other sequences",
            id="other sequences",
        ),
    ],
)
def test_a_log_of_something_else_is_one_clear_sentence(
    tmp_path: Path, change: Callable[[str], str], complaint: str
) -> None:
    requests, _, text = run(plan(rate=40, prompt=600, name="chat"))
    with pytest.raises(UserError, match=complaint) as refused:
        recordings.load(write(tmp_path / "run", [(requests, change(text))]))
    assert "without vllm.log a fit takes the requests alone" in str(refused.value)


def test_a_log_is_taken_from_where_it_stood_and_anew_where_it_was_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(f"{LINE}\n".encode() * 3 + b"\xff\n")
    log = EngineLog(path)
    assert log.lines() == []
    with path.open("ab") as file:
        file.write(b"x" * 3_000_000 + f"\n{LINE}\nINFO other\n".encode())
    assert log.lines() == [f"{LINE}\n"]
    path.write_text(f"{LINE}\n{LINE}\n")
    assert len(log.lines()) == 2
