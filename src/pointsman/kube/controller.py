"""One controller: a kind, what else concerns it, and one async function that makes one object right.

Owns the life of a key from an event to the end of its reconcile: mapping events to keys, the workers, what
each outcome means for the queue. Knows no resource. The contract with the function:

- it gets a key and a view, never an event: what happened does not matter, what is there does;
- it returns `Result` (perhaps: look again in a while), raises `Retry` (not yet; back-off, or after its delay)
  or `Terminal` (only a change can help); any other exception is a failure that is logged with the key and
  retried;
- it is never called twice at the same time for one key, and is cancelled when it exceeds the controller's
  timeout.

Invariant: nothing that a reconcile raises ends a worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pointsman.core.errors import PointsmanError
from pointsman.core.kinds import Key, Kind, Source
from pointsman.core.logs import at_work, get_logger
from pointsman.kube.backoff import Backoff
from pointsman.kube.errors import NotLeader, Retry, Terminal
from pointsman.kube.metrics import RuntimeMetrics
from pointsman.kube.ownership import Ownership, owner_uids
from pointsman.kube.queue import Queue
from pointsman.kube.store import Change, Entry, Index
from pointsman.kube.view import View

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """The object is as it should be; `again` asks for another look after so many seconds."""

    again: float | None = None


Reconcile = Callable[[Key, View], Awaitable[Result | None]]
Mapper = Callable[[Entry, View], Iterable[Key]]


@dataclass(frozen=True, slots=True)
class Watch:
    """Objects of another kind that concern ours, and which of ours one of them concerns."""

    source: Source
    to: Mapper
    indexes: Mapping[str, Index] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Controller:
    """What to watch, and what to do about it."""

    name: str
    source: Source
    reconcile: Reconcile
    watches: tuple[Watch, ...] = ()
    indexes: Mapping[str, Index] = field(default_factory=dict)
    workers: int = 4
    timeout: float = 120.0
    backoff: Backoff = Backoff(first=0.05, cap=300.0)  # noqa: RUF009 - frozen

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.source, *(watch.source for watch in self.watches))


def owned(kind: Kind, *, owner: Kind, ownership: Ownership, source: Source | None = None) -> Watch:
    """Watch the objects of a kind that this operator made, in any namespace, and map each to its owner.

    A `source` without the selector is for kinds of which others' objects matter too: there is one cache per kind.
    """

    def to(item: Entry, view: View) -> Iterable[Key]:
        for uid in owner_uids(item, ownership=ownership):
            yield from (found.key for found in view.find(owner, "uid", uid))

    narrowed = Source(kind, labels=ownership.selector)
    return Watch(source or narrowed, to, indexes={ownership.label: ownership.index})


def referred(source: Source, *, by: Kind, index: str) -> Watch:
    """Watch what ours refer to: `index` of our kind lists the keys (`namespace/name`) that each names."""

    def to(item: Entry, view: View) -> Iterable[Key]:
        return (found.key for found in view.find(by, index, str(item.key)))

    return Watch(source, to)


class ControllerWork:
    """The queue and the workers of one controller."""

    def __init__(self, controller: Controller, *, view: View, metrics: RuntimeMetrics) -> None:
        self.controller = controller
        self._view = view
        self._metrics = metrics
        self._labels = (controller.name,)
        self._line = (controller.name, controller.name)  # of its queue
        self._waited = metrics.waited.cell(self._line)
        self._worked = metrics.worked.cell(self._line)
        self._seconds = metrics.seconds.cell(self._labels)
        self.queue: Queue[Key] = Queue(backoff=controller.backoff, on_add=lambda: metrics.adds.add(self._line))
        self._show()

    def primary(self, change: Change) -> None:
        """Take a change of our own kind."""
        for side in change.sides[-1:]:
            self.queue.add(side.key)
            if change.new is None:
                self.queue.forget(side.key)

    def secondary(self, watch: Watch) -> Callable[[Change], None]:
        """Return the subscriber for a watched kind: whoever was or is concerned gets in line."""

        def take(change: Change) -> None:
            try:
                keys = {key for side in change.sides for key in watch.to(side, self._view)}
            except Exception:
                # An object that the mapping did not expect must not end the cache; a look at all of ours is no mistake.
                log.exception("mapping failed", controller=self.controller.name, object=str(change.sides[-1].key))
                self.all()
                return
            for key in keys:
                self.queue.add(key)

        return take

    def all(self) -> None:
        """Put every object of ours in line."""
        for item in self._view.entries(self.controller.source.kind):
            self.queue.add(item.key)

    async def run(self) -> None:
        """Look at every object once, then at what changes, until cancelled."""
        self.all()
        async with asyncio.TaskGroup() as group:
            for _ in range(self.controller.workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            key, waited = await self.queue.take()
            self._waited.observe(waited)
            began = asyncio.get_running_loop().time()
            self._metrics.active.add(self._labels)
            try:
                with at_work(controller=self.controller.name, key=str(key)):
                    result = await self._attempt(key)
                self._metrics.reconciles.add((self.controller.name, result))
            finally:
                self.queue.done(key)
                self._metrics.active.add(self._labels, -1)
                seconds = asyncio.get_running_loop().time() - began
                self._seconds.observe(seconds)
                self._worked.observe(seconds)

    async def _attempt(self, key: Key) -> str:
        """Run the function once and do to the queue what its outcome asks for; returns the result's label."""
        try:
            async with asyncio.timeout(self.controller.timeout):
                result = await self.controller.reconcile(key, self._view)
        except Retry as wish:
            return self._postpone(key, wish)
        except Terminal as error:
            self.queue.forget(key)
            self._metrics.terminal.add(self._labels)
            log.warning("gave up until it changes", why=str(error))
            return "error"
        except NotLeader:
            self.queue.add_later(key, delay=1.0)  # by then this work is cancelled, or the lease is back
            return "requeue"
        except Exception as error:
            return self._failed(key, error)
        self.queue.forget(key)
        if result is not None and result.again is not None:
            self.queue.add_later(key, delay=result.again)
            return "requeue_after"
        return "success"

    def _postpone(self, key: Key, wish: Retry) -> str:
        if wish.delay is None:
            delay = self._again(key)
            log.info("not yet", why=str(wish), again_in=round(delay, 3))
            return "requeue"
        self.queue.add_later(key, delay=wish.delay)
        return "requeue_after"

    def _failed(self, key: Key, error: Exception) -> str:
        delay = self._again(key)
        if isinstance(error, TimeoutError):
            self._metrics.timeouts.add(self._labels)
        self._metrics.errors.add(self._labels)
        # A traceback helps with our own mistakes only; what the cluster answered says all in its message.
        log.warning(
            "reconcile failed",
            why=str(error) or type(error).__name__,
            failures=self.queue.failures(key),
            again_in=round(delay, 3),
            exc_info=None if isinstance(error, PointsmanError | TimeoutError) else error,
        )
        return "error"

    def _again(self, key: Key) -> float:
        self._metrics.retries.add(self._line)
        return self.queue.retry(key)

    def _show(self) -> None:
        """Show what there is before anything has happened, and what is read when someone asks."""

        def ages() -> list[float]:
            now = asyncio.get_running_loop().time()
            return [now - began for began in self.queue.working.values()]

        metrics, line = self._metrics, self._line
        metrics.workers.add(self._labels, self.controller.workers)
        metrics.active.add(self._labels, 0)
        metrics.adds.add(line, 0)
        metrics.retries.add(line, 0)
        metrics.depth[line] = lambda: len(self.queue)
        metrics.unfinished[line] = lambda: sum(ages())
        metrics.longest[line] = lambda: max(ages(), default=0.0)
