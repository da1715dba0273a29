"""Steps from vLLM's own log, as `--enable-logging-iteration-details` writes it: a line for each step.

A line tells how many prompts and sequences a step had, and how long its output was waited for, not when that was nor
what sequences looked back on. Requests tell the rest. Prompts are computed in the order of their first tokens, so it is
known which step had which part of which prompt, and thereby which step gave a request its first and its last token:
those steps' moments are recorded. Between two of them each step took what it was waited for, and a share of what is
left over, which is the host's work; how much of it each kind of launch takes follows from all such spans together.

With async scheduling the host waits for an output once the next step was launched, so the wait tells when that was; and
where it did wait, the GPU ended just then. Two such steps in a row tell what the GPU took for the second; where the GPU
was done earlier than the host came to wait, decoding steps that it was waited for tell when. After a pause the host
launches two steps before it waits for one, so what each of those took the log does not tell.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pointsman.core.errors import UserError
from pointsman.sim.engine.latency import Batch
from pointsman.sim.fit.recorded import Recorded
from pointsman.sim.fit.solve import solve
from pointsman.sim.fit.stepfit import host_row
from pointsman.sim.fit.steplog import WAITED, LoggedStep

_LINE = re.compile(
    r"Iteration\(\d{1,12}\): (\d{1,9}) context requests, (\d{1,9}) context tokens, (\d{1,9}) generation requests, "
    r"(\d{1,9}) generation tokens, iteration elapsed time: (\d{1,9}(?:\.\d{1,9})?) ms"
)
_RANK = re.compile(r"EngineCore_DP(\d{1,4})\b")
_DUMMY = "(dummy)"
_STRAY = 0.02  # of the steps may decode other sequences than the requests say: an end that came too late, for one


class Iteration(NamedTuple):
    """One line of the log."""

    rank: int
    prompts: int
    prefill: int
    decoding: int
    generated: int
    waited: float  # seconds
    dummy: bool = False  # nothing was computed: other ranks had work


def parse(lines: Iterable[str]) -> Iterator[Iteration]:
    """Return the steps among the lines of a log."""
    for line in lines:
        found = _LINE.search(line)
        if found is None:
            continue
        rank = _RANK.search(line)
        prompts, prefill, decoding, generated = (int(found[n]) for n in range(1, 5))
        waited, dummy = float(found[5]) / 1e3, _DUMMY in line[found.end() :]
        yield Iteration(int(rank[1]) if rank else 0, prompts, prefill, decoding, generated, waited, dummy)


@dataclass(slots=True)
class _Held:
    """What one step held, and whose first and last tokens it gave."""

    waited: float
    batch: Batch
    output: float | None  # when its output was taken, where a request tells
    fresh: float | None  # when it was put together, where nothing had been under way


def steps(
    iterations: Sequence[Iteration], requests: Sequence[Recorded], *, start: float = 0.0, graph_tokens: int = 0
) -> list[LoggedStep]:
    """Return the steps of one engine; `start` is where the requests' times begin on its clock.

    Raises UserError when the log and the requests are not of the same run.
    """
    _check(iterations, requests)
    held = _follow(iterations, requests)
    _drop_late(held)
    outputs = _outputs(held, graph_tokens)
    rough = list(_timed(held, [None if at is None else at + start for at in outputs]))
    return list(_on_the_gpu(rough))


def _check(iterations: Sequence[Iteration], requests: Sequence[Recorded]) -> None:
    if any(each.dummy for each in iterations):
        raise UserError(
            "vLLM's log has dummy iterations: its ranks wait for each other in every step, which we do not model"
        )
    if any(each.generated != each.decoding for each in iterations):
        raise UserError(
            "vLLM's log has steps with several tokens for a sequence: it preempted some, or decodes speculatively; "
            "record with more KV blocks, and without speculation"
        )
    logged, sent = sum(each.prefill for each in iterations), sum(each.prompt_tokens for each in requests)
    if logged != sent:
        raise UserError(
            f"vLLM's log has {logged} prompt tokens and requests.jsonl {sent}: cut the log to the run, and send "
            "prompts that share no prefix"
        )


def _follow(iterations: Sequence[Iteration], requests: Sequence[Recorded]) -> list[_Held]:
    """Go through the steps with the requests in the order of their first tokens."""
    waiting = deque(sorted(requests, key=lambda r: (r.first_token, r.arrival)))
    done = 0  # tokens of the first one's prompt
    ending: dict[int, list[Recorded]] = {}
    decoding = context = stray = 0
    leaving = 0  # ended with the step before; their output is not taken yet, so they still count as running
    held: list[_Held] = []
    for number, each in enumerate(iterations):
        fresh = waiting[0].scheduled if waiting and not decoding and not done else None
        joined, inside, done = _take(waiting, each.prefill, done)
        ended = ending.pop(number, [])
        stray += decoding != each.decoding
        shown = context * each.decoding // decoding if decoding else 0
        running = each.decoding + each.prompts + (leaving if fresh is None else 0)
        batch = Batch(each.prefill, inside, each.decoding, shown, running, each.prompts)
        ended += [r for r in joined if r.output_tokens == 1]
        leaving = len(ended)
        moments = [r.first_token for r in joined] + [r.last_token for r in ended]
        held.append(_Held(each.waited, batch, min(moments, default=None), fresh))
        context += decoding - sum(r.prompt_tokens + r.output_tokens for r in ended if r.output_tokens > 1)
        decoding -= sum(r.output_tokens > 1 for r in ended)
        for r in (r for r in joined if r.output_tokens > 1):
            ending.setdefault(number + r.output_tokens - 1, []).append(r)
            decoding += 1
            context += r.prompt_tokens + 1
    if stray > _STRAY * len(iterations):
        raise UserError(
            f"{stray} of {len(iterations)} steps in vLLM's log decode other sequences than requests.jsonl tells: "
            "record with ignore_eos, and send the engine nothing else meanwhile"
        )
    return held


def _take(waiting: deque[Recorded], tokens: int, done: int) -> tuple[list[Recorded], int, int]:
    """Take so many prompt tokens off the queue: what is complete, attention's work, how much of the next is done."""
    joined: list[Recorded] = []
    inside = 0
    while tokens and waiting:
        chunk = min(tokens, waiting[0].prompt_tokens - done)
        inside += chunk * (done + chunk // 2)
        tokens -= chunk
        done += chunk
        if done >= waiting[0].prompt_tokens:
            joined.append(waiting.popleft())
            done = 0
    return joined, inside, done


def _drop_late(held: Sequence[_Held]) -> None:
    """Forget moments that come after a later step's: a client may see a token late, but never early."""
    least = float("inf")
    for each in reversed(held):
        if each.output is not None and each.output >= least:
            each.output = None
        least = each.output if each.output is not None else least


def _outputs(held: Sequence[_Held], graph_tokens: int) -> list[float | None]:
    """Return when each step's output was taken; None before the first moment that is known, and around a pause."""
    found = [each.output for each in held]
    spans = list(_spans(held))
    launches = [host_row(each.batch, graph_tokens) for each in [*held[1:], _Held(0.0, Batch(), None, None)]]
    if not spans:
        return found
    costs = solve(
        [[sum(column) for column in zip(*launches[span.first : span.last], strict=True)] for span in spans],
        [span.work for span in spans],
    ).values
    for span in spans:
        shares = [sum(c * x for c, x in zip(costs, row, strict=True)) for row in launches[span.first : span.last]]
        scale = span.work / sum(shares) if sum(shares) else 0.0
        at = span.begin
        for number, share in enumerate(shares[:-1], span.first):
            at += held[number].waited + share * scale
            found[number] = at
    return found


class _Span(NamedTuple):
    """Steps between two whose moments are known: the first after the one, up to the other."""

    first: int
    last: int  # … and one more
    begin: float
    work: float  # the host's seconds in between


def _spans(held: Sequence[_Held]) -> Iterator[_Span]:
    known = [(number, each.output) for number, each in enumerate(held) if each.output is not None]
    for (before, begin), (last, end) in pairwise(known):
        between = held[before + 1 : last + 1]
        if all(each.fresh is None for each in between):
            yield _Span(before + 1, last + 1, begin, max(end - begin - sum(each.waited for each in between), 0.0))


def _timed(held: Sequence[_Held], outputs: Sequence[float | None]) -> Iterator[LoggedStep]:
    """Return the steps whose output's moment is known, with what the host tells of them."""
    for number, (each, output) in enumerate(zip(held, outputs, strict=True)):
        if output is None:
            continue
        before = outputs[number - 1] if number and each.fresh is None else None
        earlier = outputs[number - 2] if number > 1 and before is not None and held[number - 1].fresh is None else None
        launched = output - each.waited if before is None else before - held[number - 1].waited
        formed = launched if earlier is None else min(earlier, launched)
        host = launched - formed if earlier is not None else None
        done = output if each.waited > WAITED else None
        free = before if before is not None and held[number - 1].waited > WAITED else None
        yield LoggedStep(each.batch, formed, launched, output, host, output - (free or formed), free, done)


def _on_the_gpu(rough: Sequence[LoggedStep]) -> Iterator[LoggedStep]:
    """Follow the GPU through decoding steps that it had done before anybody waited for them."""
    sure = [step for step in rough if step.gpu_free and step.gpu_done and not step.batch.prefill_tokens]
    costs = solve([_decoding(step.batch) for step in sure], [step.gpu for step in sure]).values if sure else None
    done: float | None = None
    for step in rough:
        free = done if step.gpu_free is None and step.host is not None else step.gpu_free
        done = step.gpu_done
        if done is None and free is not None and costs and not step.batch.prefill_tokens:
            work = sum(c * x for c, x in zip(costs, _decoding(step.batch), strict=True))
            done = min(max(free, step.formed) + work, step.output)
        gpu = step.gpu if free is None or done is None else done - free
        yield step._replace(gpu_free=free, gpu_done=done, gpu=gpu)


def _decoding(batch: Batch) -> tuple[float, float, float]:
    return 1.0, batch.decode_seqs, batch.context_tokens
