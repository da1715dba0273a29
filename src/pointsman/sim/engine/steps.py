"""The engine in steps, as vLLM V1's scheduler makes them.

A step first serves what runs (one token for each decoding sequence, the next chunk for a prompt under way), then
admits from the waiting queue while sequences, tokens and blocks last. Prompts are cut into chunks to fit the budget.
If a running sequence finds no block, the one that was admitted last is preempted: it gives back everything, goes to
the front of the queue, and computes its prompt and output again. Nothing is admitted in a step that preempted.

With `pipelined` two steps are under way (vLLM's async scheduling). The host puts a step together, launches it, and only
then takes the output of the one before, once the GPU is done with that; then it goes on to the next. So a step knows
the requests that were there when the host came to it, what the step before it frees is not free yet, and tokens wait
until the next step was launched, even if the GPU had them earlier. Without, each step is waited for before the next.

A decoding sequence is touched only when something happens to it. Its end and its next block are known in advance, so
they wait in tables by step number, and a step in which everybody just gets a token costs the same for 8 sequences as
for 256. `generated` of a decoding sequence is therefore brought up to date when it leaves; `generated_by` tells it.
"""

import heapq
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from pointsman.sim.engine.chance import Chance
from pointsman.sim.engine.engine import (
    ABORTED,
    DONE,
    RUNNING,
    WAITING,
    EngineConfig,
    EngineState,
    Hasher,
    Seq,
    Step,
    Work,
)
from pointsman.sim.engine.latency import Batch, Pace, StepLatency


