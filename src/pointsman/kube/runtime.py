"""Run controllers: caches, workers, election and Events, as one tree of tasks.

Owns the wiring and nothing else. One cache per kind, shared by all controllers; a controller's workers start
when every kind that concerns it is in its cache (or is known not to exist, or to be forbidden: then only the
function can tell people so), and, with an election, only while this replica leads. Caches run on every replica,
so a new leader starts warm.

A kind that comes with a CustomResourceDefinition may be missing: its cache is empty until the definition
appears. The runtime follows the definitions (metadata only: they are large) and tells the reflector at once when one
comes or goes; without the permission to do so the reflector finds out by itself, later.

Invariant: `run` ends only by cancellation or by an error that no part could handle, and leaves no task
behind.
"""

import asyncio
import random
import secrets
import socket
from collections.abc import Callable
from datetime import UTC, datetime

from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION, Key, Kind, Source
from pointsman.kube.apply import Applier
from pointsman.kube.client import Client
from pointsman.kube.controller import Controller, ControllerWork
from pointsman.kube.events import EventRecorder
from pointsman.kube.lease import Election, LeaseTerms
from pointsman.kube.metrics import RuntimeMetrics
from pointsman.kube.ownership import Ownership
from pointsman.kube.reflector import Definition, Reflector, Unfollowed
from pointsman.kube.store import Change, Entry, Store
from pointsman.kube.view import View


class Runtime:
    """The process of an operator."""

    def __init__(
        self,
        client: Client,
        *,
        ownership: Ownership,
        lease: Key | None = None,
        identity: str = "",
        terms: LeaseTerms | None = None,
        stall: float = 150.0,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: random.Random | None = None,
        metrics: RuntimeMetrics | None = None,
    ) -> None:
        self.metrics = metrics or RuntimeMetrics()
        self.wall = wall
        self._reader = client.observed(self._count)
        self.election: Election | None = None
        if lease is not None:
            name = identity or _identity()
            self.election = Election(self._reader, key=lease, identity=name, terms=terms, wall=wall, rng=rng)
        self.client = self._reader.fenced(self.election.check) if self.election else self._reader
        self._stores: dict[Kind, Store] = {}
        self._reflectors: dict[Kind, Reflector] = {}
        self._works: list[ControllerWork] = []
        self._stall = stall
        self._rng = rng
        self.view = View(self._stores, states=lambda kind: self._reflectors[kind].state)
        self.applier = Applier(self.client, ownership=ownership, stores=self._stores, absorb=self._absorb)
        self.events = EventRecorder(self.client, component=ownership.manager, wall=wall)

    def add(self, controller: Controller) -> ControllerWork:
        """Add a controller; before `run`."""
        work = ControllerWork(controller, view=self.view, metrics=self.metrics)
        self._reflect(controller.source).subscribe(work.primary)
        for name, index in controller.indexes.items():
            self._stores[controller.source.kind].add_index(name, index)
        for watch in controller.watches:
            reflector = self._reflect(watch.source)
            reflector.subscribe(work.secondary(watch))
            if watch.source.kind.custom:  # what can be done for our objects may depend on a kind that came or went
                reflector.attend(lambda _: work.all())
            for name, index in watch.indexes.items():
                self._stores[watch.source.kind].add_index(name, index)
        self._works.append(work)
        return work

    async def run(self) -> None:
        """Run until cancelled."""
        definitions = self._definitions()
        try:
            async with asyncio.TaskGroup() as group:
                for reflector in self._reflectors.values():
                    group.create_task(reflector.run())
                if definitions is not None:
                    group.create_task(definitions.run())
                group.create_task(self.events.run())
                group.create_task(self._lead())
        finally:
            for work in self._works:
                work.queue.close()

    def unfollowed(self) -> list[Unfollowed]:
        """Return the kinds that should be followed and are not; one that does not exist is no fault."""
        return [
            Unfollowed(kind=one.source.kind, state=one.state, reason=one.problem or "first list pending")
            for one in self._reflectors.values()
            if one.state not in {"following", "absent"}
        ]

    async def settled(self) -> None:
        """Wait until every cache has its first list."""
        for reflector in self._reflectors.values():
            await reflector.settled.wait()

    async def _lead(self) -> None:
        if self.election is None:
            await self._work()
            return
        leading = self.election
        self.metrics.leader[("leader",)] = lambda: float(leading.leading)
        await leading.run(self._work)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            for work in self._works:
                group.create_task(self._start(work))

    async def _start(self, work: ControllerWork) -> None:
        for source in work.controller.sources:
            await self._reflectors[source.kind].answered.wait()
        await work.run()

    def _reflect(self, source: Source) -> Reflector:
        known = self._reflectors.get(source.kind)
        if known is None:
            store = self._stores[source.kind] = Store(source.kind)
            known = self._reflectors[source.kind] = Reflector(
                self._reader, source=source, store=store, stall=self._stall, rng=self._rng
            )
        elif known.source != source:
            raise ValueError(f"{source.kind} is already watched as {known.source}: one cache per kind, so one selector")
        return known

    def _definitions(self) -> Reflector | None:
        """Return a reflector of definitions if a kind depends on one.

        It is a courtesy and not among the caches: without the permission for it nothing is unready.
        """
        if not any(kind.custom for kind in self._reflectors):
            return None
        source = Source(CUSTOM_RESOURCE_DEFINITION, metadata_only=True)
        reflector = Reflector(self._reader, source=source, store=Store(source.kind), stall=self._stall, rng=self._rng)
        reflector.subscribe(self._definition)
        for other in self._reflectors.values():
            other.announced = lambda: reflector.state == "following"
        return reflector

    def _definition(self, change: Change) -> None:
        told: Definition = "gone" if change.new is None else "ending" if change.new.meta.deletion_timestamp else "there"
        for kind, reflector in self._reflectors.items():
            if str(kind) == change.sides[-1].key.name:
                reflector.heed(told)

    def _absorb(self, item: Entry) -> None:
        self._reflectors[item.kind].absorb(item)

    def _count(self, method: str, code: str) -> None:
        self.metrics.requests.add((code, method))


def _identity() -> str:
    """Return a name for this process in the election: where it runs, and a part that a restart changes."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"
