"""Both engines under random workloads: nothing is lost, nothing is exceeded, time does not go back."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.sim.engine.engine import ABORTED, DONE, EngineConfig, Seq, Step, TooLarge, Work
from pointsman.sim.engine.lanes import LaneEngine
from pointsman.sim.engine.latency import Batch, Pace, PacedModel
from pointsman.sim.engine.stepmodel import StepModel
from pointsman.sim.engine.steps import StepEngine
from pointsman.sim.text import hashing

AnyEngine = LaneEngine | StepEngine
BLOCK = 4


@dataclass(frozen=True)
class Arrival:
    at: float
    prompt: int
    output: int
    family: int  # prompts of one family share their tokens
    lora: str | None
    priority: int
    abort_after: float | None
    remote: bool


arrivals = st.lists(
    st.builds(
        Arrival,
        at=st.floats(0, 2),
        prompt=st.integers(1, 40),
        output=st.integers(1, 30),
        family=st.integers(0, 2),
        lora=st.sampled_from([None, None, "a", "b", "c"]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        abort_after=st.one_of(st.none(), st.none(), st.floats(0, 0.5)),
        remote=st.booleans(),
    ),
    min_size=1,
    max_size=25,
)
configs = st.builds(
    EngineConfig,
    max_num_seqs=st.integers(1, 8),
    max_num_batched_tokens=st.integers(8, 40),
    max_loras=st.integers(1, 2),
    blocks=st.one_of(st.none(), st.integers(18, 60)),
    block_size=st.just(BLOCK),
    seed=st.integers(0, 3),
    pipelined=st.booleans(),
)


class RecordingModel(StepModel):
    seen: ClassVar[list[Batch]] = []

    def step_time(self, batch: Batch, /) -> float:
        self.seen.append(batch)
        return super().step_time(batch)


def build(config: EngineConfig, *, lockstep: bool, steady: bool = False) -> AnyEngine:
    if steady:
        return LaneEngine(config, latency=PacedModel(Pace(time_to_first_token=0.05, inter_token_latency=0.01)))
    if lockstep:
        model = RecordingModel(
            weights=0.005, token=0.0002, decode_seq=0.0001, launch_piecewise=0.008, prepare=0.001, transfer_token=0.001
        )
        RecordingModel.seen = []
        return StepEngine(config, latency=model, hasher=hashing.child, events=True)
    pace = Pace(
        time_to_first_token=0.05,
        time_to_first_token_std_dev=0.01,
        inter_token_latency=0.01,
        inter_token_latency_std_dev=0.002,
        kv_cache_transfer_time_per_token=0.001,
        time_factor_under_load=2.0,
        max_num_seqs=config.max_num_seqs,
    )
    return LaneEngine(config, latency=PacedModel(pace), hasher=hashing.child, events=True)


def work_of(arrival: Arrival, number: int) -> Work:
    prompt = [arrival.family * 1000 + i for i in range(arrival.prompt)]
    start = hashing.root(f"m{arrival.lora}")
    return Work(
        id=f"r{number}",
        prompt_tokens=arrival.prompt,
        output_tokens=arrival.output,
        keys=hashing.chain(prompt, start=start, block_size=BLOCK),
        lora=arrival.lora,
        priority=arrival.priority,
        remote_tokens=arrival.prompt if arrival.remote else 0,
        prompt_ids=prompt,
        root=start,
        reply_ids=lambda: range(5000, 5000 + arrival.output),
    )


class Run:
    """Drives an engine through a workload in virtual time and checks the invariants after every call."""

    def __init__(self, engine: AnyEngine, load: list[Arrival]) -> None:
        self.engine = engine
        self.steps: list[Step] = []
        self.seqs: list[Seq] = []
        self.tokens: dict[str, int] = {}
        calls = [(a.at, 0, i) for i, a in enumerate(load)]
        calls += [(a.at + a.abort_after, 1, i) for i, a in enumerate(load) if a.abort_after is not None]
        started: dict[int, Seq] = {}
        for at, kind, index in sorted(calls):
            self.collect(at)
            if kind == 0:
                started[index] = engine.submit(work_of(load[index], index), now=at)
                self.seqs.append(started[index])
            elif started[index].state not in {DONE, ABORTED}:
                engine.abort(started[index], now=at)
            self.check()
        for _ in range(20_000):
            wake = engine.next_wake
            if wake is None:
                break
            self.collect(wake)
        self.check()

    def collect(self, now: float) -> None:
        for step in self.engine.advance(now):
            assert step.time <= now
            assert not self.steps or step.time >= self.steps[-1].time
            self.steps.append(step)
            assert len(set(step.emitted)) == len(step.emitted)
            for seq in step.emitted:
                assert seq.arrival <= seq.scheduled_at <= step.time
                self.tokens[seq.work.id] = self.tokens.get(seq.work.id, 0) + step.each
        self.check()

    def check(self) -> None:
        state, config = self.engine.state, self.engine.config
        assert len(state.running) <= config.max_num_seqs
        assert len(state.loras) <= config.max_loras
        assert not set(state.waiting) & set(state.running)
        alive = [seq for seq in self.seqs if seq.state not in {DONE, ABORTED}]
        assert len(alive) == len(state.waiting) + len(state.running) + state.transferring
        if state.pool is not None:
            assert state.pool.used + state.pool.free == state.pool.size
            assert state.pool.used == len({k for s in state.running for k in s.held}) + sum(
                s.anonymous for s in state.running
            )
            assert 0.0 <= state.usage <= 1.0


@settings(max_examples=60)
@given(config=configs, load=arrivals, lockstep=st.booleans())
def test_every_request_ends_once_with_all_its_tokens(config: EngineConfig, load: list[Arrival], lockstep: bool) -> None:
    run = Run(build(config, lockstep=lockstep), load)
    assert len(run.seqs) == len(load)
    finished = [seq for step in run.steps for seq in step.finished]
    assert len(finished) == len(set(finished))
    for seq in run.seqs:
        if seq.state == ABORTED:
            assert seq not in finished
            continue
        assert seq.state == DONE and seq in finished
        assert run.tokens[seq.work.id] == seq.work.output_tokens == seq.generated
        assert seq.arrival <= seq.scheduled_at <= seq.first_token_at <= seq.last_token_at == seq.finished_at
    state = run.engine.state
    assert not state.running and not state.waiting and not state.loras
    assert state.pool is None or state.pool.used == 0
    if lockstep:
        for batch in RecordingModel.seen:
            assert 0 < batch.prefill_tokens + batch.decode_seqs <= config.max_num_batched_tokens
            assert batch.running <= config.max_num_seqs


@settings(max_examples=30)
@given(config=configs, load=arrivals, lockstep=st.booleans())
def test_the_same_seed_gives_the_same_times(config: EngineConfig, load: list[Arrival], lockstep: bool) -> None:
    def trace() -> list[tuple[float, list[str], int]]:
        run = Run(build(config, lockstep=lockstep), load)
        return [(step.time, [seq.work.id for seq in step.emitted], step.each) for step in run.steps]

    assert trace() == trace()


@settings(max_examples=60)
@given(config=configs, load=arrivals, lockstep=st.booleans())
def test_block_events_tell_what_is_cached(config: EngineConfig, load: list[Arrival], lockstep: bool) -> None:
    run = Run(build(config, lockstep=lockstep), load)
    events = run.engine.state.events
    assert events is not None
    cached: set[int] = set()
    for event in events:
        match event:
            case (list() as keys, parent, tokens, _):
                assert not cached & set(keys)
                assert len(tokens) == len(keys) * BLOCK
                at = parent
                for number, key in enumerate(keys):
                    block = tuple(tokens[number * BLOCK : (number + 1) * BLOCK])
                    assert at is None or hashing.child(at, block) == key
                    at = key
                cached |= set(keys)
            case (int() as key,):
                cached.remove(key)
    pool = run.engine.state.pool
    if pool is not None:
        assert all(pool.hits([key], limit=1) for key in cached)


def test_a_sequence_larger_than_the_cache_is_refused_at_once() -> None:
    engine = build(EngineConfig(blocks=4, block_size=BLOCK), lockstep=True)
    with pytest.raises(TooLarge, match="5 KV blocks and the cache has 4"):
        engine.submit(Work(id="a", prompt_tokens=10, output_tokens=7), now=0.0)


def test_a_second_prompt_finds_the_blocks_of_the_first() -> None:
    engine = build(EngineConfig(blocks=40, block_size=BLOCK), lockstep=True)
    arrival = Arrival(0.0, 17, 9, 0, None, 0, None, False)
    first = engine.submit(work_of(arrival, 0), now=0.0)
    while (wake := engine.next_wake) is not None:
        engine.advance(wake)
    second = engine.submit(work_of(arrival, 1), now=9.0)
    assert (first.cached_tokens, second.cached_tokens) == (0, 16)
    assert (engine.state.queried_tokens, engine.state.hit_tokens) == (34, 16)
    follow_up = [*work_of(arrival, 0).prompt_ids, *range(5000, 5009), 1]
    keys = hashing.chain(follow_up, start=hashing.root("mNone"), block_size=BLOCK)
    third = Work(id="r2", prompt_tokens=27, output_tokens=1, keys=keys, prompt_ids=follow_up)
    assert engine.submit(third, now=9.0).state == "waiting"
    while (wake := engine.next_wake) is not None:
        engine.advance(wake)
    assert engine.state.hit_tokens == 16 + 24  # the answer's full blocks are cached as well


def test_when_blocks_run_out_the_last_admitted_gives_way_and_still_finishes() -> None:
    engine = build(EngineConfig(blocks=10, block_size=BLOCK, max_num_batched_tokens=64), lockstep=True)
    seqs = [engine.submit(Work(id=str(i), prompt_tokens=15, output_tokens=20), now=0.0) for i in range(2)]
    while (wake := engine.next_wake) is not None:
        engine.advance(wake)
    assert engine.state.preemptions >= 1
    assert seqs[0].preemptions == 0 and seqs[1].preemptions >= 1
    assert [seq.generated for seq in seqs] == [20, 20]
    assert seqs[0].finished_at < seqs[1].finished_at


def test_paced_tokens_keep_absolute_deadlines_however_late_the_driver_wakes() -> None:
    pace = Pace(time_to_first_token=0.2, inter_token_latency=0.02)
    engine = LaneEngine(EngineConfig(), latency=PacedModel(pace))
    engine.submit(Work(id="a", prompt_tokens=1, output_tokens=50), now=1.0)
    times: list[float] = []
    now = 1.0
    while engine.next_wake is not None:
        now = engine.next_wake + 0.007  # every wake-up is late
        times += [step.time for step in engine.advance(now)]
    assert times == pytest.approx([1.2 + 0.02 * i for i in range(50)])


@settings(max_examples=50)
@given(load=arrivals, strides=st.floats(0.001, 0.1), catch_up=st.booleans())
def test_steady_lanes_keep_every_deadline_whoever_shares_a_step(
    load: list[Arrival], strides: float, catch_up: bool
) -> None:
    config = EngineConfig(max_num_seqs=100, max_loras=3)
    Run(build(config, lockstep=False, steady=True), load)  # the invariants
    pace = Pace(time_to_first_token=0.05, inter_token_latency=0.01)
    engine = LaneEngine(config, latency=PacedModel(pace), catch_up=catch_up)
    for number, arrival in enumerate(load):
        engine.submit(work_of(arrival, number), now=0.001 * number)
    seen: dict[str, list[float]] = {}
    now = 0.0
    while engine.next_wake is not None:
        now += strides
        for step in engine.advance(now):
            assert step.each == 1 or catch_up
            assert not step.times or step.time == max(step.times)
            for seq, at in zip(step.emitted, step.times or [step.time] * len(step.emitted), strict=True):
                assert at <= now + 1e-9
                seen.setdefault(seq.work.id, []).extend(at - 0.01 * i for i in reversed(range(step.each)))
    for number, arrival in enumerate(load):
        first = 0.001 * number + (0.0 if arrival.remote else 0.05)
        assert seen[f"r{number}"] == pytest.approx([first + 0.01 * i for i in range(arrival.output)])


def test_a_late_driver_gets_a_sequences_tokens_together() -> None:
    pace = PacedModel(Pace(inter_token_latency=0.01))
    engine = LaneEngine(EngineConfig(), latency=pace, catch_up=True)
    engine.submit(Work(id="a", prompt_tokens=1, output_tokens=100), now=0.0)
    engine.advance(0.0)
    (step,) = engine.advance(0.055)
    assert (step.each, round(step.time, 6)) == (5, 0.05)
    assert engine.next_wake == pytest.approx(0.06)
    assert [step.each for step in engine.advance(2.0)] == [93, 1]  # the last one comes on its own


def test_a_new_pace_begins_with_the_next_token() -> None:
    engine = LaneEngine(EngineConfig(), latency=PacedModel(Pace(inter_token_latency=1.0)))
    for name in "ab":
        engine.submit(Work(id=name, prompt_tokens=1, output_tokens=4), now=0.0)
    engine.advance(0.0)
    engine.latency = PacedModel(Pace(inter_token_latency=0.25))
    times = []
    while (wake := engine.next_wake) is not None:
        times += [wake] * sum(len(step.emitted) for step in engine.advance(wake))
    assert times == [1.0, 1.0, 1.25, 1.25, 1.5, 1.5]


def test_without_gaps_a_whole_sequence_is_one_step() -> None:
    engine = LaneEngine(EngineConfig(), latency=PacedModel(Pace()))
    engine.submit(Work(id="a", prompt_tokens=1, output_tokens=50), now=1.0)
    assert [(step.time, step.each) for step in engine.advance(1.0)] == [(1.0, 50)]
