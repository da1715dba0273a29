"""What every engine shares: sequences, the waiting queue, adapter slots, blocks: its state.

An engine is clock-free and does no I/O. `submit` and `abort` change it, `advance(now)` returns what happened up to
now as `Step`s with exact times, and `next_wake` says when something will happen next. The server drives it with the
wall clock, the lab with a virtual one; neither can tell the engine what time it is other than through these calls.
`lanes` paces each sequence on its own, `steps` runs batches as vLLM V1 does; both are an `Engine`.

Invariants: a sequence is in exactly one place (waiting, running, done); blocks are conserved; at most `max_num_seqs`
run, of at most `max_loras` adapters; times never go back.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from pointsman.core.errors import PointsmanError
from pointsman.sim.engine.blocks import BlockPool
from pointsman.sim.engine.chance import Chance
from pointsman.sim.engine.latency import Pace

Hasher = Callable[[int, tuple[int, ...]], int]
"""(key of the block before, tokens of this block) -> key of this block."""


WAITING, RUNNING, DONE, ABORTED = "waiting", "running", "done", "aborted"


class TooLarge(PointsmanError):
    """A sequence that could not run even if it had the engine to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The size of an engine. Without `blocks` it has as many as it needs and caches nothing."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_loras: int = 1
    blocks: int | None = None
    block_size: int = 16
    seed: int = 0
    whole_prompts: bool = True  # a prompt starts when all of it fits, not its first part (vLLM's default)
    pipelined: bool = False  # steps are put together while the one before runs (vLLM's async scheduling)


class Work(Struct, frozen=True):
    """One sequence to generate, as the caller describes it."""

    id: str
    prompt_tokens: int
    output_tokens: int
    keys: Sequence[int] = ()  # of the prompt's full blocks
    lora: str | None = None
    priority: int = 0  # lower runs first, as in vLLM
    remote_tokens: int = 0  # prompt tokens that another engine has computed
    root: int = 0  # the parent of its first block
    prompt_ids: Sequence[int] = ()
    # What follows the prompt when a later one repeats both: with it, generated blocks are cached too. Asked for when
    # such a block is full, because most answers are shorter.
    reply_ids: Callable[[], Sequence[int]] | None = None
    owner: Any = None  # the caller's, never looked at


class Seq:
    """One sequence inside an engine. Everything but `work` belongs to the engine."""

    __slots__ = (
        "admission",
        "anonymous",
        "arrival",
        "cached_tokens",
        "chance",
        "computed",
        "deadline",
        "finished_at",
        "first_token_at",
        "generated",
        "held",
        "ids",
        "joined",
        "keys",
        "last_token_at",
        "order",
        "preemptions",
        "scheduled_at",
        "state",
        "work",
    )

    def __init__(self, work: Work, *, arrival: float, order: tuple[int, int], chance: Chance | None) -> None:
        self.work = work
        self.arrival = arrival
        self.order = order  # (priority, number of submission)
        self.chance = chance
        self.state = WAITING
        self.keys: list[int] = list(work.keys)
        self.held: list[int] = []
        self.ids: Sequence[int] = work.prompt_ids  # of the tokens that have keys, or may get them
        self.anonymous = 0
        self.computed = 0
        self.generated = 0
        self.cached_tokens = 0
        self.preemptions = 0
        self.admission = -1
        self.joined = 0
        self.deadline = 0.0
        self.scheduled_at = -1.0
        self.first_token_at = -1.0
        self.last_token_at = -1.0
        self.finished_at = -1.0

    @property
    def tokens(self) -> int:
        """Prompt and output so far."""
        return self.work.prompt_tokens + self.generated

    def __lt__(self, other: "Seq") -> bool:
        return self.order < other.order


class Step(Struct, frozen=True):
    """What came out at one moment: `each` tokens for each sequence in `emitted`.

    Where sequences run on their own, those that just go on share a step although their moments differ: `time` is the
    last of them then, and `times` has the moment of each one's last token.
    """

    time: float
    emitted: Sequence[Seq]
    each: int = 1
    gap: float = 0.0  # since the token before, for those not in `joined`
    joined: tuple[Seq, ...] = ()  # of the emitted, those with their first token after (re)computing the prompt
    finished: tuple[Seq, ...] = ()
    batch_tokens: int = 0  # computed in the step, prompt and output; 0 where there are no shared steps
    times: Sequence[float] = ()
    prompts: int = 0  # that had tokens in the step
    waited: float = 0.0  # seconds that the host, done with its own work, waited for the step


