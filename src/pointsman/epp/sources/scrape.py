"""Ask every endpoint the same question many times a second, and let none of them cost the others anything.

One keep-alive connection per endpoint, one question outstanding on it. Endpoints are spread over the interval in a few
slices: small enough that requests do not wait for a heap of answers, and large enough that one wake-up serves several,
since waking up costs as much as reading an answer. An endpoint that does not answer in time is cut off; one that fails
is left alone for a growing time, up to a second. Nobody is waited for: a tick that finds a question still open goes on
to the next endpoint.

What the answers mean is the `Question`'s business: metrics here, models in `models`, GPUs in `gpus`. A failure is
counted and logged once when it begins and once when it ends.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pointsman.core.http.client import Poll
from pointsman.core.http.limits import AnswerLimits
from pointsman.core.http.messages import request
from pointsman.core.logs import get_logger
from pointsman.epp.pool.endpoint import with_port
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Mark, Member
from pointsman.epp.sources.dialects import DEFAULT_ENGINE, DIALECTS, ENGINE_LABEL, Dialect, Reader, engine_of

log = get_logger(__name__)

_SLICE, _MOST_SLICES = 20, 10  # endpoints that are asked together, and how often per interval that may be
_MOST_BACKOFF = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeTerms:
    """How a source is asked."""

    path: str = "/metrics"
    port: int | None = None  # None: the endpoint's own
    at_node: bool = False  # ask the endpoint's node instead, where that is known
    tls: ssl.SSLContext | None = None
    interval: float = 0.05
    answer_seconds: float = 1.0
    connect_seconds: float = 1.0
    max_bytes: int = 4 << 20


class Take(Protocol):
    """Takes one endpoint's answers."""

    def __call__(self, body: bytes, *, asked_at: float, mark: Mark) -> bool:
        """Use an answer; return whether it made sense."""


class Question(Protocol):
    """What is asked, and what to do with the answers."""

    source: ClassVar[str]
    """The source's type, for metrics and logs."""
    shows_life: ClassVar[bool]
    """Whether who answers is the model server itself, so that no answer means that it is not there."""

    def takes(self, member: Member) -> Take:
        """Return what takes the answers of one endpoint."""


class MetricsQuestion:
    """The question `/metrics`: load, cache and adapters of an engine."""

    source: ClassVar[str] = "metrics-data-source"
    shows_life: ClassVar[bool] = True
    extractor: ClassVar[str] = "core-metrics-extractor"

    def __init__(
        self,
        *,
        tally: Polls,
        dialects: Mapping[str, Dialect] = DIALECTS,
        label: str = ENGINE_LABEL,
        default: str = DEFAULT_ENGINE,
    ) -> None:
        self._tally = tally
        self._dialects = dialects
        self._label = label
        self._default = default

    def takes(self, member: Member) -> Take:
        """Return a reader in the endpoint's dialect; an engine that we do not know reads as the default one."""
        engine = engine_of(member.endpoint.labels, key=self._label, default=self._default)
        dialect = self._dialects.get(engine) or self._dialects[self._default]
        reader = Reader(dialect)

        def take(body: bytes, *, asked_at: float, mark: Mark) -> bool:
            reading = reader.read(body, now=asked_at, last=member.metrics, attributes=member.attributes)
            if reading.missed:
                self._tally.extract_errors[self.source, self.extractor] += reading.missed
            made_sense = reading.metrics.updated_at == asked_at
            if made_sense:
                member.scraped(reading.metrics, attributes=reading.attributes, mark=mark)
            return made_sense

        return take


