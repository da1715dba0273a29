"""Objects that went, kept in mind for a grace time: whoever replaces a definition must not cost a request.

The API server deletes the objects of a definition before the definition, so all that a watch shows is that objects go.
A pool that goes is kept for the grace time whatever the reason: without it nobody can be served. An objective or a
rewrite that somebody deleted should be forgotten, and one whose definition goes should not. The API server tells the
two apart for everyone who may ask what it serves, and no right on definitions is needed: of a kind that is on its way
out it takes no new objects, and its discovery says so.

It says so a moment after the first objects went, so it is asked a few times, for 2 seconds in all. Meanwhile the object
counts as there. One that comes back in time was never gone. A server that does not answer the question is taken to be
replacing the definition: a rule too many for a while is better than a rule too few.

At most one question is under way per kind, whatever the number of objects: they are judged together, and the log has a
line for their going and one for their end.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from pointsman.core.kinds import Kind, Object
from pointsman.core.logs import get_logger
from pointsman.kube.client import Client
from pointsman.kube.errors import ApiError, NotFound, Unreachable

log = get_logger(__name__)

_PAUSES = (0.05, 0.25, 0.7, 1.0)  # seconds before each question


class _Resource(msgspec.Struct):
    name: str
    verbs: list[str] = []


class _Served(msgspec.Struct):
    resources: list[_Resource] = []


_SERVED = msgspec.json.Decoder(_Served)
Batch = dict[str, Object]


def takes_objects(discovery: bytes, kind: Kind) -> bool:
    """Return whether new objects of a kind can be created, by what the server says of its version."""
    served = _SERVED.decode(discovery).resources
    return any(one.name == kind.plural and "create" in one.verbs for one in served)


class Departures:
    """The objects of some kinds that went and still count."""

    def __init__(
        self, client: Client, *, grace: float, kept: Iterable[Kind], judged: Iterable[Kind], drop: Callable[..., None]
    ) -> None:
        self._client = client
        self._grace = grace
        self._kept = frozenset(kept)
        self._drop = drop
        self._held: dict[Kind, Batch] = {kind: {} for kind in (*self._kept, *judged)}
        self._new: dict[Kind, Batch] = {kind: {} for kind in self._held}
        self._woken = {kind: asyncio.Event() for kind in self._held}
        self._waiting: Counter[Kind] = Counter()  # batches whose grace time runs

    def went(self, kind: Kind, document: Object) -> None:
        """Take note of an object that goes; once is enough until it comes back."""
        name = document["metadata"]["name"]
        if name not in self._held[kind]:
            self._held[kind][name] = self._new[kind][name] = document
            self._woken[kind].set()

    def came(self, kind: Kind, document: Object) -> None:
        """Take note of an object that is there."""
        name = document["metadata"]["name"]
        if self._held[kind].pop(name, None) is not None:
            self._new[kind].pop(name, None)
            if kind in self._kept:
                log.info("it is back", kind=str(kind), name=name)

    async def run(self) -> None:
        """See to those that went, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self._held:
                tasks.create_task(self._attend(kind, tasks))

    async def _attend(self, kind: Kind, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._woken[kind].wait()
            self._woken[kind].clear()
            batch, self._new[kind] = self._new[kind], {}
            why = "it was deleted, or its definition" if kind in self._kept else await self._definition_goes(kind)
            tasks.create_task(self._see_off(kind, batch, why=why))

    async def _see_off(self, kind: Kind, batch: Batch, *, why: str) -> None:
        """Drop what of a batch does not come back in time; without a reason to wait, at once."""
        if why:
            if not self._waiting[kind]:
                log.warning("gone: what was known counts for a while", kind=str(kind), seconds=self._grace, why=why)
            self._waiting[kind] += 1
            await asyncio.sleep(self._grace)
            self._waiting[kind] -= 1
        held = self._held[kind]
        gone = [name for name, document in batch.items() if held.get(name) is document]
        for name in gone:
            self._drop(kind, held.pop(name))
        if why and gone and not self._waiting[kind]:
            log.warning("it stayed away: it counts no longer", kind=str(kind))

    async def _definition_goes(self, kind: Kind) -> str:
        """Return why objects of a kind are to be kept: its definition is going, or nobody can tell; empty if not."""
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            try:
                if takes_objects(await self._client.request("GET", f"/apis/{kind.api_version}"), kind):
                    continue
            except NotFound:
                pass
            except (ApiError, Unreachable, msgspec.DecodeError) as error:
                return f"nobody can tell whether its definition is there: {error}"
            return "its definition is going"
        return ""
