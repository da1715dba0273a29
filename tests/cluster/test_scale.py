"""Ten thousand objects in the cache, and what stays of them afterwards."""

import asyncio
import gc
import sys
import uuid

from tests.cluster.controlplane import ControlPlane
from tests.cluster.widgets import CONFIGMAP, running
from tests.waiting import eventually

from pointsman.kube import Client, Controller, Key, Ownership, Result, Runtime, Source, View

COUNT = 10_000


def configmap(namespace: str, number: int) -> tuple[str, dict[str, object]]:
    """Return a ConfigMap as etcd holds it."""
    name = f"c{number:05d}"
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": str(uuid.UUID(int=number)),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": f"app-{number % 100}", "scale": "yes"},
    }
    head: dict[str, object] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return f"configmaps/{namespace}/{name}", {**head, "data": {"n": "x" * 500}}


async def test_ten_thousand_objects_come_stay_and_go(plane: ControlPlane, client: Client, namespace: str) -> None:
    seen: set[Key] = set()

    async def reconcile(key: Key, view: View) -> Result | None:
        (seen.add if view.get(CONFIGMAP, key) else seen.discard)(key)
        return None

    runtime = Runtime(client, ownership=Ownership(manager="scale", domain="scale.dev"))
    runtime.add(Controller("scale", Source(CONFIGMAP, namespace=namespace, labels="scale=yes"), reconcile, workers=8))
    async with running(runtime):
        await runtime.settled()
        store = runtime._stores[CONFIGMAP]

        async def holds(count: int) -> None:
            assert (len(store), len(seen)) == (count, count)

        objects = [configmap(namespace, number) for number in range(COUNT)]
        gc.collect()
        before = sys.getallocatedblocks()
        await asyncio.to_thread(plane.seed, objects)
        await eventually(lambda: holds(COUNT), within=120)
        gc.collect()
        full = sys.getallocatedblocks()
        assert len(runtime.view.find(CONFIGMAP, "namespace", namespace)) == COUNT
        await client.patch(CONFIGMAP, Key(namespace, "c00042"), {"data": {"n": "changed"}}, how="merge")

        async def changed() -> None:
            found = runtime.view.get(CONFIGMAP, Key(namespace, "c00042"))
            assert found is not None and found["data"]["n"] == "changed"

        await eventually(changed)
        await asyncio.to_thread(plane.unseed, [path for path, _ in objects])
        await eventually(lambda: holds(0), within=120)
        gc.collect()
        after = sys.getallocatedblocks()
    assert full - before > 5 * COUNT
    assert after - before < 0.1 * (full - before), (before, full, after)
