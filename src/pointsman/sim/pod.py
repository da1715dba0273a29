"""One simulated pod: an engine, its metrics, its adapters, and the timer that drives it in real time.

The pod gives the engine the loop's clock and hands what comes out to the jobs. One timer per pod, set to the
engine's next wake; all that is due when it fires is written in that pass. A wake-up may be late by the loop's
granularity (a millisecond); deadlines are the engine's and absolute, so lateness never adds up.
"""

import asyncio
import time
import uuid
from collections.abc import Callable

from pointsman.sim import hashing
from pointsman.sim.engine import ABORTED, DONE, EngineConfig, Seq, Step, Work
from pointsman.sim.jobs import Choice, Job
from pointsman.sim.lanes import LaneEngine
from pointsman.sim.latency import PacedModel, StepModel
from pointsman.sim.metrics import Gauges, Metrics
from pointsman.sim.settings import Settings
from pointsman.sim.steps import StepEngine

GRAIN = 0.001  # seconds; the loop cannot wake more finely, and tokens due within it leave together


def build_engine(settings: Settings, *, step_model: StepModel | None, events: bool) -> LaneEngine | StepEngine:
    """Return the engine that the settings ask for."""
    config = EngineConfig(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_loras=settings.max_loras,
        blocks=settings.kv_cache_size if settings.enable_kvcache else None,
        block_size=settings.block_size,
        seed=settings.seed,
    )
    if step_model is not None:
        return StepEngine(config, latency=step_model, hasher=hashing.child, events=events)
    return LaneEngine(config, latency=PacedModel(settings.pace()), hasher=hashing.child, events=events)


class Pod:
    """A simulated vLLM in one event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        port: int,
        step_model: StepModel | None = None,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.port = port
        self.wall = wall
        self.loop = asyncio.get_running_loop()
        self.clock = clock or self.loop.time
        self.started = self.clock()
        self.engine = build_engine(settings, step_model=step_model, events=settings.enable_kvcache)
        self.metrics = Metrics(
            model=settings.names[0],
            max_model_len=settings.max_model_len,
            block_size=settings.block_size,
            blocks=settings.kv_cache_size,
            max_loras=settings.max_loras,
            dialect=settings.metrics_dialect,
        )
        self.loras = {module["name"]: str(module.get("path") or module["name"]) for module in settings.lora_modules}
        self.jobs: set[Job] = set()
        self.stopping = False
        self.on_blocks: Callable[[], None] | None = None  # called after the engine may have cached or evicted
        self._requests = 0
        self._timer: asyncio.TimerHandle | None = None
        self._wake: float | None = None
        self._pumping = False
        self._roots: dict[str, int] = {}
        self._lora_state: tuple[str, str] = ("", "")
        self._lora_changed = wall()

    @property
    def load(self) -> int:
        """Sequences in the engine."""
        return len(self.engine.books.running) + len(self.engine.books.waiting)

    def next_id(self) -> str:
        """Return the next request id; the same seed gives the same ids in the same order."""
        self._requests += 1
        name = f"{self.settings.seed}-{self.port}-{self._requests}"
        return str(uuid.uuid5(uuid.NAMESPACE_URL, name))

    def root(self, model: str) -> int:
        """Return the parent of a model's first blocks."""
        known = self._roots.get(model)
        if known is None:
            known = self._roots[model] = hashing.root(model, seed=self.settings.hash_seed)
        return known

    def room_for(self, choices: int) -> bool:
        """Whether so many more sequences may run or wait."""
        limit = self.settings.max_num_seqs + self.settings.max_waiting_queue_length
        return self.load + choices <= limit

    def start(self, job: Job, *, remote: bool, priority: int) -> None:
        """Hand a job's choices to the engine, and write what comes out at once."""
        self.jobs.add(job)
        job.done = self.jobs.discard
        job.request.on_disconnect = lambda: self.abort(job)
        self._collect()
        now = self.clock()
        cached = self.settings.enable_kvcache
        for choice in job.choices:
            prompt = choice.prompt
            root = self.root(job.lora or self.settings.model) if cached else 0
            work = Work(
                id=f"{job.id}-{choice.index}",
                prompt_tokens=max(prompt.count, 1),
                output_tokens=choice.last,
                keys=prompt.keys(start=root, block_size=self.settings.block_size) if cached else (),
                lora=job.lora,
                priority=priority,
                remote_tokens=prompt.count if remote else 0,
                prompt_ids=prompt.ids if cached else (),
                output_ids=choice.answer.ids if cached else (),
                owner=choice,
            )
            choice.seq = self.engine.submit(work, now=now)
        self._pump()

    def abort(self, job: Job) -> None:
        """Take a job out of the engine; its room is free at once."""
        job.closed = True
        self.jobs.discard(job)
        now = self.clock()
        self._collect()
        for choice in job.choices:
            seq = choice.seq
            if seq is not None and seq.state not in {DONE, ABORTED}:
                self.engine.abort(seq, now=now)
        self._pump()

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
        try:
            for step in self.engine.advance(self.clock()):
                self._deliver(step)
        finally:
            self._pumping = False

    def _deliver(self, step: Step) -> None:
        self.metrics.step(step)
        each = step.each
        for seq in step.emitted:
            choice = seq.work.owner
            assert isinstance(choice, Choice)
            choice.job.emit(choice, each)
        for seq in step.finished:
            self._account(seq)

    def _account(self, seq: Seq) -> None:
        choice = seq.work.owner
        assert isinstance(choice, Choice)
        self.metrics.finished(seq, reason=choice.finish_reason, max_tokens=choice.job.max_tokens)

    # what a scrape sees

    def gauges(self) -> Gauges:
        """Return what is true now, after everything that is due."""
        self._pump()
        books = self.engine.books
        running = ",".join(sorted(books.loras))
        waiting = ",".join(sorted({seq.work.lora for seq in books.waiting if seq.work.lora}))
        if (running, waiting) != self._lora_state:
            self._lora_state = running, waiting
            self._lora_changed = self.wall()
        return Gauges(len(books.running), len(books.waiting), books.usage, running, waiting, self._lora_changed)

    def page(self) -> bytes:
        """Return the metrics page."""
        books = self.engine.books
        gauges = self.gauges()
        counters = {
            "prefix_cache_hits_total": books.hit_tokens,
            "prefix_cache_queries_total": books.queried_tokens,
            "num_preemptions_total": books.preemptions,
        }
        return self.metrics.render(gauges, counters=counters)
