"""A recorded run on our engine, in virtual time: the same sizes at the same moments, and the times that come out.

Every request has block keys of its own, as prompts in vLLM have: one that was preempted finds those of its blocks that
nobody else needed meanwhile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman.sim.engine.engine import Seq, Step, Work
from pointsman.sim.engine.latency import Batch, Pace
from pointsman.sim.engine.stepmodel import StepModel
from pointsman.sim.engine.steps import StepEngine
from pointsman.sim.fit.recorded import Recorded
from pointsman.sim.fit.recordings import Recording


class Watched:
    """A step model that notes every batch it is asked about."""

    def __init__(self, model: StepModel, note: Callable[[Batch], None]) -> None:
        self.model = model
        self.note = note

    def step_time(self, batch: Batch, /) -> float:
        self.note(batch)
        return self.model.step_time(batch)

    def host_time(self, batch: Batch, /) -> tuple[float, float]:
        return self.model.host_time(batch)

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


def replay(recording: Recording, model: StepModel) -> Replay:
    """Run the recorded requests through the engine in virtual time."""
    batches: list[Batch] = []
    engine = StepEngine(recording.engine, latency=Watched(model, batches.append))
    seqs: list[Seq] = []
    number = 0
    first: dict[Seq, int] = {}
    last: dict[Seq, int] = {}

    def note(steps: list[Step]) -> None:
        nonlocal number
        for step in steps:
            number += 1
            first.update(dict.fromkeys(step.joined, number))
            last.update(dict.fromkeys(step.finished, number))

    for index, request in enumerate(recording.requests):
        note(engine.advance(request.arrival))
        blocks = (request.prompt_tokens + request.output_tokens) // recording.engine.block_size
        keys = range(index << 32, (index << 32) + blocks) if recording.engine.blocks is not None else ()
        work = Work(str(index), request.prompt_tokens, request.output_tokens, keys)
        seqs.append(engine.submit(work, now=request.arrival))
    while (wake := engine.next_wake) is not None:
        note(engine.advance(wake))
    requests = [
        Recorded(s.work.prompt_tokens, s.work.output_tokens, s.arrival, s.scheduled_at, s.first_token_at, s.finished_at)
        for s in seqs
    ]
    return Replay(requests, batches, [first[s] for s in seqs], [last[s] for s in seqs])
