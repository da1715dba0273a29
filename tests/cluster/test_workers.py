"""Reconciles that hang or always fail, beside others that must not notice, on a real API server."""

import asyncio

from tests.cluster.widgets import CONFIGMAP, running
from tests.waiting import eventually

from pointsman.kube import Client, Controller, Key, Ownership, Result, Runtime, Source, View


async def test_one_hangs_one_fails_the_rest_go_on(client: Client, namespace: str, far: Client) -> None:
    done: dict[str, str] = {}
    hung = 0

    async def reconcile(key: Key, view: View) -> Result | None:
        nonlocal hung
        document = view.get(CONFIGMAP, key)
        if document is None:
            done.pop(key.name, None)
            return None
        if document.get("data", {}).get("mood") == "hang":
            hung += 1
            await asyncio.Event().wait()
        if document.get("data", {}).get("mood") == "fail":
            raise RuntimeError("on purpose")
        done[key.name] = document["metadata"]["resourceVersion"]
        return None

    runtime = Runtime(far, ownership=Ownership(manager="moody", domain="moody.dev"))
    source = Source(CONFIGMAP, namespace=namespace, labels="test=moody")
    runtime.add(Controller("moody", source, reconcile, workers=2, timeout=1.0))

    def document(name: str, mood: str) -> dict[str, object]:
        return {"metadata": {"name": name, "namespace": namespace, "labels": {"test": "moody"}}, "data": {"mood": mood}}

    async with running(runtime):
        await client.create(CONFIGMAP, document("hangs", "hang"))
        await client.create(CONFIGMAP, document("fails", "fail"))
        for number in range(20):
            await client.create(CONFIGMAP, document(f"w{number}", "fine"))

        async def all_done() -> None:
            assert len(done) == 20

        await eventually(all_done)

        async def tried_again() -> None:  # after it was cancelled
            assert hung >= 2

        await eventually(tried_again)
        for name in ("hangs", "fails"):  # a change helps at once, however long the back-off has become
            await client.patch(CONFIGMAP, Key(namespace, name), {"data": {"mood": "fine"}}, how="merge")

        async def cured() -> None:
            assert {"hangs", "fails"} <= done.keys()

        await eventually(cured)

        async def counted() -> None:
            metrics, moody = runtime.metrics, ("moody",)
            assert metrics.timeouts.cells.get(moody, 0) >= 1
            assert metrics.errors.cells.get(moody, 0) >= 2
            assert metrics.active.cells[moody] == 0

        await eventually(counted)