class StepEngine:
    """All sequences in one batch, one step at a time."""

    def __init__(
        self, config: EngineConfig, *, latency: StepLatency, hasher: Hasher | None = None, events: bool = False
    ) -> None:
        self.config = config
        self.latency = latency
        self.slowdown = 1.0  # set by the driver; a factor on every step formed from now on
        self.state = EngineState(config, hasher=hasher, events=events)
        self._done = 0  # steps whose tokens are accounted for
        self._launched = False  # whether a step is under way behind the one in `_ahead`
        self._gpu = 0.0  # when the GPU will be done with everything launched
        self._host = 0.0  # when the host is free
        self._ahead: _Flight | None = None  # under way and accounted for; its output is not taken so far
        self._taken = 0.0  # when the last output was
        self._decoding: dict[Seq, None] = {}
        self._snapshot: tuple[Seq, ...] | None = None  # of _decoding, until it changes
        self._context = 0  # tokens that decoding sequences look back on
        self._prefilling: list[Seq] = []  # admitted, prompt not complete, in the order of admission
        self._chunks: list[tuple[Seq, int]] = []  # what the step under way computes of them
        self._last: dict[int, list[Seq]] = {}  # step -> sequences whose last token it makes
        self._boundary: dict[int, list[Seq]] = {}  # step -> sequences that need a block for it
        self._batch_tokens = 0
        self._ended: set[Seq] = set()  # with the step ahead: they hold their places until its output is taken
        self._arriving: list[tuple[float, int, Seq]] = []  # their KV blocks are under way from another engine
        self._ties = count()
        self._chance = Chance(config.seed, "steps")

    def set_pace(self, pace: Pace) -> None:
        """Take another pace, as far as the model of the steps leaves room for one."""
        self.latency = self.latency.paced(pace)

    def submit(self, work: Work, *, now: float) -> Seq:
        """Queue the work for the next step; an idle engine begins one at once. `advance(now)` comes first."""
        seq = self.state.enqueue(work, now=now, chance=None)
        if work.remote_tokens:
            self.state.waiting.remove(seq)
            ready = now + self.latency.transfer_time(work.remote_tokens)
            heapq.heappush(self._arriving, (ready, next(self._ties), seq))
            self.state.transferring = len(self._arriving)
        if not self._busy:
            self._form(now)
        return seq

    def abort(self, seq: Seq, *, now: float) -> None:
        """Forget the sequence wherever it is; its blocks are free at once, the step under way keeps its time."""
        if seq.state == RUNNING:
            self._withdraw(seq)
            self.state.leave(seq, state=ABORTED)
        elif seq.state == WAITING:
            self._arriving = [entry for entry in self._arriving if entry[2] is not seq]
            heapq.heapify(self._arriving)
            self.state.transferring = len(self._arriving)
            if seq in self.state.waiting:
                self.state.waiting.remove(seq)
            seq.state = ABORTED
        if self._ahead is not None:
            self._ahead = self._ahead.without(seq)
        seq.finished_at = now

    @property
    def _busy(self) -> bool:
        return self._launched or self._ahead is not None

    @property
    def next_wake(self) -> float | None:
        """When the host has something to do: a step to put together, an output to take, or blocks that arrived."""
        if self._ahead is not None:
            return max(self._host, self._ahead.ends)
        if self._launched:
            return self._host if self.config.pipelined else max(self._host, self._gpu)
        return self._arriving[0][0] if self._arriving else None

    def generated_by(self, seq: Seq) -> int:
        """Return how many tokens the sequence has, also while it decodes."""
        return seq.generated + (self._done - seq.joined if seq in self._decoding else 0)

    def advance(self, now: float) -> list[Step]:
        """Do all that the host does up to now: take outputs, and put the next steps together at once."""
        steps: list[Step] = []
        while (wake := self.next_wake) is not None and wake <= now:
            if self._ahead is not None:
                steps.append(self._take(self._ahead, wake))
            if self._launched:
                self._ahead = self._account()
                if not self.config.pipelined:
                    steps.append(self._take(self._ahead, wake))
            self._form(wake)
        return steps

    # the end of a step

    def _account(self) -> "_Flight":
        """Note what the step under way will have done: what follows is put together on top of it."""
        if self._snapshot is None:
            self._snapshot = tuple(self._decoding)
        emitted = self._snapshot
        self._done += 1
        self._launched = False
        self._context += len(emitted)
        ending = self._last.pop(self._done, None)
        if ending is None and not self._chunks:  # nearly every step: everybody just gets a token
            return _Flight(self._gpu, emitted, (), (), self._batch_tokens, 0)
        finished = [
            seq for seq in ending or () if seq in self._decoding and self.generated_by(seq) >= seq.work.output_tokens
        ]
        for seq in finished:
            self._settle(seq)
        prompts = len(self._chunks)
        joined = self._complete_chunks() if prompts else []
        if joined:
            finished += [seq for seq in joined if seq not in self._decoding]
            emitted = (*emitted, *joined)
        self._ended.update(finished)
        return _Flight(self._gpu, emitted, tuple(joined), tuple(finished), self._batch_tokens, prompts)

    def _take(self, flight: "_Flight", at: float) -> Step:
        """Take the output of a step; what ended with it gives back what it held."""
        for seq in flight.joined:
            if seq.first_token_at < 0:
                seq.first_token_at = at
        for seq in flight.finished:
            self._ended.discard(seq)
            seq.last_token_at = seq.finished_at = at
            self.state.cache(seq, computed=seq.tokens - 1)
            self.state.leave(seq, state=DONE)
        gap = at - self._taken
        self._taken = at
        self._ahead = None
        _, emitted, joined, finished, tokens, prompts = flight
        return Step(at, emitted, 1, gap, joined, finished, tokens, (), prompts, at - self._host)

    def _complete_chunks(self) -> list[Seq]:
        joined = []
        for seq, chunk in self._chunks:
            if seq.state != RUNNING:
                continue
            seq.computed += chunk
            if seq.computed >= seq.tokens:
                self._prefilling.remove(seq)
                self._join(seq)
                joined.append(seq)
        self._chunks = []
        return joined

    def _join(self, seq: Seq) -> None:
        """Give a sequence its first token; if it wants more it decodes from the next step on."""
        seq.generated += 1
        seq.joined = self._done
        left = seq.work.output_tokens - seq.generated
        if left > 0:
            self._decoding[seq] = None
            self._snapshot = None
            self._context += seq.tokens
            self._last.setdefault(self._done + left, []).append(seq)
            self._watch_blocks(seq)

    def _watch_blocks(self, seq: Seq) -> None:
        """Note the step for which the sequence's tokens outgrow its blocks."""
        if self.state.pool is None:
            return
        room = (len(seq.held) + seq.anonymous) * self.config.block_size
        tokens = seq.work.prompt_tokens + self.generated_by(seq)
        # the next step, `_done + 1`, must hold `tokens`; each one after it holds one more
        self._boundary.setdefault(self._done + 2 + room - tokens, []).append(seq)

    def _settle(self, seq: Seq) -> None:
        """Take a sequence out of the decoding set and bring its count up to date."""
        tokens = self._done - seq.joined
        self._context -= seq.tokens + tokens
        seq.generated += tokens
        seq.last_token_at = self._taken
        del self._decoding[seq]
        self._snapshot = None

    def _withdraw(self, seq: Seq) -> None:
        """Take a running sequence out of the tables of this engine."""
        if seq in self._decoding:
            self._settle(seq)
        elif seq in self._ended:
            self._ended.discard(seq)
        else:
            self._prefilling.remove(seq)
            self._chunks = [entry for entry in self._chunks if entry[0] is not seq]

    # the start of a step

    def _form(self, now: float) -> None:
        """Put the next step together and launch it; without work the engine idles."""
        while self._arriving and self._arriving[0][0] <= now:
            self.state.requeue(heapq.heappop(self._arriving)[2])
            self.state.transferring = len(self._arriving)
        if not self.state.running and not self.state.waiting:
            return
        before = self.state.preemptions
        self._grow_decoding()
        budget = self.config.max_num_batched_tokens - len(self._decoding)
        if self._prefilling:
            budget = self._serve_prefilling(budget)
        if self.state.waiting and self.state.preemptions == before:
            self._admit(budget, now)
        if self._chunks or self._decoding:
            self._launch(now)

    def _grow_decoding(self) -> None:
        due = self._boundary.pop(self._done + 1, None)
        if due is None:
            return
        for seq in sorted(due, key=lambda s: s.admission):
            tokens = seq.work.prompt_tokens + self.generated_by(seq)
            if seq not in self._decoding or tokens <= (len(seq.held) + seq.anonymous) * self.config.block_size:
                continue  # it left, or was preempted and has blocks of its own again
            if self._make_room(seq, upto=tokens):
                self.state.cache(seq, computed=tokens - 1)
                seq.computed = tokens - 1
                self._watch_blocks(seq)

    def _make_room(self, seq: Seq, *, upto: int) -> bool:
        """Grow a running sequence, at the cost of those admitted last; False if it was itself the last."""
        state = self.state
        while not state.grow(seq, upto=upto):
            victim = max(self._preemptible(), key=lambda s: (s.order[0], s.admission))
            self._withdraw(victim)
            state.preempt(victim)
            if victim is seq:
                return False
        return True

    def _preemptible(self) -> Iterable[Seq]:
        ended = self._ended
        return [seq for seq in self.state.running if seq not in ended] if ended else self.state.running

    def _serve_prefilling(self, budget: int) -> int:
        """Give each prompt under way its next chunk; return what is left of the budget."""
        for seq in list(self._prefilling):
            chunk = min(seq.tokens - seq.computed, budget)
            if seq.state == RUNNING and chunk > 0 and self._make_room(seq, upto=seq.computed + chunk):
                budget -= self._schedule(seq, chunk)
        return budget

    def _schedule(self, seq: Seq, chunk: int) -> int:
        self.state.cache(seq, computed=seq.computed + chunk)
        self._chunks.append((seq, chunk))
        return chunk

    def _admit(self, budget: int, now: float) -> None:
        """Start waiting sequences while slots, budget and blocks last."""
        state = self.state
        while budget > 0 and state.waiting:
            index = state.next_waiting()
            if index is None:
                return
            seq = state.waiting[index]
            hits = state.lookup(seq)
            done = hits * self.config.block_size
            if seq.work.remote_tokens and not seq.preemptions:
                done = max(done, min(seq.work.remote_tokens, seq.tokens - 1))
            chunk = min(seq.tokens - done, budget)
            if not state.claim(seq, hits=hits, upto=done + chunk):
                return
            state.admit(index, now=max(now, seq.arrival))
            state.cache(seq, computed=done)
            seq.computed = done
            self._prefilling.append(seq)
            budget -= self._schedule(seq, chunk)

    def _launch(self, now: float) -> None:
        prefill = attention = 0
        for seq, chunk in self._chunks:
            prefill += chunk
            attention += chunk * (seq.computed + chunk // 2)
        decoding = len(self._decoding)
        self._batch_tokens = prefill + decoding
        batch = Batch(
            prefill, attention, decoding, self._context, len(self.state.running), len(self._chunks), chance=self._chance
        )
        ready, launched = self.latency.host_time(batch)
        self._host = now + launched * self.slowdown
        begins = max(self._gpu, now + ready * self.slowdown)
        self._gpu = max(begins + self.latency.step_time(batch) * self.slowdown, self._host)
        self._launched = True


class _Flight(NamedTuple):
    """What a step under way will put out, and when the GPU is done with it."""

    ends: float
    emitted: tuple[Seq, ...]
    joined: tuple[Seq, ...]
    finished: tuple[Seq, ...]
    tokens: int
    prompts: int

    def without(self, seq: Seq) -> "_Flight":
        """Return the same for everybody else."""
        emitted, joined, finished = (
            tuple(each for each in group if each is not seq) for group in (self.emitted, self.joined, self.finished)
        )
        return _Flight(self.ends, emitted, joined, finished, self.tokens, self.prompts)
