"""The engine without a shared step: every running sequence has its own lane and its own next deadline.

This is how llm-d-inference-sim behaves: a sequence takes its time to first token, then its time between tokens,
whatever the others do (but for the load factor). Deadlines are absolute: a token is due one gap after the token
before was *due*, not after it was sent, so a late wake-up delays one token and not all that follow.
Tokens of many sequences that fall due between two wake-ups come out together, as one step; and so do those of one
sequence, for a server that is behind by more than a gap (`catch_up`): else it could never catch up.
Where the gap is zero a whole sequence is one step.
"""

import heapq
from collections import deque
from itertools import count

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
from pointsman.sim.engine.latency import Batch, Pace, PacedModel


class LaneEngine:
    """Sequences paced one by one."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        latency: PacedModel,
        hasher: Hasher | None = None,
        events: bool = False,
        catch_up: bool = False,
    ) -> None:
        self.config = config
        self.latency = latency
        self.catch_up = catch_up  # a late driver wants a sequence's tokens together, not each at its time
        self.slowdown = 1.0  # set by the driver; a factor on everything that begins from now on
        self.state = EngineState(config, hasher=hasher, events=events)
        self._due: list[tuple[float, int, int, Seq]] = []  # deadline, tie-break, admission it was set for
        self._ties = count()
        self._rolling: deque[Seq] = deque()  # in the order of their deadlines, all `_gap` apart from the next
        self._gap: float | None = None

    def set_pace(self, pace: Pace) -> None:
        """Take another pace for everything that begins from now on."""
        self.latency = PacedModel(pace)

    def submit(self, work: Work, *, now: float) -> Seq:
        """Queue the work, and start it if there is room."""
        chance = Chance(self.config.seed, work.id, "latency") if self.latency.varies else None
        seq = self.state.enqueue(work, now=now, chance=chance)
        self._admit(now)
        return seq

    def abort(self, seq: Seq, *, now: float) -> None:
        """Forget the sequence wherever it is; its room is free at once."""
        if seq.state == RUNNING:
            self.state.leave(seq, state=ABORTED)
            self._admit(now)
        elif seq.state == WAITING:
            self.state.waiting.remove(seq)
            seq.state = ABORTED
        seq.finished_at = now

    @property
    def next_wake(self) -> float | None:
        """When the next token is due."""
        due, rolling = self._due, self._rolling
        while due and (due[0][3].state != RUNNING or due[0][3].admission != due[0][2]):
            heapq.heappop(due)  # aborted or preempted meanwhile
        while rolling and rolling[0].state != RUNNING:
            rolling.popleft()
        if not rolling or (due and due[0][0] < rolling[0].deadline):
            return due[0][0] if due else None
        return rolling[0].deadline

    def advance(self, now: float) -> list[Step]:
        """Return the tokens due up to now, in the order of their deadlines."""
        steps: list[Step] = []
        self._keep_pace()
        while (wake := self.next_wake) is not None and wake <= now:
            due, rolling = self._due, self._rolling
            if rolling and rolling[0].deadline == wake:
                steps += self._roll(min(now, due[0][0]) if due else now)
            else:
                steps.append(self._emit(heapq.heappop(due)[3], wake))
        return steps

    def _keep_pace(self) -> None:
        """Note the time between tokens where it is the same for all and no blocks need care, else None.

        With such a gap, what was due first is due first again: those in the middle of their answer need no heap.
        """
        calm = self.state.pool is None and self.slowdown == 1.0
        gap = self.latency.steady if calm else None
        if gap != self._gap:
            for seq in self._rolling:
                heapq.heappush(self._due, (seq.deadline, next(self._ties), seq.admission, seq))
            self._rolling.clear()
            self._gap = gap

    def _roll(self, until: float) -> list[Step]:
        """Give everybody in the middle of an answer the token that is due by then.

        One token each; several, where the driver is late by more than a gap and wants to catch up.
        """
        rolling, gap = self._rolling, self._gap
        assert gap is not None
        first = rolling[0].deadline
        each = 1 + int((until - first) / gap) if self.catch_up else 1
        due = max(until - (each - 1) * gap, first)
        ahead: list[Seq] = []
        while rolling and rolling[0].deadline <= due:
            ahead.append(rolling.popleft())
        behind: list[Seq] = []
        if each > 1:  # the others are less than a gap behind the first, so they are due as well, with one token less
            behind = list(rolling)
            rolling.clear()
        return [*self._give(behind, each - 1, gap=gap), *self._give(ahead, each, gap=gap)]  # now these are due first

    def _give(self, seqs: list[Seq], each: int, *, gap: float) -> list[Step]:
        """Give sequences so many tokens, or fewer where they come to their last one: that one is not for us."""
        grouped: dict[int, tuple[list[Seq], list[float]]] = {}
        for seq in seqs:
            if seq.state != RUNNING:
                continue
            count = min(each, seq.work.output_tokens - 1 - seq.generated)
            seq.last_token_at = at = seq.deadline + (count - 1) * gap
            seq.deadline = at + gap
            seq.generated += count
            emitted, times = grouped.get(count) or grouped.setdefault(count, ([], []))
            emitted.append(seq)
            times.append(at)
            if seq.generated + 1 < seq.work.output_tokens:
                self._rolling.append(seq)
            else:
                heapq.heappush(self._due, (at + gap, next(self._ties), seq.admission, seq))
        return [Step(times[-1], emitted, count, gap, times=times) for count, (emitted, times) in grouped.items()]

    def _emit(self, seq: Seq, at: float) -> Step:
        joined = seq.joined != seq.admission
        seq.joined = seq.admission
        left = seq.work.output_tokens - seq.generated
        # Blocks must grow one by one where they are limited; otherwise a zero gap needs no step per token.
        tokens = left if self.latency.steady == 0.0 and self.state.pool is None else min(left, 1)
        gap = 0.0 if tokens > 1 else at - seq.last_token_at
        if joined:
            seq.computed = seq.tokens
        seq.generated += tokens
        if seq.first_token_at < 0:
            seq.first_token_at = at
        seq.last_token_at = at
        done = seq.generated >= seq.work.output_tokens
        if done:
            seq.finished_at = at
            self.state.cache(seq, computed=seq.tokens - 1)
            self.state.leave(seq, state=DONE)
            self._admit(at)
        else:
            self._continue(seq, at)
        marked = (seq,)
        return Step(at, marked, tokens, gap, marked if joined else (), marked if done else ())

    def _continue(self, seq: Seq, at: float) -> None:
        if self.state.pool is not None and not self._grow(seq):
            return
        if self._gap is not None and seq.generated + 1 < seq.work.output_tokens:
            seq.deadline = at + self._gap
            self._rolling.append(seq)
            return
        steady = self.latency.steady
        if steady is None:
            steady = self.latency.step_time(Batch(decode_seqs=1, running=len(self.state.running), chance=seq.chance))
        heapq.heappush(self._due, (at + steady * self.slowdown, next(self._ties), seq.admission, seq))

    def _grow(self, seq: Seq) -> bool:
        """Find room for one more token, at the cost of those that came last; False if that was the sequence itself."""
        state = self.state
        while not state.grow(seq, upto=seq.tokens):
            victim = max(state.running, key=lambda s: (s.order[0], s.admission))
            state.preempt(victim)
            if victim is seq:
                return False
        state.cache(seq, computed=seq.tokens - 1)
        seq.computed = seq.tokens - 1
        return True

    def _admit(self, now: float) -> None:
        state = self.state
        while state.waiting:
            index = state.next_waiting()
            if index is None:
                return
            if state.pool is not None:
                seq = state.waiting[index]
                if not state.claim(seq, hits=state.lookup(seq), upto=seq.tokens):
                    return
            seq = state.admit(index, now=now)
            if state.pool is not None:
                state.cache(seq, computed=seq.tokens)
            self._start(seq, now)

    def _start(self, seq: Seq, now: float) -> None:
        work, when = seq.work, now
        if work.remote_tokens or not self.latency.free:
            batch = Batch(
                prefill_tokens=seq.tokens - seq.computed,
                running=len(self.state.running),
                remote_tokens=work.remote_tokens,
                chance=seq.chance,
            )
            when += self.latency.step_time(batch) * self.slowdown
        heapq.heappush(self._due, (when, next(self._ties), seq.admission, seq))
