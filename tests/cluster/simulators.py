"""SimulatorDeployments on a control plane: the definitions that a stack can use, an operator, a place to look at."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.assets import Missing
from tests.cluster.controlplane import DEFINITION_PATIENCE, ControlPlane
from tests.cluster.packages import ROOT
from tests.istio import assets as istio
from tests.waiting import eventually, wait_until

from pointsman.api import SCHEDULER_INSTALL, SIMULATOR_DEPLOYMENT
from pointsman.kube import Client, Key, Kind, Object, connect
from pointsman.kube.conditions import is_current
from pointsman.kube.errors import Forbidden, NotFound
from pointsman.operator.kinds import MADE, OWNERSHIP
from pointsman.operator.process import OperatorProcess, ProcessPlan

SAMPLES = ROOT / "config" / "samples"
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")
POD = Kind("", "v1", "Pod", "pods")
SECRET = Kind("", "v1", "Secret", "secrets")
QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
ON: dict[str, Any] = {"enabled": True}
# Every kind of object that a stack can have, where nobody makes Pods of Gateways.
EVERYTHING: dict[str, Any] = {
    "epp": ON,
    "inferenceGateway": ON | {"standard": ON, "istio": ON},
    "gateway": ON | {"routeName": "old-route"},
    "loadBalancing": ON,
    "prefill": ON,
    "decode": ON,
}
_LOOK = 0.25  # seconds between two looks at everything, which is a dozen requests
# As their projects publish them; of each project only what a stack has to do with.
_PUBLISHED = {
    "gatewayclasses.gateway.networking.k8s.io": "gateway.networking.k8s.io_gatewayclasses.yaml",
    "gateways.gateway.networking.k8s.io": "gateway.networking.k8s.io_gateways.yaml",
    "httproutes.gateway.networking.k8s.io": "gateway.networking.k8s.io_httproutes.yaml",
    "referencegrants.gateway.networking.k8s.io": "gateway.networking.k8s.io_referencegrants.yaml",
    "inferencepools.inference.networking.k8s.io": "inference.networking.k8s.io_inferencepools.yaml",
    "destinationrules.networking.istio.io": "istio.yaml",
    "envoyfilters.networking.istio.io": "istio.yaml",
}


def sample(name: str) -> Path:
    """Return the file of a sample."""
    return SAMPLES / f"sim_v1alpha1_simulatordeployment_{name}.yaml"


@contextmanager
def defined(plane: ControlPlane, *, mesh: bool = True) -> Iterator[None]:
    """Let the API server serve SimulatorDeployments and, with `mesh`, what else a stack can consist of."""
    if not plane.complete:
        pytest.skip("stacks need Deployments to become Pods: this control plane has no controllers")
    ours = {
        str(kind): (ROOT / "config" / "crd" / f"{kind.group}_{kind.plural}.yaml").read_text()
        for kind in (SIMULATOR_DEPLOYMENT, SCHEDULER_INSTALL)
    }
    with ExitStack() as stack:
        stack.enter_context(served(plane, ours))
        if mesh:
            stack.enter_context(published(plane))
        yield


@contextmanager
def published(plane: ControlPlane) -> Iterator[None]:
    """Let the API server serve what other projects define and a stack can use."""
    try:
        crds = istio.find() / "crds"
    except Missing as reason:
        pytest.skip(f"no definitions of Istio, the Gateway API and InferencePool: {reason}")
    found: dict[str, str] = {}
    for name, file in _PUBLISHED.items():
        # As text: they are large, and nobody here reads them.
        parts = f"\n{(crds / file).read_text()}".split("\n---\n")
        found[name] = next(part for part in parts if f"\n  name: {name}\n" in part)
    with served(plane, found):
        yield


@asynccontextmanager
async def published_meanwhile(plane: ControlPlane) -> AsyncIterator[None]:
    """Define what others define while the block runs; kubectl goes aside, since the operator is in this process."""
    definitions = published(plane)
    await asyncio.to_thread(definitions.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(definitions.__exit__, None, None, None)


@contextmanager
def served(plane: ControlPlane, definitions: Mapping[str, str]) -> Iterator[None]:
    names = [f"crd/{name}" for name in definitions]
    plane.kubectl("apply", "--server-side", "-f", "-", text="\n---\n".join(definitions.values()))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    for name in definitions:
        until_served(plane, name)
    yield
    plane.kubectl("delete", "--ignore-not-found", f"--timeout={DEFINITION_PATIENCE}s", *names)


def until_served(plane: ControlPlane, name: str) -> None:
    """Wait until objects can be listed: a definition is established a moment before the server serves its kind."""

    def listed() -> bool:
        plane.kubectl("get", name, "--all-namespaces", "--ignore-not-found")
        return True

    wait_until(listed)


@asynccontextmanager
async def operator(kubeconfig: Path, **plan: Any) -> AsyncIterator[OperatorProcess]:
    """Run an operator in this process while the block runs."""
    async with connect(kubeconfig) as client, asyncio.TaskGroup() as group:
        process = OperatorProcess(client, ProcessPlan(**plan), environment={"POD_NAMESPACE": "default"})
        task = group.create_task(process.run())
        yield process
        task.cancel()


async def refusal(client: Client, kind: Kind, document: Object) -> str:
    """Return why the API server would not create an object; nothing when it would."""
    path = kind.path(document["metadata"]["namespace"])
    try:
        await client.request("POST", path, body=document, parameters={"dryRun": "All"})
    except Forbidden as error:
        return str(error)
    return ""


def requests(process: OperatorProcess) -> Counter[str]:
    """Return how many requests the operator has made, by method."""
    counted: Counter[str] = Counter()
    for (_, method), count in process.metrics.requests.cells.items():
        counted[method] += int(count)
    return counted


@dataclass(frozen=True)
class Site:
    """A namespace with stacks in it."""

    plane: ControlPlane
    client: Client
    namespace: str

    async def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl in the namespace, aside: the operator in this process goes on meanwhile."""
        return await asyncio.to_thread(self.plane.kubectl, "-n", self.namespace, *arguments, text=text)

    async def create(self, name: str = "stack", /, **spec: Any) -> None:
        """Create a stack."""
        metadata = {"name": name, "namespace": self.namespace}
        document = {
            "apiVersion": SIMULATOR_DEPLOYMENT.api_version,
            "kind": SIMULATOR_DEPLOYMENT.kind,
            "metadata": metadata,
            "spec": spec,
        }
        await self.client.create(SIMULATOR_DEPLOYMENT, document)

    async def edit(self, name: str = "stack", /, **spec: Any) -> None:
        """Change a stack as `kubectl patch --type=merge` does; None takes a field away."""
        await self.client.patch(SIMULATOR_DEPLOYMENT, Key(self.namespace, name), {"spec": spec}, how="merge")

    async def get(self, kind: Kind, name: str) -> Object:
        """Return an object as the server has it."""
        return await self.client.get(kind, Key(self.namespace, name))

    async def list(self, kind: Kind, selector: str = "") -> list[Object]:
        """Return the objects of a kind."""
        parameters = {"labelSelector": selector} if selector else {}
        answer = await self.client.request("GET", kind.path(self.namespace), parameters=parameters)
        found: list[Object] = json.loads(answer)["items"]
        return found

    async def made(self) -> dict[str, Object]:
        """Return everything that the operator has made here, by kind and name."""
        found: dict[str, Object] = {}
        for kind in MADE:
            try:
                listed = await self.list(kind, OWNERSHIP.selector)
            except NotFound:  # the kind is not defined
                continue
            found |= {f"{kind.kind}/{one['metadata']['name']}": {"kind": kind.kind} | one for one in listed}
        return found

    async def condition(self, type_: str, name: str = "stack") -> dict[str, Any]:
        """Return a condition of a stack; an empty one when it is not there."""
        live = await self.get(SIMULATOR_DEPLOYMENT, name)
        found = live.get("status", {}).get("conditions", [])
        return next((one for one in found if one["type"] == type_), {})

    async def told(self, type_: str, status: str, reason: str, name: str = "stack", *, words: str = "") -> str:
        """Wait for a condition whose message has these words, and return the message.

        What is said first need not be what is said in the end: 0 of 2 Pods come before 1 of 2.
        """

        async def asked() -> str:
            found = await self.condition(type_, name)
            assert (found.get("status"), found.get("reason")) == (status, reason), found
            assert words in found["message"], found
            return str(found["message"])

        return await eventually(asked)

    async def ready(self, name: str = "stack") -> Object:
        """Return a stack once it is ready for what it asks now, and its status has counted all that is.

        Deployments and Pods are followed apart, so a Deployment may be complete before its Pods have addresses.
        """

        async def asked() -> Object:
            live = await self.get(SIMULATOR_DEPLOYMENT, name)
            status = live.get("status", {})
            assert status.get("observedGeneration") == live["metadata"]["generation"], live
            assert is_current(live, "Ready"), status
            assert len(status["endpoints"]) == status["readyReplicas"] == status["replicas"], status
            return live

        return await eventually(asked)

    async def limit(self, name: str, **hard: str) -> None:
        """Create a quota, and wait until the API server holds everyone to it.

        It is in force when it has been counted and admission has heard of it; a Secret, of which it allows none, tells.
        """
        metadata = {"name": name, "namespace": self.namespace}
        await self.client.create(QUOTA, {"metadata": metadata, "spec": {"hard": {"count/secrets": "0", **hard}}})
        secret = {"metadata": {"name": "probe", "namespace": self.namespace}}

        async def refused() -> None:
            assert f"exceeded quota: {name}" in await refusal(self.client, SECRET, secret)

        await eventually(refused)

    async def becomes(self, expected: set[str]) -> None:
        """Wait until exactly these objects are here."""

        async def asked() -> None:
            found = set(await self.made())
            assert found == expected, found ^ expected

        await eventually(asked, every=_LOOK)

    async def empties(self) -> None:
        """Wait until nothing of any stack is here, Pods included.

        The garbage collector learns of a new definition within half a minute, and deletes for none before.
        """

        async def asked() -> None:
            left = [f"{one['kind']}/{one['metadata']['name']}" for one in (await self.made()).values()]
            left += [one["metadata"]["name"] for kind in (REPLICA_SET, POD) for one in await self.list(kind)]
            assert left == [], left

        await eventually(asked, within=90, every=_LOOK)

    async def clear(self) -> None:
        """Delete the stacks of the namespace, so that no later operator looks after them while it goes."""
        await self.client.request("DELETE", SIMULATOR_DEPLOYMENT.path(self.namespace))

        async def asked() -> None:
            assert await self.list(SIMULATOR_DEPLOYMENT) == []

        await eventually(asked)


async def without(site: Site, kinds: set[str]) -> None:
    assert not {name.partition("/")[0] for name in await site.made()} & kinds
