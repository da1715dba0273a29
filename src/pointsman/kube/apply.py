"""Make the cluster hold what was rendered: plan, then write only what differs.

`plan` is pure: documents wanted and documents observed in, actions out. `Applier` is its shell: it reads the
caches (the server only for names that no cache holds), carries the actions out with server-side apply under
one field manager, and feeds the answers back into the caches, so that the next reconcile sees its own writes.

Invariants: at rest nothing is written, not even a write that the server would find empty; an object of
another owner is never touched, and meeting one refuses the whole plan before its first write; a write or
deletion names the uid it was planned for, so it cannot hit a successor of the same name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from pointsman.core.kinds import Key, Kind, Object, key_of
from pointsman.kube.client import Client
from pointsman.kube.errors import ApiError, Conflict, NotFound
from pointsman.kube.ownership import Owner, Ownership, claim, holder, stamp
from pointsman.kube.settled import is_settled, owned_values
from pointsman.kube.store import Entry, Store, entry

Address = tuple[Kind, Key]
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Write:
    """Apply this document; `uid` is empty when it is to be created."""

    kind: Kind
    key: Key
    document: Object
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object of this uid."""

    kind: Kind
    key: Key
    uid: str


Action = Write | Delete


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """What a convergence did."""

    written: tuple[Address, ...] = ()
    deleted: tuple[Address, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.written or self.deleted)


def plan(
    wanted: Mapping[Address, Object],
    observed: Mapping[Address, Object],
    *,
    owner: Owner,
    ownership: Ownership,
    settled: Callable[[Address, Object, Object], bool],
) -> list[Action]:
    """Return the writes in the order of `wanted`, then the deletions in the reverse order of `observed`.

    Raises Conflict when a wanted name is taken by an object that is not this owner's.
    """
    actions: list[Action] = []
    for address, document in wanted.items():
        live = observed.get(address)
        if live is None:
            actions.append(Write(*address, document))
            continue
        if claim(live, owner=owner, ownership=ownership) == "foreign":
            raise Conflict(f"{address[0]} {address[1]}", holder=holder(live, ownership=ownership))
        # One that is being deleted comes back by its deletion event; writing to it would be lost work.
        if "deletionTimestamp" not in live["metadata"] and not settled(address, document, live):
            actions.append(Write(*address, document, live["metadata"]["uid"]))
    for address, live in reversed(list(observed.items())):
        ours = claim(live, owner=owner, ownership=ownership) == "ours"
        if address not in wanted and ours and "deletionTimestamp" not in live["metadata"]:
            actions.append(Delete(*address, live["metadata"]["uid"]))
    return actions


