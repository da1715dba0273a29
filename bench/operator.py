"""The operator on a real control plane: how long until many stacks are Ready, what it asks of the server, what rest
costs.

    python -m bench operator [--counts 100,1000] [--rest 60]

Pods are kwok's. For each count: minimal stacks (a Deployment and a Service each) are created by eight writers; the
clock runs from the first write until every one is Ready. Beside it stands how long the same Deployments and Services
take to be available when a plain client writes them without any operator: that part is the API server's, the
controllers' and kwok's.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.cluster.assets import find
from tests.cluster.controlplane import ControlPlane

from bench.parts import Part
from pointsman.api.crd import simulator_definition
from pointsman.api.simulator import SIMULATOR_DEPLOYMENT, SimulatorDeployment
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION
from pointsman.kube import Client, Key, Kind, connect
from pointsman.kube.conditions import truth_of
from pointsman.local.http import get
from pointsman.local.ports import any_free
from pointsman.operator.kinds import DEPLOYMENT, SERVICE
from pointsman.render.envoy.addresses import Address
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.stack import render

NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
WRITERS = 8


def stack(namespace: str, number: int) -> dict[str, Any]:
    """Return a minimal resource; its Service needs a name of its own, since all share a namespace."""
    return {
        "apiVersion": SIMULATOR_DEPLOYMENT.api_version,
        "kind": "SimulatorDeployment",
        "metadata": {"name": f"sim-{number}", "namespace": namespace},
        "spec": {"replicas": 2, "service": {"name": f"proxy-{number}"}},
    }


async def spread(work: list[Callable[[], Awaitable[Any]]]) -> None:
    """Do all of it, eight at a time."""
    waiting = iter(work)

    async def writer() -> None:
        for one in waiting:
            await one()

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(writer())


async def until(count: int, ready: Callable[[dict[str, Any]], bool], *, kind: Kind, client: Client, where: str) -> None:
    """Wait until so many objects of a namespace are ready; by a watch, since lists of them would be felt."""
    done: set[str] = set()
    async with client.watch(kind.path(where), parameters={}, stall=120) as lines:
        async for line in lines:
            document = msgspec.json.decode(line)["object"]
            (done.add if ready(document) else done.discard)(document["metadata"]["name"])
            if len(done) >= count:
                return


def is_available(deployment: dict[str, Any]) -> bool:
    return bool(deployment.get("status", {}).get("availableReplicas", 0) >= 2)


def is_ready(resource: dict[str, Any]) -> bool:
    return truth_of(resource, "Ready") == "True"


class Operator:
    """The operator as a process of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._address = Address("127.0.0.1", any_free())
        command = [sys.executable, "-m", "pointsman", "operator", "--kubeconfig", str(kubeconfig)]
        flags = ["--metrics-bind-address", str(self._address), "--health-probe-bind-address", "0"]
        self._part = Part([*command, *flags], log=kubeconfig.with_name("operator.log"))

    async def requests(self) -> Counter[str]:
        """Return the requests so far by method; watches are not counted again while they last."""
        answer = await get(self._address, "/metrics")
        self._part.check()
        assert answer is not None
        found: Counter[str] = Counter()
        for line in answer.body.decode().splitlines():
            if line.startswith("rest_client_requests_total{"):
                method = line.partition('method="')[2].partition('"')[0]
                found[method] += int(float(line.rpartition(" ")[2]))
        return found

    @property
    def cpu(self) -> float:
        return self._part.cpu()

    @property
    def memory(self) -> float:
        """Return the resident MiB."""
        pages = int(Path(f"/proc/{self._part.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def stop(self) -> None:
        self._part.end()


@asynccontextmanager
async def namespace(client: Client, name: str) -> AsyncIterator[str]:
    """Make a namespace, and leave nothing of it: its deletion would work against what is measured next."""
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await client.delete(NAMESPACES, Key("", name))
    named = {"fieldSelector": f"metadata.name={name}"}
    async with client.watch(NAMESPACES.path(), parameters=named, stall=120) as lines:
        async for line in lines:
            if msgspec.json.decode(line)["type"] == "DELETED":
                return


async def without_operator(client: Client, count: int) -> float:
    """Return how long the objects alone take."""
    async with namespace(client, f"bare-{count}") as where:
        documents = [render(SimulatorDeployment.model_validate(stack(where, n)), Facts()) for n in range(count)]
        kinds = {"Service": SERVICE, "Deployment": DEPLOYMENT}
        began = time.monotonic()
        await spread(
            [
                lambda one=one: client.create(kinds[one["kind"]], one)  # type: ignore[misc] # mypy cannot infer a default
                for documents_of_one in documents
                for one in documents_of_one
            ]
        )
        await until(count, is_available, kind=DEPLOYMENT, client=client, where=where)
        return time.monotonic() - began


async def with_operator(client: Client, operator: Operator, count: int, *, rest: float) -> None:
    async with namespace(client, f"stacks-{count}") as where:
        bare = await without_operator(client, count)
        await asyncio.sleep(5)
        before, cpu = await operator.requests(), operator.cpu
        began = time.monotonic()
        documents = [stack(where, n) for n in range(count)]
        await spread([lambda one=one: client.create(SIMULATOR_DEPLOYMENT, one) for one in documents])  # type: ignore[misc]
        await until(count, is_ready, kind=SIMULATOR_DEPLOYMENT, client=client, where=where)
        took = time.monotonic() - began
        await asyncio.sleep(2)
        asked = await operator.requests() - before
        print(f"{count} stacks: Ready in {took:.1f} s (their objects without an operator: {bare:.1f} s)")
        each = {method: round(number / count, 2) for method, number in sorted(asked.items())}
        print(
            f"  requests per stack {sum(asked.values()) / count:.1f} {each}; operator's CPU {operator.cpu - cpu:.1f} s"
        )
        await edit_one(client, where)
        await at_rest(operator, rest=rest)


async def edit_one(client: Client, where: str) -> None:
    """Print how long an edit of one among them takes to reach its Deployment."""
    times = []
    for number in range(10):
        began = time.monotonic()
        await client.patch(SIMULATOR_DEPLOYMENT, Key(where, f"sim-{number}"), {"spec": {"replicas": 3}}, how="merge")
        name = Key(where, f"ms-sim-sim-{number}-decode")
        while (await client.get(DEPLOYMENT, name))["spec"]["replicas"] != 3:  # asking takes long enough
            pass
        times.append(time.monotonic() - began)
    times.sort()
    print(f"  one edited: applied after {times[4] * 1e3:.0f} ms (median of 10), {times[-1] * 1e3:.0f} ms at most")


async def at_rest(operator: Operator, *, rest: float) -> None:
    await asyncio.sleep(5)
    before, cpu = await operator.requests(), operator.cpu
    await asyncio.sleep(rest)
    asked = await operator.requests() - before
    writes = sum(asked[method] for method in ("POST", "PUT", "PATCH", "DELETE"))
    share = (operator.cpu - cpu) / rest * 100
    spent = f"{share:.2f} % of a core, {operator.memory:.0f} MiB"
    print(f"  at rest for {rest:.0f} s: {writes} writes, {dict(asked)}, {spent}")


async def main(counts: list[int], *, rest: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(find(), Path(folder))
        try:
            plane.start()
            async with connect(plane.kubeconfig("admin")) as client:
                await run(client, plane.kubeconfig("admin"), counts, rest=rest)
        finally:
            plane.stop()


async def run(client: Client, kubeconfig: Path, counts: list[int], *, rest: float) -> None:
    await client.create(CUSTOM_RESOURCE_DEFINITION, simulator_definition())
    await asyncio.sleep(2)
    for count in counts:
        operator = Operator(kubeconfig)
        try:
            await asyncio.sleep(3)
            await with_operator(client, operator, count, rest=rest)
        finally:
            operator.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="100,1000")
    parser.add_argument("--rest", type=float, default=60.0)
    given = parser.parse_args()
    os.environ.pop("KUBECONFIG", None)
    asyncio.run(main([int(text) for text in given.counts.split(",")], rest=given.rest))
