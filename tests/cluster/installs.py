"""SchedulerInstalls on a control plane: two namespaces, and somebody who says about Gateways what Istio would say."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.conftest import NAMESPACE
from tests.cluster.simulators import ON, Site
from tests.unit.render.scheduler import installs
from tests.waiting import eventually

from pointsman.api import SCHEDULER_INSTALL
from pointsman.kube import Client, Key, Kind, Object
from pointsman.kube.conditions import is_current
from pointsman.kube.errors import NotFound, Stale
from pointsman.operator.kinds import GATEWAY, GATEWAY_CLASS, HTTP_ROUTE, INSTALLED, OWNERSHIP

WHOLE = installs.WHOLE | {"destinationRule": ON}
_OFF = "InferencePool is not enabled. To enable, set ENABLE_GATEWAY_API_INFERENCE_EXTENSION to true in istiod"


@dataclass
class Istio:
    """What the controller of class istio says: all is well, but perhaps it does not understand pools."""

    client: Client
    namespace: str
    understands: bool = True
    said: dict[tuple[str, int, bool], None] = field(default_factory=dict)

    async def run(self) -> None:
        """Write status until cancelled."""
        while True:
            for kind in (GATEWAY, HTTP_ROUTE):
                for live in json.loads(await self.client.request("GET", kind.path(self.namespace)))["items"]:
                    await self._say(kind, live)
            await asyncio.sleep(0.1)

    async def _say(self, kind: Kind, live: Object) -> None:
        metadata = live["metadata"]
        about = (metadata["uid"], metadata["generation"], self.understands)
        if about in self.said:
            return
        try:
            await self._write(kind, live)
        except (NotFound, Stale):
            return
        self.said = {known: None for known in self.said if known[:2] != about[:2]} | {about: None}

    async def _write(self, kind: Kind, live: Object) -> None:
        generation = live["metadata"]["generation"]
        if kind == GATEWAY:
            status: Object = {"conditions": [_condition("Programmed", generation)]}
        else:
            backends = [one for rule in live["spec"]["rules"] for one in rule.get("backendRefs", ())]
            pools = any(one["kind"] == "InferencePool" for one in backends)
            refused = ("InvalidKind", _OFF) if pools and not self.understands else None
            conditions = [_condition("Accepted", generation), _condition("ResolvedRefs", generation, refused)]
            parent = live["spec"]["parentRefs"][0]
            status = {
                "parents": [
                    {"parentRef": parent, "controllerName": "istio.io/gateway-controller", "conditions": conditions}
                ]
            }
        key = Key(self.namespace, live["metadata"]["name"])
        await self.client.patch(kind, key, {"status": status}, how="merge", subresource="status")


def _condition(type_: str, generation: int, refused: tuple[str, str] | None = None) -> Object:
    reason, message = refused or (type_, "")
    return {
        "type": type_,
        "status": "False" if refused else "True",
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


@asynccontextmanager
async def istio(client: Client, namespace: str) -> AsyncIterator[Istio]:
    """Let class istio be accepted, and its controller speak, while the block runs."""
    await client.create(
        GATEWAY_CLASS,
        {
            "apiVersion": GATEWAY_CLASS.api_version,
            "kind": GATEWAY_CLASS.kind,
            "metadata": {"name": "istio"},
            "spec": {"controllerName": "istio.io/gateway-controller"},
        },
    )
    status = {"status": {"conditions": [_condition("Accepted", 1)]}}
    await client.patch(GATEWAY_CLASS, Key("", "istio"), status, how="merge", subresource="status")
    speaker = Istio(client, namespace)
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(speaker.run())
            yield speaker
            task.cancel()
    finally:
        await client.delete(GATEWAY_CLASS, Key("", "istio"))


@dataclass(frozen=True)
class Installs:
    """The scheduler's namespace, and the model servers'."""

    here: Site
    there: Site

    @property
    def client(self) -> Client:
        return self.here.client

    async def create(self, name: str = "install", /, namespace: str = "", **spec: Any) -> None:
        """Create an install in the scheduler's namespace, or in another."""
        document = {
            "apiVersion": SCHEDULER_INSTALL.api_version,
            "kind": SCHEDULER_INSTALL.kind,
            "metadata": {"name": name, "namespace": namespace or self.here.namespace},
            "spec": {"simulatorNamespace": self.there.namespace, **spec},
        }
        await self.client.create(SCHEDULER_INSTALL, document)

    async def edit(self, name: str = "install", /, **spec: Any) -> None:
        """Change an install as `kubectl patch --type=merge` does; None takes a field away."""
        await self.client.patch(SCHEDULER_INSTALL, Key(self.here.namespace, name), {"spec": spec}, how="merge")

    async def delete(self, name: str = "install") -> None:
        """Delete an install."""
        await self.client.delete(SCHEDULER_INSTALL, Key(self.here.namespace, name))

    async def made(self) -> set[str]:
        """Return what the operator has made for installs: h/ for the scheduler's namespace, t/ for the other."""
        found: set[str] = set()
        for mark, site in (("h", self.here), ("t", self.there)):
            for kind in INSTALLED:
                # The control plane copies the labels of our Services to slices that are its own.
                own = [one for one in await _list(site, kind) if not _is_controlled_by_a_service(one)]
                found |= {f"{mark}/{kind.kind}/{one['metadata']['name']}" for one in own if _is_of_an_install(one)}
        return found

    async def becomes(self, *expected: str) -> None:
        """Wait until exactly these objects are there."""

        async def asked() -> None:
            found = await self.made()
            assert found == set(expected), found ^ set(expected)

        await eventually(asked, every=0.25)

    async def has(self, *expected: str) -> None:
        """Wait until these objects are there, whatever else is."""

        async def asked() -> None:
            missing = set(expected) - await self.made()
            assert not missing, missing

        await eventually(asked, every=0.25)

    async def live(self, name: str = "install", *, namespace: str = "") -> Object:
        """Return an install as the server has it."""
        return await self.client.get(SCHEDULER_INSTALL, Key(namespace or self.here.namespace, name))

    async def condition(self, type_: str, name: str = "install", *, namespace: str = "") -> dict[str, Any]:
        """Return a condition of an install; an empty one when it is not there."""
        found = (await self.live(name, namespace=namespace)).get("status", {}).get("conditions", [])
        return next((one for one in found if one["type"] == type_), {})

    async def told(
        self, type_: str, status: str, reason: str, name: str = "install", *, words: str = "", namespace: str = ""
    ) -> str:
        """Wait for a condition whose message has these words, and return the message."""

        async def asked() -> str:
            found = await self.condition(type_, name, namespace=namespace)
            assert (found.get("status"), found.get("reason")) == (status, reason), found
            assert words in found["message"], found
            return str(found["message"])

        return await eventually(asked)

    async def ready(self, name: str = "install", *, namespace: str = "") -> Object:
        """Return an install once it is ready for what it asks now."""

        async def asked() -> Object:
            live = await self.live(name, namespace=namespace)
            status = live.get("status", {})
            assert status.get("observedGeneration") == live["metadata"]["generation"], live
            assert is_current(live, "Ready"), [one for one in status["conditions"] if one["status"] != "True"]
            return live

        return await eventually(asked)

    async def clear(self) -> None:
        """Delete the installs of both namespaces, and wait until they are gone."""
        for site in (self.here, self.there):
            await self.client.request("DELETE", SCHEDULER_INSTALL.path(site.namespace))

        async def asked() -> None:
            left = [await site.list(SCHEDULER_INSTALL) for site in (self.here, self.there)]
            assert left == [[], []], left

        await eventually(asked)


async def _list(site: Site, kind: Kind) -> list[Object]:
    try:
        return await site.list(kind, OWNERSHIP.selector)
    except NotFound:
        return []


def _is_controlled_by_a_service(live: Object) -> bool:
    return any(one["kind"] == "Service" for one in live["metadata"].get("ownerReferences", ()))


def _is_of_an_install(live: Object) -> bool:
    owner = str(live["metadata"].get("annotations", {}).get(OWNERSHIP.annotation, ""))
    return owner.startswith(f"{SCHEDULER_INSTALL}/")


@asynccontextmanager
async def namespaces(site: Site) -> AsyncIterator[Installs]:
    """Make a second namespace beside a site's."""
    name = f"{site.namespace}-sim"
    await site.client.create(NAMESPACE, {"metadata": {"name": name}})
    there = Site(site.plane, site.client, name)
    yield Installs(site, there)
    await there.clear()
    await site.client.delete(NAMESPACE, Key("", name))
