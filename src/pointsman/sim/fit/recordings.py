"""A recorded run of a real vLLM, and the same run on our engine.

A recording is a folder: `meta.json` (the engine's settings) and `requests.jsonl` (per request its sizes and the times
at which it arrived, was queued, scheduled, and gave its first and last token). Replaying submits the same sizes at the
same times to a `StepEngine` and returns the same times. Arrivals are on another clock than the rest; both are put on
the engine's by letting the quickest hand-over take no time.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.core.errors import UserError
from pointsman.core.numbers import bounded_int
from pointsman.sim.engine.engine import EngineConfig, Seq, Step, Work
from pointsman.sim.engine.latency import Batch, Pace, StepModel
from pointsman.sim.engine.steps import StepEngine


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request and its times, in seconds from the start of the run."""

    prompt_tokens: int
    output_tokens: int
    arrival: float
    scheduled: float
    first_token: float
    last_token: float

    @property
    def ttft(self) -> float:
        """Time to the first token, the queue included."""
        return self.first_token - self.arrival

    @property
    def tpot(self) -> float | None:
        """Mean time between tokens; None for a single one."""
        gaps = self.output_tokens - 1
        return (self.last_token - self.first_token) / gaps if gaps > 0 else None

    @property
    def e2e(self) -> float:
        """Time to the last token."""
        return self.last_token - self.arrival


@dataclass(frozen=True, slots=True)
class Recording:
    """A run: the engine's settings and its requests, in the order of arrival."""

    name: str
    model: str
    engine: EngineConfig
    requests: Sequence[Recorded]


def load(folder: Path, *, blocks: int | None = None) -> Recording:
    """Read a recording; `blocks` is the size of its KV cache where the recording does not tell and it ran full.

    Raises UserError naming the file and what is wrong with it.
    """
    meta = _json(folder / "meta.json", _read(folder / "meta.json"))
    lines = _read(folder / "requests.jsonl").splitlines()
    rows = [_json(folder / "requests.jsonl", line) for line in lines if line.strip()]
    if not rows:
        raise UserError(f"{folder / 'requests.jsonl'} holds no requests")
    settings = meta.get("engine_kwargs", {})
    if (settings.get("data_parallel_size") or 1) > 1:
        raise UserError(f"{folder} was recorded on several engines (data_parallel_size): record one of them")
    engine = EngineConfig(
        max_num_seqs=settings.get("max_num_seqs") or 256,
        max_num_batched_tokens=settings.get("max_num_batched_tokens") or 2048,
        blocks=blocks or settings.get("num_gpu_blocks_override") or meta.get("num_gpu_blocks"),
        block_size=settings.get("block_size") or 16,
        pipelined=settings.get("async_scheduling") is not False,
    )
    try:
        requests = _requests(rows)
    except (KeyError, TypeError) as error:
        raise UserError(f"{folder / 'requests.jsonl'}: a request lacks {error}") from None
    return Recording(folder.name, str(meta.get("model", "")), engine, requests)


def _requests(rows: Sequence[dict[str, Any]]) -> list[Recorded]:
    shift = min(row["queued_ts"] - row["arrival_time"] for row in rows)
    start = min(row["arrival_time"] for row in rows) + shift
    found = [
        Recorded(
            row["input_toks"],
            row["output_toks"],
            row["arrival_time"] + shift - start,
            row["scheduled_ts"] - start,
            row["first_token_ts"] - start,
            row["last_token_ts"] - start,
        )
        for row in rows
    ]
    return sorted(found, key=lambda request: request.arrival)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _json(path: Path, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_int=bounded_int)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} must hold JSON objects")
    return found


class Watched:
    """A step model that notes every batch it is asked about."""

    def __init__(self, model: StepModel, note: Callable[[Batch], None]) -> None:
        self.model = model
        self.note = note

    def step_time(self, batch: Batch, /) -> float:
        self.note(batch)
        return self.model.step_time(batch)

    def transfer_time(self, tokens: int, /) -> float:
        return self.model.transfer_time(tokens)

    def paced(self, _pace: Pace, /) -> "Watched":
        return self


@dataclass(frozen=True, slots=True)
class Replay:
    """A recording on our engine: the requests with our times, and what every step held."""

    requests: Sequence[Recorded]
    batches: Sequence[Batch]
    first_steps: Sequence[int]  # per request, the number of the step that gave its first token
    last_steps: Sequence[int]
    start_steps: Sequence[int]  # … and of the first step that computed some of its prompt


def replay(recording: Recording, model: StepModel) -> Replay:
    """Run the recorded requests through the engine in virtual time."""
    batches: list[Batch] = []
    engine = StepEngine(recording.engine, latency=Watched(model, batches.append))
    seqs: list[Seq] = []
    number = 0
    first: dict[Seq, int] = {}
    last: dict[Seq, int] = {}
    started: dict[Seq, int] = {}

    def note(steps: list[Step]) -> None:
        nonlocal number
        for step in steps:
            number += 1
            first.update(dict.fromkeys(step.joined, number))
            last.update(dict.fromkeys(step.finished, number))
            for seq in engine.state.running:
                started.setdefault(seq, number + 1)

    for index, request in enumerate(recording.requests):
        note(engine.advance(request.arrival))
        work = Work(str(index), request.prompt_tokens, request.output_tokens)
        seqs.append(engine.submit(work, now=request.arrival))
        if seqs[-1] in engine.state.running:
            started[seqs[-1]] = number + 1
    while (wake := engine.next_wake) is not None:
        note(engine.advance(wake))
    requests = [
        Recorded(s.work.prompt_tokens, s.work.output_tokens, s.arrival, s.scheduled_at, s.first_token_at, s.finished_at)
        for s in seqs
    ]
    order = [first[s] for s in seqs], [last[s] for s in seqs], [started.get(s, first[s]) for s in seqs]
    return Replay(requests, batches, *order)
