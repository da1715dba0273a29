"""LLMInferenceServices on a control plane: definitions, an operator that looks after them, a place to look at.

kwok makes Pods ready and nothing runs in them, so what the operator asks of a picker or a gateway is answered by a real
picker and a small page of this process (`Network`).
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.packages import ROOT
from tests.cluster.simulators import Site, served
from tests.waiting import eventually

from pointsman.api.llminferenceservice import CONFIG, SERVICE
from pointsman.core import health, tls
from pointsman.kube import Key, Object
from pointsman.kube.conditions import is_current
from pointsman.kube.errors import NotFound
from pointsman.operator.kinds import LLM_OWNERSHIP, SERVED

DEFINITIONS = ROOT / "config" / "crd" / "serving"
ALL: dict[str, Any] = {"route": {}, "gateway": {}, "scheduler": {}}


@contextmanager
def serving_defined(plane: ControlPlane) -> Iterator[None]:
    """Let the API server serve LLMInferenceServices and their configs."""
    files = {str(kind): DEFINITIONS / f"{kind.group}_{kind.plural}.yaml" for kind in (SERVICE, CONFIG)}
    with served(plane, {name: path.read_text() for name, path in files.items()}):
        yield


@dataclass
class Network:
    """Where names of the cluster lead in this process."""

    ports: dict[int, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def reach(self, host: str, port: int) -> tuple[str, int]:
        """Return where a name leads; where nobody is, to a port that refuses."""
        self.asked.append(f"{host}:{port}")
        return "127.0.0.1", self.ports.get(port, 1)


@asynccontextmanager
async def peers(*, alpn: tuple[str, ...] = ("h2",), path: str = "") -> AsyncIterator[Network]:
    """Be a picker that speaks TLS, and a gateway that has a page at `path`."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))

    context: ssl.SSLContext = tls.server_context(alpn=alpn)
    tls.load_self_signed(context)
    picker = await asyncio.start_server(speak, "127.0.0.1", 0, ssl=context)
    async with health.serve({path: lambda: health.text(200, "{}")}, host="127.0.0.1", port=0) as page:
        yield Network({9002: picker.sockets[0].getsockname()[1], 80: page})
    picker.close()


@dataclass(frozen=True)
class Services:
    """LLMInferenceServices of one namespace."""

    site: Site

    @property
    def namespace(self) -> str:
        return self.site.namespace

    async def create(self, name: str = "phi3", /, *, version: str = "v1alpha1", **spec: Any) -> None:
        """Create a service, by default as the oldest documents have it."""
        document = {
            "apiVersion": f"{SERVICE.group}/{version}",
            "kind": SERVICE.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        path = f"/apis/{SERVICE.group}/{version}/namespaces/{self.namespace}/{SERVICE.plural}"
        await self.site.client.request("POST", path, body=document)

    async def config(self, name: str, /, **spec: Any) -> None:
        """Create a config."""
        metadata = {"name": name, "namespace": self.namespace}
        document = {"apiVersion": CONFIG.api_version, "kind": CONFIG.kind, "metadata": metadata, "spec": spec}
        await self.site.client.create(CONFIG, document)

    async def edit(self, name: str = "phi3", /, *, metadata: dict[str, Any] | None = None, **spec: Any) -> None:
        """Change a service as `kubectl patch --type=merge` does."""
        body: dict[str, Any] = {"spec": spec} if spec else {}
        if metadata:
            body["metadata"] = metadata
        await self.site.client.patch(SERVICE, Key(self.namespace, name), body, how="merge")

    async def get(self, name: str = "phi3") -> Object:
        return await self.site.get(SERVICE, name)

    async def condition(self, type_: str, name: str = "phi3") -> dict[str, Any]:
        """Return a condition; an empty one when it is not there."""
        found = (await self.get(name)).get("status", {}).get("conditions") or []
        return next((one for one in found if one["type"] == type_), {})

    async def told(self, type_: str, status: str, reason: str, *, words: str = "", name: str = "phi3") -> str:
        """Wait for a condition whose message has these words, and return the message."""

        async def asked() -> str:
            found = await self.condition(type_, name)
            assert (found.get("status"), found.get("reason")) == (status, reason), found
            assert words in found["message"], found
            return str(found["message"])

        return await eventually(asked)

    async def ready(self, name: str = "phi3") -> Object:
        """Return a service once it is ready for what it asks now."""

        async def asked() -> Object:
            live = await self.get(name)
            assert live.get("status", {}).get("observedGeneration") == live["metadata"]["generation"], live
            assert is_current(live, "Ready"), live["status"]
            return live

        return await eventually(asked)

    async def made(self) -> dict[str, Object]:
        """Return everything that the operator has made here, by kind and name."""
        found: dict[str, Object] = {}
        for kind in SERVED:
            try:
                listed = await self.site.list(kind, LLM_OWNERSHIP.selector)
            except NotFound:  # the kind is not defined
                continue
            found |= {f"{kind.kind}/{one['metadata']['name']}": {"kind": kind.kind} | one for one in listed}
        return found

    async def becomes(self, expected: set[str]) -> None:
        """Wait until exactly these objects are here."""

        async def asked() -> None:
            found = set(await self.made())
            assert found == expected, found ^ expected

        await eventually(asked, every=0.25)

    async def clear(self) -> None:
        """Delete the services of the namespace."""
        await self.site.client.request("DELETE", SERVICE.path(self.namespace))
        await self.site.client.request("DELETE", CONFIG.path(self.namespace))