class BlockStored(NamedTuple):
    """Blocks that became cached."""

    keys: list[int]
    parent: int | None
    tokens: list[int]
    lora: str | None


class BlockRemoved(NamedTuple):
    """A cached block that was evicted."""

    key: int


class AllBlocksCleared(NamedTuple):
    """The cache was reset."""


BlockEvent = BlockStored | BlockRemoved | AllBlocksCleared


class Engine(Protocol):
    """What drivers need of an engine. Call `advance(now)` before `submit` or `abort` at the same moment."""

    state: "EngineState"
    slowdown: float

    def submit(self, work: Work, *, now: float) -> Seq: ...
    def abort(self, seq: Seq, *, now: float) -> None: ...
    def advance(self, now: float) -> list[Step]: ...
    def set_pace(self, pace: Pace) -> None: ...
    @property
    def next_wake(self) -> float | None: ...


class EngineState:
    """Waiting queue, running set, adapter slots and blocks of one engine; shared by both kinds."""

    def __init__(self, config: EngineConfig, *, hasher: Hasher | None = None, events: bool = False) -> None:
        self.config = config
        self.events: list[BlockEvent] | None = [] if events else None
        self.pool = BlockPool(config.blocks, removed=self._removed) if config.blocks is not None else None
        self.hasher = hasher
        self.waiting: list[Seq] = []
        self.running: dict[Seq, None] = {}
        self.loras: Counter[str] = Counter()  # adapters of running sequences
        self.transferring = 0  # sequences that wait for KV blocks from another engine
        self.preemptions = 0
        self.queried_tokens = 0
        self.hit_tokens = 0
        self._submitted = 0
        self._admitted = 0

    # queue

    def enqueue(self, work: Work, *, now: float, chance: Chance | None) -> Seq:
        """Put new work behind everything of its priority.

        Raises TooLarge when all blocks together could not hold it.
        """
        total = -(-(work.prompt_tokens + work.output_tokens) // self.config.block_size)
        if self.pool is not None and total > self.pool.size:
            raise TooLarge(f"the sequence needs {total} KV blocks and the cache has {self.pool.size}")
        self._submitted += 1
        seq = Seq(work, arrival=now, order=(work.priority, self._submitted), chance=chance)
        if self.waiting and seq < self.waiting[-1]:
            insort(self.waiting, seq)
        else:
            self.waiting.append(seq)
        return seq

    def requeue(self, seq: Seq) -> None:
        """Put a preempted sequence back, before everything that came after it."""
        seq.state = WAITING
        insort(self.waiting, seq)

    def next_waiting(self) -> int | None:
        """Return the index of the first sequence that may start, its adapter having or getting a slot."""
        if len(self.running) >= self.config.max_num_seqs:
            return None
        full = len(self.loras) >= self.config.max_loras
        for index, seq in enumerate(self.waiting):
            lora = seq.work.lora
            if lora is None or lora in self.loras or not full:
                return index
        return None

    def admit(self, index: int, *, now: float) -> Seq:
        """Move a sequence from waiting to running."""
        seq = self.waiting.pop(index)
        self._admitted += 1
        seq.admission = self._admitted
        seq.state = RUNNING
        if seq.scheduled_at < 0:
            seq.scheduled_at = now
        self.running[seq] = None
        if seq.work.lora is not None:
            self.loras[seq.work.lora] += 1
        return seq

    def leave(self, seq: Seq, *, state: str) -> None:
        """Take a sequence out of the running set and give back all that it holds."""
        del self.running[seq]
        seq.state = state
        lora = seq.work.lora
        if lora is not None:
            self.loras[lora] -= 1
            if not self.loras[lora]:
                del self.loras[lora]
        if self.pool is not None:
            self.pool.release(seq.held, anonymous=seq.anonymous)
            seq.held, seq.anonymous = [], 0

    def preempt(self, seq: Seq) -> None:
        """Take everything from a running sequence; it computes its prompt and output again later."""
        self.leave(seq, state=WAITING)
        seq.computed = 0
        seq.preemptions += 1
        self.preemptions += 1
        self.requeue(seq)

    # blocks

    def lookup(self, seq: Seq) -> int:
        """Return how many leading blocks of a waiting sequence are cached; its last token is never among them."""
        if self.pool is None:
            return 0
        return self.pool.hits(seq.keys, limit=(seq.tokens - 1) // self.config.block_size)

    def claim(self, seq: Seq, *, hits: int, upto: int) -> bool:
        """Give a waiting sequence its cached blocks and blocks for `upto` tokens; False when these are not free."""
        pool = self.pool
        if pool is None:
            return True
        hit = seq.keys[:hits]
        new = -(-upto // self.config.block_size) - hits
        whole = -(-seq.tokens // self.config.block_size) - hits if self.config.whole_prompts else new
        if not pool.fits(hit, new=whole):
            return False
        pool.pin(hit)
        pool.take(new)
        seq.held, seq.anonymous = hit, new
        if seq.preemptions == 0:
            self.queried_tokens += seq.tokens
            self.hit_tokens += hits * self.config.block_size
            seq.cached_tokens = hits * self.config.block_size
        seq.computed = hits * self.config.block_size
        return True

    def grow(self, seq: Seq, *, upto: int) -> bool:
        """Give a running sequence blocks for `upto` tokens; False when these are not free."""
        if self.pool is None:
            return True
        missing = -(-upto // self.config.block_size) - len(seq.held) - seq.anonymous
        if missing <= 0:
            return True
        if missing > self.pool.free:
            return False
        self.pool.take(missing)
        seq.anonymous += missing
        return True

    def cache(self, seq: Seq, *, computed: int) -> None:
        """Name the blocks that are full once `computed` tokens are there, so that others can share them."""
        pool = self.pool
        if pool is None or not (seq.keys or seq.work.reply_ids):
            return
        size = self.config.block_size
        full = computed // size
        before = seq.computed // size
        if full <= before:
            return
        self._extend_keys(seq, full)
        first = before
        for index in range(before, min(full, len(seq.keys))):
            key = seq.keys[index]
            if pool.name(key):
                seq.anonymous -= 1
                seq.held.append(key)
            else:  # another sequence computed the same block at the same time: ours stays a nameless copy
                self._announce(seq, first=first, end=index)
                first = index + 1
        self._announce(seq, first=first, end=min(full, len(seq.keys)))

    def _extend_keys(self, seq: Seq, full: int) -> None:
        """Hash generated blocks, where the caller can tell which tokens they hold."""
        work, size = seq.work, self.config.block_size
        if full <= len(seq.keys) or self.hasher is None or work.reply_ids is None:
            return
        if seq.ids is work.prompt_ids:
            seq.ids = [*work.prompt_ids, *work.reply_ids()]
        for block in range(len(seq.keys), min(full, len(seq.ids) // size)):
            parent = seq.keys[-1] if seq.keys else work.root
            seq.keys.append(self.hasher(parent, tuple(seq.ids[block * size : (block + 1) * size])))

    def _announce(self, seq: Seq, *, first: int, end: int) -> None:
        if self.events is None or end <= first:
            return
        size = self.config.block_size
        parent = seq.keys[first - 1] if first else None
        tokens = list(seq.ids[first * size : end * size])
        self.events.append(BlockStored(seq.keys[first:end], parent, tokens, seq.work.lora))

    def _removed(self, key: int) -> None:
        if self.events is not None:
            self.events.append(BlockRemoved(key))

    def clear_cache(self) -> None:
        """Forget what is cached and not in use."""
        if self.pool is not None:
            self.pool.clear()
            if self.events is not None:
                self.events.append(AllBlocksCleared())

    @property
    def usage(self) -> float:
        """The share of blocks that sequences hold."""
        return self.pool.used / self.pool.size if self.pool is not None and self.pool.size else 0.0
