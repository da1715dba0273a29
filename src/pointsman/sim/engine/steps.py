"""The engine in steps, as vLLM V1's scheduler makes them.

A step first serves what runs (one token for each decoding sequence, the next chunk for a prompt under way), then
admits from the waiting queue while sequences, tokens and blocks last. Prompts are cut into chunks to fit the budget.
If a running sequence finds no block, the one that was admitted last is preempted: it gives back everything, goes to
the front of the queue, and computes its prompt and output again. Nothing is admitted in a step that preempted.

With `pipelined`, a step is put together when the one before it *begins* (vLLM's async scheduling). So it knows only the
requests that were there by then, and slots that the running step frees are not free yet: each costs a new request one
step more. The tables are filled when the running step ends; nobody can tell, because nothing else may change a plan.

A decoding sequence is touched only when something happens to it. Its end and its next block are known in advance, so
they wait in tables by step number, and a step in which everybody just gets a token costs the same for 8 sequences as
for 256. `generated` of a decoding sequence is therefore brought up to date when it leaves; `generated_by` tells it.
"""

import heapq
from itertools import count

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
        self._done = 0  # steps completed
        self._ends: float | None = None  # of the step under way
        self._began = 0.0
        self._decoding: dict[Seq, None] = {}
        self._snapshot: tuple[Seq, ...] | None = None  # of _decoding, until it changes
        self._context = 0  # tokens that decoding sequences look back on
        self._prefilling: list[Seq] = []  # admitted, prompt not complete, in the order of admission
        self._chunks: list[tuple[Seq, int]] = []  # what the step under way computes of them
        self._last: dict[int, list[Seq]] = {}  # step -> sequences whose last token it makes
        self._boundary: dict[int, list[Seq]] = {}  # step -> sequences that need a block for it
        self._batch_tokens = 0
        self._freed = 0  # sequences that the step before finished
        self._arriving: list[tuple[float, int, Seq]] = []  # their KV blocks are under way from another engine
        self._ties = count()

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
        if self._ends is None:
            self._form(now, after=None)
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
        seq.finished_at = now

    @property
    def next_wake(self) -> float | None:
        """When the step under way ends, or the next transfer does."""
        if self._ends is not None:
            return self._ends
        return self._arriving[0][0] if self._arriving else None

    def generated_by(self, seq: Seq) -> int:
        """Return how many tokens the sequence has, also while it decodes."""
        return seq.generated + (self._done - seq.joined if seq in self._decoding else 0)

    def advance(self, now: float) -> list[Step]:
        """Finish every step that ends up to now, each followed at once by the next."""
        steps: list[Step] = []
        while (wake := self.next_wake) is not None and wake <= now:
            began = None
            if self._ends is not None:
                began = self._began
                steps.append(self._finish(wake))
            self._form(wake, after=began)
        return steps

    # the end of a step

    def _finish(self, at: float) -> Step:
        if self._snapshot is None:
            self._snapshot = tuple(self._decoding)
        emitted = self._snapshot
        self._done += 1
        self._context += len(emitted)
        finished = [
            seq
            for seq in self._last.pop(self._done, ())
            if seq in self._decoding and self.generated_by(seq) >= seq.work.output_tokens
        ]
        for seq in finished:
            self._settle(seq)
        joined = self._complete_chunks(at) if self._chunks else []
        finished += [seq for seq in joined if seq not in self._decoding]
        for seq in finished:
            seq.last_token_at = seq.finished_at = at
            self.state.cache(seq, computed=seq.tokens - 1)
            self.state.leave(seq, state=DONE)
        self._freed = len(finished)
        self._ends = None
        everyone = (*emitted, *joined) if joined else emitted
        gap = at - self._began
        return Step(at, everyone, 1, gap, tuple(joined), tuple(finished), self._batch_tokens)

    def _complete_chunks(self, at: float) -> list[Seq]:
        joined = []
        for seq, chunk in self._chunks:
            if seq.state != RUNNING:
                continue
            seq.computed += chunk
            if seq.computed >= seq.tokens:
                self._prefilling.remove(seq)
                self._join(seq, at)
                joined.append(seq)
        self._chunks = []
        return joined

    def _join(self, seq: Seq, at: float) -> None:
        """Give a sequence its first token; if it wants more it decodes from the next step on."""
        seq.generated += 1
        seq.joined = self._done
        if seq.first_token_at < 0:
            seq.first_token_at = at
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
        seq.last_token_at = self._began
        del self._decoding[seq]
        self._snapshot = None

    def _withdraw(self, seq: Seq) -> None:
        """Take a running sequence out of the tables of this engine."""
        if seq in self._decoding:
            self._settle(seq)
        else:
            self._prefilling.remove(seq)
            self._chunks = [entry for entry in self._chunks if entry[0] is not seq]

    # the start of a step

    def _form(self, now: float, *, after: float | None) -> None:
        """Put the next step together and set its end; without work the engine idles.

        `after` is when the step before it began, None if there was none.
        """
        while self._arriving and self._arriving[0][0] <= now:
            self.state.requeue(heapq.heappop(self._arriving)[2])
            self.state.transferring = len(self._arriving)
        if not self.state.running and not self.state.waiting:
            return
        before = self.state.preemptions
        self._grow_decoding()
        budget = self._serve_prefilling(self.config.max_num_batched_tokens - len(self._decoding))
        if self.state.preemptions == before:
            if self.config.pipelined and after is not None:
                self._admit(budget, after, seen=after, reserved=self._freed)
            if after is None or not self.config.pipelined or not (self._chunks or self._decoding):
                self._admit(budget, now)  # nothing was planned ahead, so everybody who is here now counts
        self._start(now)

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
            victim = max(state.running, key=lambda s: (s.order[0], s.admission))
            self._withdraw(victim)
            state.preempt(victim)
            if victim is seq:
                return False
        return True

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

    def _admit(self, budget: int, now: float, *, seen: float | None = None, reserved: int = 0) -> None:
        """Start waiting sequences while slots, budget and blocks last."""
        state = self.state
        while budget > 0 and state.waiting:
            index = state.next_waiting(seen=seen, reserved=reserved)
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

    def _start(self, now: float) -> None:
        prefill = sum(chunk for _, chunk in self._chunks)
        attention = sum(chunk * (seq.computed + chunk // 2) for seq, chunk in self._chunks)
        decoding = len(self._decoding)
        self._batch_tokens = prefill + decoding
        batch = Batch(prefill, attention, decoding, self._context, len(self.state.running))
        self._began = now
        self._ends = now + self.latency.step_time(batch) * self.slowdown
