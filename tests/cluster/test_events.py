"""Events on a real API server: one object with a count, whatever was said how often."""

import asyncio
import json
from typing import Any

from tests.cluster.widgets import CONFIGMAP
from tests.waiting import eventually

from pointsman.core.kinds import EVENT
from pointsman.kube import Client, Key
from pointsman.kube.events import EventRecorder, Ledger


async def test_repetitions_raise_one_count(client: Client, namespace: str) -> None:
    about = await client.create(CONFIGMAP, {"metadata": {"name": "x", "namespace": namespace}})
    recorder = EventRecorder(client, component="tester", ledger=Ledger(interval=0.2), tick=0.05)

    def say(times: int) -> None:
        for _ in range(times):
            recorder.record(about, reason="Tested", message="again and again", severity="Warning")

    async def events() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(await client.request("GET", EVENT.path(namespace)))["items"]
        return [one for one in found if one["involvedObject"]["name"] == "x"]

    async def counted(count: int) -> None:
        (event,) = await events()
        assert (event["count"], event["reason"], event["type"]) == (count, "Tested", "Warning")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        say(30)
        await eventually(lambda: counted(30))
        say(5)
        await eventually(lambda: counted(35))
        (event,) = await events()
        await client.delete(EVENT, Key(namespace, event["metadata"]["name"]))  # as the server does after an hour
        say(1)
        await eventually(lambda: counted(36))
        task.cancel()
