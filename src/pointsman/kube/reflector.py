"""Mirror one kind into its store: list, then watch, for as long as the task runs.

Owns the conversation with the API server about one source; decides nothing about what the objects mean.
Whatever happens on the way (server away, stream cut or stalled, version compacted, permission withdrawn, kind
removed), the loop survives it and the store ends up equal to the server.

How no event is lost: the version from which to watch only moves forward with an event or bookmark that was
applied to the store. A broken watch resumes from it. If the server has forgotten it (410) the next list is
compared with the store, so a deletion that nobody saw is delivered like any other.

`state` says in one word how it stands; readiness and controllers look at `settled`, which is true once the
first list is in, or once the server says that the kind does not exist: a missing custom resource is an empty
one. `answered` is true a little earlier: once there was any answer, a refusal too.

A kind whose definition is being deleted counts as absent: the server takes no objects of it, and may be at it for as
long as a finalizer holds one. When the definition is gone the server ends watches of the kind only after a while (up to
two minutes), so the reflector ends its own and lists again. Both it must be told of (`heed`), by who follows
definitions.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from pointsman.core.kinds import Kind, Source
from pointsman.core.logs import get_logger
from pointsman.kube.backoff import Backoff
from pointsman.kube.client import Client
from pointsman.kube.errors import ApiError, Forbidden, Gone, NotFound, Unreachable, from_status
from pointsman.kube.store import Change, Entry, Store, entry

State = Literal["starting", "following", "absent", "forbidden", "unreachable"]
Definition = Literal["there", "ending", "gone"]
Subscriber = Callable[[Change], None]
Attendant = Callable[[State], None]
PAGE = 500
_SHORTLY = 6  # a definition is announced some time before its kind is served

log = get_logger(__name__)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None  # an empty list of metadata comes as null


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_PAGES = msgspec.json.Decoder(_Page)
_EVENTS = msgspec.json.Decoder(_Event)


@dataclass(frozen=True, kw_only=True)
class Unfollowed:
    """A kind that should be followed and is not."""

    kind: Kind
    state: State
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.state} ({self.reason})"


class Reflector:
    """One source, kept equal to the server."""

    def __init__(
        self,
        client: Client,
        *,
        source: Source,
        store: Store,
        backoff: Backoff | None = None,
        stall: float = 150.0,
        lifetime: float = 300.0,
        rng: random.Random | None = None,
    ) -> None:
        self.source = source
        self.store = store
        self._state: State = "starting"
        self._ending = False
        self._watching: asyncio.Timeout | None = None
        self.problem = ""
        self.settled = asyncio.Event()
        self.answered = asyncio.Event()
        self._client = client
        self._backoff = backoff or Backoff(first=0.2, cap=30.0)
        self._stall = stall
        self._lifetime = lifetime
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self.announced: Callable[[], bool] = lambda: False
        """Whether someone tells when the definition of a kind comes: then there is no need to keep asking."""
        self._subscribers: list[Subscriber] = []
        self._attendants: list[Attendant] = []
        self._version = ""
        self._failures = 0
        self._awaited = asyncio.Event()

    @property
    def state(self) -> State:
        """How it stands, in a word."""
        return "absent" if self._ending and self._state == "following" else self._state

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call the subscriber with every change from now on, in order."""
        self._subscribers.append(subscriber)

    def attend(self, attendant: Attendant) -> None:
        """Call the attendant with every new state."""
        self._attendants.append(attendant)

    def heed(self, definition: Definition) -> None:
        """Take note of how the definition of the kind stands."""
        before, self._ending = self.state, definition != "there"
        if definition == "there" and self.state != "following":
            self._awaited.set()  # what was missing may be there
        if definition == "gone" and self._watching is not None:
            self._watching.reschedule(0)
            self._watching = None
        if before != self.state:
            log.info("its definition changes", kind=str(self.source.kind), definition=definition)
            self._tell()

    def absorb(self, item: Entry) -> None:
        """Take the answer to a write of our own, ahead of the watch."""
        change = self.store.absorb(item)
        self._publish([change] if change else [])

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                continue
            except Gone as error:
                log.info("watch expired, listing again", kind=str(self.source.kind), why=str(error))
                self._version = ""
                self._failures += 1
                if self._failures == 1:  # the usual case needs no pause; one that repeats does
                    continue
            except (ApiError, Unreachable, msgspec.DecodeError) as error:
                self._fail(error)
            await self._pause()

    async def _list(self) -> None:
        items: list[Entry] = []
        parameters = {**self.source.parameters(), "limit": str(PAGE)}
        path = self.source.kind.path(self.source.namespace)
        while True:
            accept = self.source.accept(many=True)
            page = _PAGES.decode(await self._client.request("GET", path, parameters=parameters, accept=accept))
            # bytes() copies: a Raw would keep the whole page alive for one object.
            items += [entry(self.source.kind, bytes(raw)) for raw in page.items or ()]
            if not page.metadata.continue_:
                break
            parameters["continue"] = page.metadata.continue_
        self._publish(self.store.replace(items, version=page.metadata.resource_version))
        self._version = page.metadata.resource_version
        self._settle("following")

    async def _watch(self) -> None:
        """Follow the stream until the server ends it, which it does by itself every few minutes."""
        seconds = int(self._lifetime * (1.0 + self._rng.random())) or 1
        parameters = {
            **self.source.parameters(),
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        path = self.source.kind.path(self.source.namespace)
        began = asyncio.get_running_loop().time()
        accept = self.source.accept(many=False)
        watching = asyncio.timeout(None)
        try:
            async with (
                watching as self._watching,
                self._client.watch(path, parameters=parameters, stall=self._stall, accept=accept) as lines,
            ):
                self._settle("following")
                async for line in lines:
                    self._take(_EVENTS.decode(line))
                    self._failures = 0
        except TimeoutError:
            if not watching.expired():
                raise
            raise Gone("its definition is gone", code=410) from None
        finally:
            self._watching = None
        if asyncio.get_running_loop().time() - began < 1.0:
            raise Unreachable(f"watch of {path} ended within a second")
        self._failures = 0

    def _take(self, event: _Event) -> None:
        if event.type == "ERROR":
            raise from_status(msgspec.json.decode(event.object), code=500)
        item = entry(self.source.kind, bytes(event.object)) if event.type != "BOOKMARK" else None
        if item is None:
            self._version = _PAGES.decode(event.object).metadata.resource_version or self._version
            return
        change = self.store.drop(item) if event.type == "DELETED" else self.store.put(item)
        self._publish([change] if change else [])
        self._version = item.meta.resource_version

    def _publish(self, changes: Iterable[Change]) -> None:
        for change in changes:
            for subscriber in self._subscribers:
                subscriber(change)

    def _settle(self, state: State) -> None:
        self.problem = ""
        self.settled.set()
        self._enter(state)

    def _enter(self, state: State) -> None:
        before, self._state = self.state, state
        if state != "unreachable":
            self.answered.set()
        if before != self.state:
            self._tell()

    def _tell(self) -> None:
        for attendant in self._attendants:
            attendant(self.state)

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        previous, self.problem = self.state, str(error)
        if isinstance(error, NotFound):
            # Also after a watch: the server ends it when the kind goes.
            self._version = ""
            self._publish(self.store.clear())
            self._settle("absent")
        elif isinstance(error, Forbidden):
            self._enter("forbidden")
        else:
            self._enter("unreachable")
            if isinstance(error, msgspec.DecodeError):
                self._version = ""
        if previous == self.state:
            return
        if self.state == "absent":
            log.info("the kind is not there", kind=str(self.source.kind))
        else:
            log.warning("not following", kind=str(self.source.kind), state=self.state, why=str(error))

    async def _pause(self) -> None:
        delay = self._backoff.delay(self._failures, rng=self._rng)
        if self.state == "absent" and self._failures > _SHORTLY and self.announced():
            delay = self._lifetime
        try:
            async with asyncio.timeout(delay):
                await self._awaited.wait()
            self._failures = 0
        except TimeoutError:
            pass
        finally:
            self._awaited.clear()