class Poller:
    """Asks one endpoint."""

    __slots__ = (
        "_asked_at", "_clock", "_closed", "_connect", "_connecting", "_connection", "_failures", "_mark",
        "_outstanding", "_request", "_retry_at", "_shows_life", "_source", "_take", "_tally", "_terms", "labels",
        "member",
    )  # fmt: skip

    def __init__(
        self,
        member: Member,
        *,
        question: Question,
        terms: ScrapeTerms,
        tally: Polls,
        clock: Callable[[], float],
        connect: Callable[["Poller"], None],
    ) -> None:
        self.member = member
        self.labels = member.endpoint.labels
        self._source = question.source
        self._shows_life = question.shows_life
        self._terms = terms
        self._tally = tally
        self._clock = clock
        self._connect = connect
        self._take = question.takes(member)
        accept = {"accept": "text/plain, */*"}
        self._request = request("GET", terms.path, host=with_port(self.address, self.port), headers=accept)
        self._connection: Poll | None = None
        self._connecting = False
        self._outstanding = False
        self._closed = False
        self._asked_at = 0.0
        self._mark: Mark = (0, 0)
        self._failures = 0
        self._retry_at = 0.0

    @property
    def address(self) -> str:
        """The address that is asked."""
        endpoint = self.member.endpoint
        return (endpoint.node if self._terms.at_node else "") or endpoint.address

    @property
    def port(self) -> int:
        """The port that is asked."""
        return self._terms.port or self.member.endpoint.port

    def tick(self, now: float) -> None:
        """Do what is due: ask, connect, or give up on an answer."""
        if self._outstanding:
            if now - self._asked_at > self._terms.answer_seconds:
                self._drop()
                self.failed(f"no answer within {self._terms.answer_seconds:g} s")
        elif now < self._retry_at or self._connecting:
            return
        elif self._connection is None or not self._connection.open:
            self._drop()
            self._connecting = True
            self._connect(self)
        else:
            self._ask(now)

    def connection(self) -> Poll:
        """Return the protocol of a new connection."""
        return Poll(limits=AnswerLimits(body_bytes=self._terms.max_bytes), done=self._answered, lost=self._lost)

    def connected(self, connection: Poll) -> None:
        """Use a connection from now on, and at once."""
        self._connecting = False
        if self._closed:
            connection.close()
            return
        if not connection.open:
            self.failed("it closed the connection")
            return
        self._connection = connection
        self._ask(self._clock())

    def failed(self, reason: str) -> None:
        """Leave the endpoint alone for a while."""
        self._connecting = False
        if self._closed:
            return
        if self._shows_life:
            failures = self.member.scrape_failures
            failures[self._source] = failures.get(self._source, 0) + 1
        self._back_off(reason)

    def close(self) -> None:
        """The endpoint is gone, or is asked no more."""
        self._closed = True
        self.member.scrape_failures.pop(self._source, None)
        self._drop()

    def _ask(self, now: float) -> None:
        assert self._connection is not None
        self._asked_at = now
        self._mark = self.member.mark()
        self._outstanding = True
        self._connection.ask(self._request)

    def _answered(self, status: int, body: bytes) -> None:
        self._outstanding = False
        if status >= 500:
            self.failed(f"it answered {status}")
            return
        if self._shows_life:
            self.member.scrape_failures[self._source] = 0  # whatever it says, it is there
        if status != 200:
            self._back_off(f"it answered {status}")
        elif not self._take(body, asked_at=self._asked_at, mark=self._mark):
            self._back_off("its answer has nothing that we look for")
        else:
            self._tally.polls[self._source] += 1
            if self._failures:
                self._failures = 0
                log.info("scrape: endpoint answers again", endpoint=self.member.endpoint.target)

    def _lost(self, reason: str) -> None:
        self._connection = None
        if self._outstanding:
            self._outstanding = False
            if reason:
                self.failed(reason)

    def _back_off(self, reason: str) -> None:
        self._failures += 1
        self._tally.poll_errors[self._source] += 1
        wait = self._terms.interval * 2.0 ** min(self._failures, 10)
        self._retry_at = self._clock() + min(_MOST_BACKOFF, wait)
        if self._failures == 1:
            target = self.member.endpoint.target
            log.info("scrape: endpoint gives no data", source=self._source, endpoint=target, reason=reason)

    def _drop(self) -> None:
        self._outstanding = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Scraper:
    """Asks one question of every endpoint of a pool."""

    def __init__(self, question: Question, *, terms: ScrapeTerms, tally: Polls, clock: Callable[[], float]) -> None:
        self._question = question
        self._terms = terms
        self._tally = tally
        self._clock = clock
        self._pollers: dict[Member, Poller] = {}
        self._slices: list[list[Poller]] = [[]]
        self._tasks: asyncio.TaskGroup | None = None

    def follow(self, members: tuple[Member, ...]) -> None:
        """Ask these endpoints from now on; hand it to `Pool.watch`. Changed labels may mean another dialect."""
        before, self._pollers = self._pollers, {}
        for member in members:
            poller = before.pop(member, None)
            if poller is not None and poller.labels != member.endpoint.labels:
                poller.close()
                poller = None
            self._pollers[member] = poller or self._poller(member)
        for gone in before.values():
            gone.close()
        slices = max(1, min(_MOST_SLICES, len(members) // _SLICE))
        pollers = list(self._pollers.values())
        self._slices = [pollers[at::slices] for at in range(slices)]

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._tick_for_ever()
        finally:
            self.follow(())

    async def _tick_for_ever(self) -> None:
        at, due = 0, self._clock()
        while True:
            slices = self._slices
            at = (at + 1) % len(slices)
            now = self._clock()
            for poller in slices[at]:
                try:
                    poller.tick(now)
                except Exception:
                    log.exception("scrape: one endpoint failed", endpoint=poller.member.endpoint.target)
            due = max(due + self._terms.interval / len(slices), self._clock())  # late is late: nothing is caught up
            await asyncio.sleep(due - self._clock())

    def _poller(self, member: Member) -> Poller:
        return Poller(
            member,
            question=self._question,
            terms=self._terms,
            tally=self._tally,
            clock=self._clock,
            connect=self._start_connecting,
        )

    def _start_connecting(self, poller: Poller) -> None:
        assert self._tasks is not None
        self._tasks.create_task(self._connect(poller))

    async def _connect(self, poller: Poller) -> None:
        loop, terms, endpoint = asyncio.get_running_loop(), self._terms, poller.member.endpoint
        name = poller.address if terms.tls is not None else None
        try:
            async with asyncio.timeout(terms.connect_seconds):
                _, connection = await loop.create_connection(
                    poller.connection, poller.address, poller.port, ssl=terms.tls, server_hostname=name
                )
        except TimeoutError:
            poller.failed(f"no connection within {terms.connect_seconds:g} s")
        except OSError as error:
            poller.failed(error.strerror or str(error))
        except Exception as error:
            log.exception("scrape: one endpoint failed", endpoint=endpoint.target)
            poller.failed(repr(error))
        else:
            poller.connected(connection)
