"""One simulated pod: an engine, its metrics, its adapters, and the timer that drives it in real time.

The pod gives the engine the clock and hands what comes out to the jobs. One timer per pod, set to the
engine's next wake; all that is due when it fires is written in that pass. A wake-up may be late by the loop's
granularity (a millisecond); deadlines are the engine's and absolute, so lateness never adds up.
"""

import asyncio
import sys
import time
import uuid
from collections.abc import Callable
from hashlib import sha1

from pointsman.core.errors import UserError
from pointsman.sim.engine.engine import ABORTED, DONE, Engine, EngineConfig, Seq, Step, Work
from pointsman.sim.engine.lanes import LaneEngine
from pointsman.sim.engine.latency import PacedModel
from pointsman.sim.engine.stepmodel import StepModel, StepsAndTransfers
from pointsman.sim.engine.steps import StepEngine
from pointsman.sim.jobs.job import Choice, Job
from pointsman.sim.pod import fakes, iterations
from pointsman.sim.pod.answers import Answers
from pointsman.sim.pod.metrics import Gauges, Metrics
from pointsman.sim.settings import Settings
from pointsman.sim.text import hashing
from pointsman.sim.text.dataset import Dataset
from pointsman.sim.text.prompts import Prompt

_URL = uuid.NAMESPACE_URL.bytes
GRAIN = 0.001  # seconds; the loop cannot wake more finely, and tokens due within it leave together


def build_engine(settings: Settings, *, step_model: StepModel | None, events: bool) -> Engine:
    """Return the engine that the settings ask for."""
    config = EngineConfig(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_loras=settings.max_loras,
        blocks=settings.kv_cache_size if settings.enable_kvcache else None,
        block_size=settings.block_size,
        seed=settings.seed,
        pipelined=settings.async_scheduling,
    )
    if step_model is not None:
        latency = StepsAndTransfers(step_model, settings.pace())
        return StepEngine(config, latency=latency, hasher=hashing.child, events=events)
    paced = PacedModel(settings.pace())
    return LaneEngine(config, latency=paced, hasher=hashing.child, events=events, catch_up=True)


def _metrics(settings: Settings) -> Metrics:
    return Metrics(
        model=settings.names[0],
        max_model_len=settings.max_model_len,
        block_size=settings.block_size,
        blocks=settings.kv_cache_size,
        max_loras=settings.max_loras,
        dialect=settings.metrics_dialect,
    )


