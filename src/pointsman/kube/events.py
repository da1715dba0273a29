"""Events for people (`kubectl describe`), aggregated: the same thing said again raises one count.

`Ledger` is pure book-keeping: what was said how often, and what to write next. `EventRecorder` is its shell. An
Event is advice: recording never waits, never raises, and a server that refuses Events costs a log line, not a
reconcile.

Bounds: at most one write per `interval` for the same text, at most `limit` texts remembered, oldest forgotten
first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal

from pointsman.core.kinds import EVENT, Key, Object
from pointsman.core.logs import get_logger
from pointsman.kube.client import Client
from pointsman.kube.conditions import timestamp
from pointsman.kube.errors import ApiError, NotFound, NotLeader, Unreachable

log = get_logger(__name__)
Severity = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Saying:
    """One thing said about one object; equal sayings are aggregated."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    severity: Severity
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class EventTally:
    """How often something was said, and how much of that was written."""

    count: int
    written: int
    first: datetime
    last: datetime
    next_write: float


class Ledger:
    """Count sayings and hand out those that are due."""

    def __init__(self, *, interval: float = 10.0, limit: int = 1024) -> None:
        self._interval = interval
        self._limit = limit
        self._tallies: OrderedDict[Saying, EventTally] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tallies)

    def say(self, saying: Saying, *, wall: datetime) -> None:
        """Count one occurrence."""
        known = self._tallies.pop(saying, None)
        fresh = known or EventTally(count=0, written=0, first=wall, last=wall, next_write=float("-inf"))
        self._tallies[saying] = replace(fresh, count=fresh.count + 1, last=wall)
        while len(self._tallies) > self._limit:
            self._tallies.popitem(last=False)

    def due(self, *, now: float) -> list[tuple[Saying, EventTally]]:
        """Return what should be written now, and take it as written."""
        ready = [
            (saying, tally)
            for saying, tally in self._tallies.items()
            if tally.count > tally.written and tally.next_write <= now
        ]
        for saying, tally in ready:
            self._tallies[saying] = replace(tally, written=tally.count, next_write=now + self._interval)
        return ready


class EventRecorder:
    """Write what is said about objects to the cluster."""

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        ledger: Ledger | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        tick: float = 0.5,
    ) -> None:
        self._client = client
        self._component = component
        self._ledger = Ledger() if ledger is None else ledger  # an empty one is false
        self._wall = wall
        self._tick = tick
        self._said = asyncio.Event()

    def record(self, document: Object, *, reason: str, message: str, severity: Severity = "Normal") -> None:
        """Say something about an object."""
        metadata = document["metadata"]
        saying = Saying(
            document["apiVersion"],
            document["kind"],
            metadata.get("namespace", ""),
            metadata["name"],
            metadata.get("uid", ""),
            severity,
            reason,
            message[:1024],
        )
        self._ledger.say(saying, wall=self._wall())
        self._said.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            for saying, tally in self._ledger.due(now=asyncio.get_running_loop().time()):
                await self._write(saying, tally)
            self._said.clear()
            try:
                async with asyncio.timeout(10 * self._tick):
                    await self._said.wait()
                    await asyncio.sleep(self._tick)  # what is said in one breath is written at once
            except TimeoutError:
                pass

    async def _write(self, saying: Saying, tally: EventTally) -> None:
        document = event(saying, tally, component=self._component)
        key = Key(document["metadata"]["namespace"], document["metadata"]["name"])
        try:
            if tally.written:
                body = {name: document[name] for name in ("count", "lastTimestamp")}
                try:
                    await self._client.patch(EVENT, key, body, how="merge")
                    return
                except NotFound:  # Events live for an hour
                    pass
            await self._client.create(EVENT, document)
        except (ApiError, Unreachable, NotLeader) as error:
            log.debug("event not written", reason=saying.reason, object=saying.name, why=str(error))


def event(saying: Saying, tally: EventTally, *, component: str) -> Object:
    """Return the Event for a saying; its name is a digest, so that a repetition finds it."""
    parts = f"{saying}{tally.first.isoformat()}"
    digest = blake2b(parts.encode(), digest_size=8).hexdigest()
    namespace = saying.namespace or "default"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{saying.name[:230]}.{digest}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": saying.api_version,
            "kind": saying.kind,
            "namespace": saying.namespace,
            "name": saying.name,
            "uid": saying.uid,
        },
        "type": saying.severity,
        "reason": saying.reason,
        "message": saying.message,
        "count": tally.count,
        "firstTimestamp": timestamp(tally.first),
        "lastTimestamp": timestamp(tally.last),
        "source": {"component": component},
        "reportingComponent": component,
    }
