"""Carry out what `crds` decides: read, apply, wait, migrate and delete definitions on one API server.

Every write is a server-side apply under one field manager and names the uid it was decided for; the two exceptions have
no field to share (an object rewritten as it is, the list of stored versions). Every step may be repeated: whoever was
interrupted runs again and continues. A server that does not answer is asked again until `patience` is over.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from pointsman.core.errors import Unavailable
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION as CRD
from pointsman.core.kinds import Key, Kind, Object, Source
from pointsman.crds.consumers import Consumer, consumers
from pointsman.crds.decide import Intent, Verdict, decide, ending
from pointsman.crds.definition import Definition
from pointsman.crds.marks import MANAGER, OWNER, STAMP
from pointsman.crds.migration import PAGE, Progress, bridge, progress
from pointsman.crds.previous import MIGRATION
from pointsman.kube.client import Client
from pointsman.kube.conditions import truth_of
from pointsman.kube.errors import ApiError, NotFound, Stale, Unreachable
from pointsman.kube.ownership import MANAGED_BY
from pointsman.operator.kinds import DEPLOYMENT, HTTP_ROUTE

T = TypeVar("T")
_MIGRATOR = f"{MANAGER}-migration"
_TOGETHER = 10
_LARGEST = 1_500_000
"""What etcd takes in one request, where nobody raised it."""


@dataclass(frozen=True)
class Use:
    """Why a definition cannot go: how many objects each namespace has, who uses it, and what could not be found out."""

    objects: Counter[str]
    by: tuple[Consumer, ...] = ()
    unknown: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.objects or self.by or self.unknown)


class Definitions:
    """The definitions of one cluster, on behalf of one owner."""

    def __init__(
        self,
        client: Client,
        *,
        owner: str = OWNER,
        patience: float = 60.0,
        pause: float = 0.1,
        page: int = PAGE,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._owner = owner
        self._patience = patience
        self._pause = pause
        self._page = page
        self._say = say

    async def get(self, name: str) -> Object | None:
        """Return a definition, or None when there is none of that name."""
        try:
            return await self._asked(lambda: self._client.get(CRD, Key("", name)))
        except NotFound:
            return None

    async def owned(self) -> list[str]:
        """Return the names of the definitions that carry our stamp."""
        source = Source(CRD, labels=f"{MANAGED_BY}={OWNER}", metadata_only=True)
        found = await self._pages(CRD.path(), parameters=source.parameters(), accept=source.accept(many=True))
        return sorted(
            item["metadata"]["name"]
            for item in found
            if (item["metadata"].get("annotations") or {}).get(STAMP) == self._owner
        )

    async def decide(self, wanted: Definition, intent: Intent) -> tuple[Verdict, Object | None]:
        """Return what is to be done about a definition, and what is there."""
        live = await self.get(wanted.name)
        return decide(wanted, live, intent=intent), live

    async def carry_out(self, decision: Verdict, live: Object | None) -> Object | None:
        """Do what was decided and return the definition as it is then; None when nothing was to be done."""
        if not decision.document:
            return None
        if live is None:
            return await self._create(decision)
        uid = live["metadata"]["uid"]
        if decision.migrate:
            await self._migrate(Definition(live), Definition(decision.document))
        return await self._apply(decision.document, uid=uid)

    async def release(self, name: str) -> None:
        """Take our stamp off a definition that another holds."""
        await self._patch({"metadata": {"name": name}}, force=False, manager=MANAGER)

    async def established(self, name: str) -> Object:
        """Return the definition once the API server serves it.

        Raises Unavailable with the server's own reason when it does not in time.
        """
        why = "it is not there"

        async def look() -> Object | None:
            nonlocal why
            live = await self.get(name)
            if live is None:
                return None
            why = _unserved(live)
            return live if truth_of(live, "Established") == "True" else None

        return await self._until(look, lambda: f"{name} is not served after {self._patience:g} s: {why}")

    async def gone(self, name: str) -> None:
        """Return once there is no such definition; raises Unavailable saying what holds it."""
        why = ""

        async def look() -> bool | None:
            nonlocal why
            live = await self.get(name)
            why = ending(live) if live else ""
            return True if live is None else None

        await self._until(look, lambda: f"{name} is still there after {self._patience:g} s: it {why}")

    async def delete(self, live: Object) -> None:
        """Delete a definition, and only the one that was looked at."""
        key = Key("", live["metadata"]["name"])
        try:
            await self._asked(lambda: self._client.delete(CRD, key, uid=live["metadata"]["uid"]))
        except NotFound:
            pass

    async def objects(self, definition: Definition) -> list[tuple[str, str]]:
        """Return namespace and name of every object of the definition, in order."""
        source = Source(definition.kind, metadata_only=True)
        path = definition.kind.path()
        items = await self._pages(path, parameters={}, accept=source.accept(many=True))
        return sorted((item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in items)

    async def consumers(self) -> tuple[list[Consumer], list[str]]:
        """Return who uses the definitions, and what we could not look at."""
        found: list[list[Any]] = []
        unknown: list[str] = []
        for kind in (DEPLOYMENT, HTTP_ROUTE):
            try:
                found.append(await self._pages(kind.path(), parameters={}))
            except NotFound:  # no Gateway API, no routes
                found.append([])
            except ApiError as error:
                found.append([])
                unknown.append(f"{kind} cannot be listed: {error}")
        return consumers(*found), unknown

    async def use(self, definition: Definition, *, by: Sequence[Consumer], unknown: Sequence[str] = ()) -> Use:
        """Return why a definition cannot go."""
        blind = list(unknown)
        try:
            objects = Counter(namespace or "(cluster)" for namespace, _ in await self.objects(definition))
        except NotFound:
            objects = Counter()
        except ApiError as error:
            objects = Counter()
            blind.append(f"its objects cannot be listed: {error}")
        users = tuple(one for one in by if definition.name in one.uses)
        return Use(objects, users, tuple(blind))

    # Writing

    async def _create(self, decision: Verdict) -> Object | None:
        """Create a definition; give way when another did so in between."""
        try:
            made = await self._apply(decision.document)
        except Stale:
            raise Unavailable(f"{decision.name} was created by another just now: look at it, then run again") from None
        others = {
            entry.get("manager")
            for entry in made["metadata"].get("managedFields", [])
            if entry.get("manager") != MANAGER and not entry.get("subresource")
        }
        if others:
            await self.release(decision.name)
            names = ", ".join(sorted(map(str, others)))
            raise Unavailable(f"{decision.name} was created by {names} just now: look at it, then run again")
        return made

    async def _apply(self, document: Object, *, uid: str = "") -> Object:
        body = document if not uid else {**document, "metadata": {**document["metadata"], "uid": uid}}
        # Forced only on what is there and was looked at: another's fresh object must answer with a conflict.
        return await self._patch(body, force=bool(uid), manager=MANAGER)

    async def _patch(self, body: Object, *, force: bool, manager: str) -> Object:
        whole = {"apiVersion": CRD.api_version, "kind": CRD.kind, **body}
        key = Key("", whole["metadata"]["name"])
        parameters = {"fieldManager": manager, "force": str(force).lower()}
        try:
            return await self._asked(lambda: self._client.patch(CRD, key, whole, how="apply", parameters=parameters))
        except ApiError as error:
            size = len(msgspec.json.encode(whole))
            if error.code != 413 and not any(word in str(error) for word in ("too large", "larger than max")):
                raise
            raise Unavailable(
                f"{key.name} has {size} bytes and the API server does not take it ({error}): shorten its "
                f"descriptions; etcd takes {_LARGEST} bytes unless --max-request-bytes says more"
            ) from None

    # Migrating

    async def _migrate(self, live: Definition, wanted: Definition) -> None:
        """Rewrite the objects of versions that go, then let the API server forget these versions."""
        between = bridge(live, wanted)
        uid = live.document["metadata"]["uid"]
        await self._apply(between.document, uid=uid)
        await self.established(live.name)
        done = progress(live, to=wanted.storage)
        await self._stored_as(wanted.storage, name=live.name)
        keys = [key for key in await self.objects(wanted) if key > done.after]
        total = done.done + len(keys)
        for start in range(0, len(keys), self._page):
            batch = keys[start : start + self._page]
            for few in range(0, len(batch), _TOGETHER):
                async with asyncio.TaskGroup() as group:
                    for key in batch[few : few + _TOGETHER]:
                        group.create_task(self._rewrite(wanted.kind, Key(*key)))
            done = Progress(to=wanted.storage, done=done.done + len(batch), after=batch[-1])
            await self._note(live.name, uid, {MIGRATION: done.text()})
            self._say(f"{live.name}: {done.done} of {total} objects are stored as {wanted.storage}")
        await self._forget(live.name, wanted.storage)
        await self._note(live.name, uid, {})

    async def _stored_as(self, version: str, *, name: str) -> None:
        """Wait until the API server writes objects in this version."""

        async def look() -> bool | None:
            live = await self.get(name)
            return True if live is not None and version in Definition(live).stored else None

        await self._until(look, lambda: f"{name} does not store objects as {version} after {self._patience:g} s")

    async def _rewrite(self, kind: Kind, key: Key) -> None:
        try:
            await self._asked(lambda: self._client.patch(kind, key, {}, how="merge"))
        except NotFound:  # deleted meanwhile
            pass

    async def _note(self, name: str, uid: str, annotations: dict[str, str]) -> None:
        """Keep progress under a manager of its own: the definition is applied without it."""
        metadata = {"name": name, "uid": uid, **({"annotations": annotations} if annotations else {})}
        await self._patch({"metadata": metadata}, force=True, manager=_MIGRATOR)

    async def _forget(self, name: str, storage: str) -> None:
        live = await self.get(name)
        if live is None:
            return
        version = live["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": {"storedVersions": [storage]}}
        await self._asked(lambda: self._client.patch(CRD, Key("", name), body, how="merge", subresource="status"))

    # Asking

    async def _pages(self, path: str, *, parameters: dict[str, str], accept: str = "application/json") -> list[Any]:
        items: list[Any] = []
        asked = {**parameters, "limit": "500"}
        while True:
            answer = await self._asked(lambda: self._client.request("GET", path, parameters=dict(asked), accept=accept))
            page = msgspec.json.decode(answer)
            items += page.get("items") or []
            following = page["metadata"].get("continue")
            if not following:
                return items
            asked["continue"] = following

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer, asking again while there is none."""
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + self._patience, self._pause
        while True:
            try:
                return await ask()
            except Unreachable:
                if clock() > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    async def _until(self, look: Callable[[], Awaitable[T | None]], complaint: Callable[[], str]) -> T:
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + self._patience, self._pause / 4
        while True:
            found = await look()
            if found is not None:
                return found
            if clock() > deadline:
                raise Unavailable(complaint())
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)


def _unserved(live: Object) -> str:
    """Return why the API server does not serve a definition, in its own words."""
    if "deletionTimestamp" in live["metadata"]:
        return f"it {ending(live)}"
    refused = [
        f"{one['type']} is {one['status']}: {one.get('message') or one.get('reason', '')}"
        for one in live.get("status", {}).get("conditions") or []
        if (one["status"] != "True" and one["type"] in {"NamesAccepted", "Established"})
        or (one["type"] == "NonStructuralSchema" and one["status"] == "True")
    ]
    return "; ".join(refused) or "the API server has not looked at it yet"