def url_uuid(name: str) -> str:
    """Return UUID version 5 of the name in the URL namespace, without the detour over a UUID object."""
    digits = sha1(_URL + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


class Pod:
    """A simulated vLLM in one event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        port: int,
        rank: int = -1,
        step_model: StepModel | None = None,
        dataset: Dataset | None = None,
        clock: Callable[[], float] = time.monotonic,  # the loop's own is cut to milliseconds
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.port = port
        self.rank = rank  # data-parallel rank, -1 without
        self.wall = wall
        self.loop = asyncio.get_running_loop()
        self.clock = clock
        self.started = self.clock()
        listened = settings.zmq_endpoint or settings.kv_events_replay_endpoint
        events = settings.enable_kvcache and bool(listened)
        self.engine = build_engine(settings, step_model=step_model, events=events)
        self.metrics = _metrics(settings)
        self.loras = {module["name"]: str(module.get("path") or module["name"]) for module in settings.lora_modules}
        self.jobs: set[Job] = set()
        self.hung: set[Job] = set()  # taken on and never to be answered
        self.dataset = dataset
        self.answers = Answers()
        self.sleeping = False
        self.stopping = False
        logs = settings.enable_logging_iteration_details and settings.in_steps
        self._log = iterations.logger(sys.stdout, rank=rank, wall=wall) if logs else None
        self.on_blocks: Callable[[], None] | None = None  # called after the engine may have cached or evicted
        self._requests = 0
        self._timer: asyncio.TimerHandle | None = None
        self._wake: float | None = None
        self._pumping = False
        self._roots: dict[str, int] = {}
        self._lora_state: tuple[str, str] = ("", "")
        self._lora_changed = wall()
        self._fakes: tuple[fakes.Fakes, Metrics] | None = None  # and the page that shows them instead of ours
        self._frozen: bytes | None = None
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        """Take over settings that may change while serving; what runs keeps its deadlines.

        Raises UserError when they cannot be used, and changes nothing then.
        """
        fake = fakes.parse(settings.fake_metrics) if settings.fake_metrics is not None else None
        fakes.check_factors(settings.lie_metrics or {})
        if settings.in_steps != self.settings.in_steps:
            raise UserError("latency-calculator cannot change to or from step while serving: restart instead")
        frozen = (self._frozen or self.page()) if settings.freeze_metrics else None
        self.settings, self._frozen = settings, frozen
        self._fakes = None
        if fake is not None:
            self._fakes = fake, _metrics(settings)
            fake.fill(self._fakes[1])
        self.engine.slowdown = 1.0
        self.engine.set_pace(settings.pace())

    @property
    def load(self) -> int:
        """Sequences in the engine."""
        state = self.engine.state
        return len(state.running) + len(state.waiting) + state.transferring

    def next_id(self) -> str:
        """Return the next request id; the same seed gives the same ids in the same order."""
        self._requests += 1
        return url_uuid(f"{self.settings.seed}-{self.port}-{self._requests}")

    def root(self, model: str) -> int:
        """Return the parent of a model's first blocks."""
        known = self._roots.get(model)
        if known is None:
            known = self._roots[model] = hashing.root(model, seed=self.settings.hash_seed)
        return known

    @property
    def capacity(self) -> int | None:
        """Tokens that one sequence can have at most, prompt and output, before the blocks end; None without limit."""
        return self.settings.kv_cache_size * self.settings.block_size if self.settings.enable_kvcache else None

    def room_for(self, choices: int) -> bool:
        """Whether so many more sequences may run or wait."""
        limit = self.settings.max_num_seqs + self.settings.max_waiting_queue_length
        return self.load + choices <= limit

    def cached_share(self, prompt: Prompt, *, lora: str | None) -> float:
        """Return the share of a prompt's tokens that the cache holds."""
        pool, size = self.engine.state.pool, self.settings.block_size
        if pool is None or not prompt.count:
            return 0.0
        keys = prompt.keys(start=self.root(lora or self.settings.model), block_size=size)
        return pool.hits(keys, limit=len(keys)) * size / prompt.count

    def start(self, job: Job, *, remote: bool, priority: int) -> None:
        """Hand a job's choices to the engine, and write what comes out at once."""
        self.jobs.add(job)
        job.request.on_disconnect = lambda: self.abort(job)
        if job.spec.hangs:
            self.hung.add(job)
            return
        self.metrics.choices.observe(len(job.choices))
        if self._wake is not None or self.settings.slow_start_factor != 1.0:
            self._collect()
        now = self.clock()
        cached = self.settings.enable_kvcache
        for choice in job.choices:
            prompt = choice.prompt
            root = self.root(job.spec.lora or self.settings.model) if cached else 0
            work = Work(
                id=f"{job.spec.id}-{choice.index}",
                prompt_tokens=max(prompt.count, 1),
                output_tokens=choice.last,
                keys=prompt.keys(start=root, block_size=self.settings.block_size) if cached else (),
                lora=job.spec.lora,
                priority=priority,
                remote_tokens=prompt.count if remote else 0,
                root=root,
                prompt_ids=prompt.ids if cached else (),
                reply_ids=choice.reply_ids if cached else None,
                owner=choice,
            )
            choice.seq = self.engine.submit(work, now=now)
        self._pump()

    def _slowdown(self) -> float:
        """Return how much slower a pod that just started is; the factor fades to 1."""
        settings = self.settings
        if not settings.slow_start_duration:
            return 1.0
        left = 1.0 - (self.clock() - self.started) / settings.slow_start_duration
        return 1.0 + (settings.slow_start_factor - 1.0) * max(left, 0.0)

    def abort(self, job: Job) -> None:
        """Take a job out of the engine; its room is free at once."""
        job.close()
        self.jobs.discard(job)
        self.hung.discard(job)
        now = self.clock()
        self._collect()
        for choice in job.choices:
            seq = choice.seq
            if seq is not None and seq.state not in {DONE, ABORTED}:
                self.engine.abort(seq, now=now)
        self._pump()

    def clear_cache(self) -> None:
        """Forget all cached blocks that nobody uses, and say so."""
        self.engine.state.clear_cache()
        if self.on_blocks is not None:
            self.on_blocks()

    # driving the engine

    def _pump(self) -> None:
        self._collect()
        if self.on_blocks is not None:
            self.on_blocks()
        wake = self.engine.next_wake
        if wake == self._wake:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wake = wake
        self._timer = None
        if wake is not None:
            now = self.clock()
            self._timer = self.loop.call_later(max(wake - now, GRAIN), self._tick)

    def _tick(self) -> None:
        self._timer = self._wake = None
        self._pump()

    def _collect(self) -> None:
        if self._pumping:
            return  # a peer that vanished while we wrote to it: its abort comes through here again
        self._pumping = True
        if self.settings.slow_start_factor != 1.0:
            self.engine.slowdown = self._slowdown()
        try:
            for step in self.engine.advance(self.clock()):
                self._deliver(step)
        finally:
            self._pumping = False

    def _deliver(self, step: Step) -> None:
        self.metrics.step(step)
        if self._log is not None:
            self._log(step)
        each = step.each
        for seq in step.emitted:
            seq.work.owner.emit(each)
        for seq in step.finished:
            self._account(seq)

    def _account(self, seq: Seq) -> None:
        choice: Choice = seq.work.owner
        job = choice.job
        self.metrics.finished(seq, reason=choice.finish_reason, max_tokens=job.spec.max_tokens)
        if job.closed and job.choices:
            job.release()

    # what a scrape sees

    def gauges(self) -> Gauges:
        """Return what is true now, after everything that is due."""
        self._pump()
        state = self.engine.state
        running = ",".join(sorted(state.loras))
        waiting = ",".join(sorted({seq.work.lora for seq in state.waiting if seq.work.lora}))
        if (running, waiting) != self._lora_state:
            self._lora_state = running, waiting
            self._lora_changed = self.wall()
        queued = len(state.waiting) + state.transferring
        return Gauges(len(state.running), queued, state.usage, ((running, waiting, self._lora_changed),))

    def page(self) -> bytes:
        """Return the metrics page."""
        if self._frozen is not None:
            return self._frozen
        if self._fakes is not None:
            return self._fake_page(*self._fakes)
        state = self.engine.state
        gauges = fakes.lied(self.gauges(), self.settings.lie_metrics)
        counters: dict[str, float] = {
            "prefix_cache_hits_total": state.hit_tokens,
            "prefix_cache_queries_total": state.queried_tokens,
            "num_preemptions_total": state.preemptions,
        }
        return self.metrics.render(gauges, counters=counters)

    def _fake_page(self, fake: fakes.Fakes, metrics: Metrics) -> bytes:
        self._pump()
        interval = self.settings.fake_metrics_refresh_interval
        seconds = (self.clock() - self.started) // interval * interval
        gauges = fake.gauges(seconds=seconds, since=self._lora_changed)
        return metrics.render(fakes.lied(gauges, self.settings.lie_metrics), counters=fake.counters)
