"""The shell around prediction sidecars: a question waits for nobody but its request, and never longer than it may.

A few questions are under way at once; those that come meanwhile are put together and go with the next one, so a busy
picker asks seldom and an idle one at once. Whatever goes wrong costs requests the sidecar's predictions and nothing
else: each is told None when its time is over, whatever became of the question, and goes by the picker's own model. A
server that fails several times in a row is left alone for a while (`breaker`), and meanwhile nobody waits for it.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence

from pointsman.core.addresses import ServiceAddress
from pointsman.core.http.client import Answer
from pointsman.core.http.limits import AnswerLimits
from pointsman.core.http.lines import Lines, NoAnswer, body_of
from pointsman.core.http.messages import request
from pointsman.core.logs import get_logger
from pointsman.epp.prediction.breaker import Breaker
from pointsman.epp.request.predictions import (
    PREDICT,
    Predicted,
    PredictionQuestion,
    PredictionService,
    Unreadable,
    question_body,
    read_answer,
)

log = get_logger(__name__)

_MOST_ROWS = 1000  # of several questions in one message; a single one may have more
_ROW_BYTES = 1024  # that a prediction may take; they take some 250
_LEAST_BYTES = 64 << 10
_MOST_BYTES = 4 << 20
_SILENCE = 60.0  # seconds between two lines about failures


class _Server:
    """One of the sidecars."""

    def __init__(self, address: ServiceAddress, *, clock: Callable[[], float]) -> None:
        self.address = address
        self.lines = Lines(address, limits=AnswerLimits(body_bytes=_MOST_BYTES))
        self.breaker = Breaker(clock=clock)


class _Waiting:
    """One request that waits."""

    __slots__ = ("done", "question", "timer")

    def __init__(self, question: PredictionQuestion, done: Callable[[Sequence[Predicted] | None], None]) -> None:
        self.question = question
        self.done: Callable[[Sequence[Predicted] | None], None] | None = done
        self.timer: asyncio.TimerHandle | None = None

    def tell(self, answer: Sequence[Predicted] | None) -> bool:
        """Tell it, unless it was told before, or has left; return whether."""
        done = self.done
        self.leave()
        if done is None:
            return False
        done(answer)
        return True

    def leave(self) -> None:
        self.done = None
        if self.timer is not None:
            self.timer.cancel()


class Predictor:
    """Asks sidecars, for many requests at a time."""

    def __init__(self, *, clock: Callable[[], float], rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._tasks: asyncio.TaskGroup | None = None
        self._service: PredictionService | None = None
        self._servers: tuple[_Server, ...] = ()
        self._queue: deque[_Waiting] = deque()
        self._under_way = 0
        self._failing = False
        self._said = float("-inf")
        self.results: Counter[str] = Counter()  # answered, timeout, refused, unreadable, unreachable, skipped

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Ask from now on, in tasks of this group."""
        self._tasks = tasks

    def asks(self, service: PredictionService) -> bool:
        """Return whether any of the service's servers may be asked now."""
        self._use(service)
        if any(server.breaker.allows() for server in self._servers):
            return True
        self.results["skipped"] += 1
        return False

    def _use(self, service: PredictionService) -> None:
        if service == self._service:
            return
        for server in self._servers:  # another configuration: what is open leads nowhere
            server.lines.close()
        self._service = service
        self._servers = tuple(_Server(address, clock=self._clock) for address in service.addresses)

    def ask(
        self, question: PredictionQuestion, done: Callable[[Sequence[Predicted] | None], None]
    ) -> Callable[[], None]:
        """Hand the predictions, or None when there are none in time, to `done` later; return what makes it not so."""
        assert self._tasks is not None
        waiting = _Waiting(question, done)
        seconds = question.service.seconds
        waiting.timer = asyncio.get_running_loop().call_later(seconds, self._too_late, waiting)
        self._queue.append(waiting)
        if self._under_way < question.service.dispatches:
            self._under_way += 1
            self._tasks.create_task(self._work())
        return waiting.leave

    def _too_late(self, waiting: _Waiting) -> None:
        if waiting.tell(None):
            self.results["timeout"] += 1

    async def _work(self) -> None:
        """Ask until nobody waits any more."""
        try:
            while batch := self._next_batch():
                await self._dispatch(batch)
        except Exception:  # nothing about one question may end the group
            log.exception("predictor: a question failed")
        finally:
            self._under_way -= 1

    def _next_batch(self) -> list[_Waiting]:
        """Take those who wait for the same service, as many as fit into one message."""
        batch: list[_Waiting] = []
        rows = 0
        while self._queue:
            first = self._queue[0]
            if first.done is not None:
                rows += len(first.question.rows)
                if batch and (rows > _MOST_ROWS or first.question.service != batch[0].question.service):
                    break
                batch.append(first)
            self._queue.popleft()
        return batch

    async def _dispatch(self, batch: Sequence[_Waiting]) -> None:
        service = batch[0].question.service
        self._use(service)
        servers = [each for each in self._servers if each.breaker.allows()]
        if not servers:
            self._tell(batch, None, result="skipped")
            return
        server = self._rng.choice(servers)
        rows = [row for each in batch for row in each.question.rows]
        server.breaker.begin()
        try:
            body = await body_of(self._exchange(server, question_body(rows)), seconds=service.seconds)
            answer = _read(body, rows=len(rows))
        except NoAnswer as error:
            self._failed(server, str(error))
            self._tell(batch, None, result=error.result)
        except Unreadable as error:
            self._failed(server, str(error))
            self._tell(batch, None, result="unreadable")
        else:
            self._answered(server)
            self._tell(batch, answer, result="answered")

    async def _exchange(self, server: _Server, body: bytes) -> Answer:
        address = server.address
        kind = {"content-type": "application/json"}
        path = f"{address.prefix}{PREDICT}"
        return await server.lines.ask(request("POST", path, host=address.authority, headers=kind, body=body))

    def _tell(self, batch: Sequence[_Waiting], answer: Sequence[Predicted] | None, *, result: str) -> None:
        at = 0
        for each in batch:
            rows = len(each.question.rows)
            if each.tell(None if answer is None else answer[at : at + rows]):
                self.results[result] += 1
            at += rows

    def _answered(self, server: _Server) -> None:
        server.breaker.succeeded()
        if self._failing:
            self._failing = False
            log.info("predictor: a sidecar answers again", address=server.address.authority)

    def _failed(self, server: _Server, reason: str) -> None:
        server.breaker.failed()
        now = self._clock()
        if now - self._said >= _SILENCE:
            self._said, self._failing = now, True
            log.warning(
                "predictor: no predictions from the sidecar, the picker's own are used",
                address=server.address.authority,
                reason=reason,
            )


def _read(body: bytes, *, rows: int) -> Sequence[Predicted]:
    """Return the predictions. Raises Unreadable, also without a look at what is far too long."""
    if len(body) > max(_LEAST_BYTES, rows * _ROW_BYTES):
        raise Unreadable(f"{len(body)} bytes for {rows} predictions")
    return read_answer(body, rows=rows)