class Applier:
    """Writes on behalf of owners, under one field manager."""

    def __init__(
        self,
        client: Client,
        *,
        ownership: Ownership,
        stores: Mapping[Kind, Store],
        absorb: Callable[[Entry], None],
    ) -> None:
        self._client = client
        self._ownership = ownership
        self._stores = stores
        self._absorb = absorb
        self._normalised: dict[Address, tuple[bytes, bytes]] = {}

    async def converge(self, owner: Owner, desired: Sequence[Object], *, kinds: Iterable[Kind]) -> ApplyOutcome:
        """Apply the documents and delete what this owner has of `kinds` beside them.

        Raises Conflict before the first write when a name is taken; Unreachable as it comes. What the server refuses
        does not keep the rest from being written: the first ApiError is raised at the end, and then nothing was
        deleted, because what should take its place may be missing.
        """
        watched = tuple(kinds)
        wanted = self._address(owner, desired, kinds=watched)
        observed = await self._observe(owner, wanted, kinds=watched)
        actions = plan(wanted, observed, owner=owner, ownership=self._ownership, settled=self._is_settled)
        writes = [action for action in actions if isinstance(action, Write)]
        deletions = [action for action in actions if isinstance(action, Delete)]
        refused: ApiError | None = None
        for write in writes:
            try:
                await self._write(write)
            except ApiError as error:
                refused = refused or error
        if refused is not None:
            raise refused
        for deletion in deletions:
            await self._delete(deletion)
        return ApplyOutcome(
            tuple((action.kind, action.key) for action in writes),
            tuple((action.kind, action.key) for action in deletions),
        )

    async def remove(self, owner: Owner, *, kinds: Iterable[Kind]) -> bool:
        """Delete everything that the owner has of `kinds`; True once nothing is left."""
        watched = tuple(kinds)
        await self.converge(owner, (), kinds=watched)
        return not any(self._owned(owner, kind) for kind in watched)

    async def status(self, kind: Kind, document: Object, status: Mapping[str, Any]) -> bool:
        """Apply the status of a document; False when it was so already."""
        identity = {
            name: document["metadata"][name] for name in ("name", "namespace", "uid") if name in document["metadata"]
        }
        wanted: Object = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": identity,
            "status": dict(status),
        }
        if is_settled(wanted, document, manager=self._ownership.manager, subresource="status"):
            return False
        await self._apply(kind, wanted, force=True, subresource="status")
        return True

    async def add_finalizer(self, kind: Kind, document: Object, name: str) -> bool:
        """Put the finalizer on the document; False when it is there. Raises Stale on an old document."""
        present = document["metadata"].get("finalizers", [])
        if name in present:
            return False
        await self._finalizers(kind, document, [*present, name])
        return True

    async def drop_finalizer(self, kind: Kind, document: Object, name: str) -> bool:
        """Take the finalizer off the document; False when it is not there. Raises Stale when old."""
        present = document["metadata"].get("finalizers", [])
        if name not in present:
            return False
        await self._finalizers(kind, document, [other for other in present if other != name])
        return True

    async def _finalizers(self, kind: Kind, document: Object, names: list[str]) -> None:
        version = document["metadata"]["resourceVersion"]
        body = {"metadata": {"finalizers": names, "resourceVersion": version}}
        try:
            answer = await self._client.patch(kind, key_of(document), body, how="merge")
        except NotFound:
            return
        # An answer to the removal of the last finalizer shows an object that no longer exists.
        if names or "deletionTimestamp" not in answer["metadata"]:
            self._take(kind, answer)

    def _address(self, owner: Owner, desired: Sequence[Object], *, kinds: Sequence[Kind]) -> dict[Address, Object]:
        names = {(kind.api_version, kind.kind): kind for kind in kinds}
        wanted: dict[Address, Object] = {}
        for document in desired:
            kind = names.get((document["apiVersion"], document["kind"]))
            if kind is None:
                raise LookupError(f"{document['apiVersion']} {document['kind']} is not among the kinds to converge")
            wanted[kind, key_of(document)] = stamp(document, owner=owner, ownership=self._ownership)
        return wanted

    async def _observe(
        self, owner: Owner, wanted: Mapping[Address, Object], *, kinds: Sequence[Kind]
    ) -> dict[Address, Object]:
        observed: dict[Address, Object] = {}
        for kind in kinds:
            observed |= {(kind, item.key): item.read() for item in self._owned(owner, kind)}
        for kind, key in wanted:
            if (kind, key) not in observed:
                live = await self._look(kind, key)
                if live is not None:
                    observed[kind, key] = live
        return observed

    def _owned(self, owner: Owner, kind: Kind) -> list[Entry]:
        store = self._stores[kind]
        store.add_index(self._ownership.label, self._ownership.index)
        return store.find(self._ownership.label, owner.uid)

    async def _look(self, kind: Kind, key: Key) -> Object | None:
        """Ask the server: a cache narrowed to our own objects cannot know that a name is another's."""
        cached = self._stores[kind].get(key)
        if cached is not None:
            return cached.read()
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return None

    def _is_settled(self, address: Address, wanted: Object, live: Object) -> bool:
        if is_settled(wanted, live, manager=self._ownership.manager):
            return True
        return self._normalised.get(address) == (_digest(wanted), self._ours(live))

    def _ours(self, live: Object) -> bytes:
        return _digest(owned_values(live, manager=self._ownership.manager))

    async def _write(self, action: Write) -> None:
        document = action.document
        if action.uid:
            document = {**document, "metadata": {**document["metadata"], "uid": action.uid}}
        # Forced only on what is ours: a name that was taken a moment ago must answer with a conflict.
        answer = await self._apply(action.kind, document, force=bool(action.uid))
        address = (action.kind, action.key)
        self._normalised.pop(address, None)
        if not is_settled(action.document, answer, manager=self._ownership.manager):
            # The server spells a value its own way (1000m as 1): remember that this is what ours becomes.
            if len(self._normalised) >= REMEMBERED:  # the oldest costs at most one write that changes nothing
                del self._normalised[next(iter(self._normalised))]
            self._normalised[address] = (_digest(action.document), self._ours(answer))

    async def _delete(self, action: Delete) -> None:
        self._normalised.pop((action.kind, action.key), None)
        try:
            await self._client.delete(action.kind, action.key, uid=action.uid)
        except NotFound:
            pass

    async def _apply(self, kind: Kind, document: Object, *, force: bool, subresource: str = "") -> Object:
        parameters = {"fieldManager": self._ownership.manager, "force": str(force).lower()}
        answer = await self._client.patch(
            kind, key_of(document), document, how="apply", subresource=subresource, parameters=parameters
        )
        self._take(kind, answer)
        return answer

    def _take(self, kind: Kind, answer: Object) -> None:
        if kind in self._stores:
            self._absorb(entry(kind, msgspec.json.encode(answer)))


def _digest(document: Any) -> bytes:
    return blake2b(msgspec.json.encode(document, order="sorted"), digest_size=16).digest()
