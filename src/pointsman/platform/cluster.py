"""One cluster, as the platform's steps need it: any kind of object, and patience with an API server that comes back.

Owns how objects of every kind are addressed (by asking the server what it serves), applied and deleted, and how long
is waited. An object without our label is never written: `put` says whose it is instead. Every request is repeated
while the server cannot be reached, until the patience is over; writes are server-side apply: repeating one changes
nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from pointsman.core.errors import Unavailable
from pointsman.kube import Client, Key, Kind, Object
from pointsman.kube.errors import ApiError, NotFound, Stale, Unreachable
from pointsman.platform.marks import MANAGER, component_of

T = TypeVar("T")
Put = Literal["created", "updated", "foreign"]
PAGE = 500
_MOST_PAGES = 1000
_CLEARABLE = frozenset({"list", "delete"})


class Ref(NamedTuple):
    """Which object, of which kind."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def ref_of(document: Object) -> Ref:
    """Return which object a document is."""
    metadata = document["metadata"]
    return Ref(document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"])


class Cluster:
    """The API server, any kind of object."""

    def __init__(
        self,
        client: Client,
        *,
        patience: float,
        pause: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self.patience = patience
        self._pause = pause
        self._clock = clock
        self._say = say
        self._kinds: dict[tuple[str, str], Kind] = {}

    async def get(self, ref: Ref) -> Object | None:
        """Return an object, or nothing when it, or its kind, is not there."""
        kind = await self.kind(ref.api_version, ref.kind)
        if kind is None:
            return None
        try:
            return await self._asked(lambda: self._client.get(kind, _key(kind, ref)))
        except NotFound:
            return None

    async def put(self, document: Object) -> Put:
        """Apply an object, unless there is one that is not ours; raises Unavailable when its kind is not served."""
        ref = ref_of(document)
        kind = await self.until(lambda: self.kind(*ref[:2]), lambda: f"{ref}: the API server serves no {ref.kind}")
        live = await self.get(ref)
        if live is not None and "deletionTimestamp" in live["metadata"]:
            await self.gone(ref)
            live = None
        if live is not None and not component_of(live):
            return "foreign"
        # Forced only on what is ours: a name that was taken a moment ago must answer with a conflict.
        parameters = {"fieldManager": MANAGER, "force": str(live is not None).lower()}
        if live is not None:
            document = {**document, "metadata": {**document["metadata"], "uid": live["metadata"]["uid"]}}
        await self._asked(
            lambda: self._client.patch(kind, _key(kind, ref), document, how="apply", parameters=parameters)
        )
        return "created" if live is None else "updated"

    async def annotate(self, ref: Ref, annotations: Mapping[str, str]) -> None:
        """Put annotations on an object of anybody's."""
        kind = await self.kind(*ref[:2])
        assert kind is not None
        body = {"metadata": {"annotations": dict(annotations)}}
        await self._asked(lambda: self._client.patch(kind, _key(kind, ref), body, how="merge"))

    async def merge(self, ref: Ref, body: Mapping[str, Any]) -> Object:
        """Merge a patch into an object of ours."""
        kind = await self.kind(*ref[:2])
        assert kind is not None
        return await self._asked(lambda: self._client.patch(kind, _key(kind, ref), dict(body), how="merge"))

    async def replace(self, document: Object) -> Object:
        """Write a whole object back on the version that was read; raises Stale when there is a newer one."""
        kind = await self.kind(document["apiVersion"], document["kind"])
        assert kind is not None
        return await self._asked(lambda: self._client.replace(kind, document))

    async def delete(self, live: Object) -> None:
        """Delete this very object; one that is gone, or another of its name, is left."""
        ref = ref_of(live)
        kind = await self.kind(*ref[:2])
        if kind is None:
            return
        try:
            await self._asked(lambda: self._client.delete(kind, _key(kind, ref), uid=live["metadata"]["uid"]))
        except (NotFound, Stale):
            return

    async def gone(self, ref: Ref, *, patience: float | None = None) -> None:
        """Return once there is no such object; raises Unavailable with what holds it."""
        held = ""

        async def look() -> bool | None:
            nonlocal held
            live = await self.get(ref)
            held = "" if live is None else holds(live)
            return True if live is None else None

        await self.until(look, lambda: f"{ref} does not go: {held}", patience=patience)

    async def listed(self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = "") -> list[Object]:
        """Return the objects of a kind; none when it is not served."""
        parameters = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields, "continue": ""}
        found: list[Object] = []
        for _ in range(_MOST_PAGES):
            asked = {name: value for name, value in parameters.items() if value}
            try:
                text = await self.request(kind.path(namespace), parameters=asked)
            except NotFound:
                return found
            page = msgspec.json.decode(text)
            found.extend(
                {"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or []
            )
            parameters["continue"] = (page.get("metadata") or {}).get("continue", "")
            if not parameters["continue"]:
                break
        return found

    async def kind(self, api_version: str, name: str) -> Kind | None:
        """Return how a kind is served; nothing when it is not."""
        if (api_version, name) not in self._kinds:
            for kind in await self._served(api_version):
                self._kinds[api_version, kind.kind] = kind
        return self._kinds.get((api_version, name))

    async def kinds(self) -> list[Kind]:
        """Return every kind that can be listed and deleted, in the version that the server prefers."""
        groups = msgspec.json.decode(await self._asked(lambda: self._client.request("GET", "/apis")))
        versions = ["v1", *(each["preferredVersion"]["groupVersion"] for each in groups.get("groups") or [])]
        return [kind for version in versions for kind in await self._served(version, verbs=_CLEARABLE)]

    async def forget(self) -> None:
        """Ask again what is served: a definition came or went."""
        self._kinds.clear()

    async def request(self, path: str, *, parameters: Mapping[str, str] | None = None) -> bytes:
        """Return what the server answers to a GET."""
        return await self._asked(lambda: self._client.request("GET", path, parameters=parameters))

    async def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """Post a document that is a question, such as a review of rights."""
        answer: Object = msgspec.json.decode(
            await self._asked(lambda: self._client.request("POST", path, body=dict(body)))
        )
        return answer

    async def until(
        self,
        look: Callable[[], Awaitable[T | None]],
        why: Callable[[], str],
        *,
        patience: float | None = None,
    ) -> T:
        """Return what `look` finds once it finds something; raises Unavailable when the patience is over."""
        limit = self._clock() + (self.patience if patience is None else patience)
        while True:
            found = await look()
            if found is not None:
                return found
            if self._clock() >= limit:
                raise Unavailable(why())
            await asyncio.sleep(self._pause)

    async def answers(self) -> bool:
        """Say whether the API server answers now."""
        try:
            await self._client.request("GET", "/version")
        except (Unreachable, ApiError):
            return False
        return True

    async def _served(self, api_version: str, *, verbs: frozenset[str] = frozenset()) -> list[Kind]:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            answer = msgspec.json.decode(await self._asked(lambda: self._client.request("GET", path)))
        except NotFound:
            return []
        group, _, version = api_version.rpartition("/")
        return [
            Kind(group, version, each["kind"], each["name"], namespaced=bool(each["namespaced"]))
            for each in answer.get("resources") or []
            if "/" not in each["name"] and verbs <= set(each.get("verbs") or ())
        ]

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer, asking again while the server cannot be reached or says that it is not itself."""
        limit = self._clock() + self.patience
        told = False
        while True:
            try:
                return await ask()
            except (Unreachable, ApiError) as error:
                passing = isinstance(error, Unreachable) or error.code >= 500 or error.code == 429
                if not passing:
                    raise
                if self._clock() >= limit:
                    raise Unavailable(f"the API server does not answer: {error}") from error
                if not told:
                    self._say(f"the API server does not answer ({error}); trying again")
                    told = True
            await asyncio.sleep(self._pause)


def holds(live: Object) -> str:
    """Return what keeps an object from going: its finalizers, or what a namespace says of itself."""
    finalizers = [*(live["metadata"].get("finalizers") or []), *(live.get("spec", {}).get("finalizers") or [])]
    told = [
        str(each.get("message"))
        for each in (live.get("status") or {}).get("conditions") or []
        if each.get("status") == "True" and str(each.get("type", "")).startswith("Namespace") and each.get("message")
    ]
    return "; ".join([*told, *([f"finalizers {', '.join(finalizers)}"] if finalizers else [])]) or "it is there"


def _key(kind: Kind, ref: Ref) -> Key:
    return Key(ref.namespace if kind.namespaced else "", ref.name)
