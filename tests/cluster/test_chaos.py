"""Random writes over a road that breaks at random: at the end the cache is the server, and no change was lost.

The seed is printed with a failure; POINTSMAN_CHAOS_SEED repeats it.
"""

import asyncio
import json
import os
import random

import pytest
from tests.cluster.proxy import Call, Cut, Road
from tests.cluster.widgets import CONFIGMAP, running
from tests.waiting import eventually

from pointsman.kube import Client, Controller, Key, Ownership, Result, Runtime, Source, View
from pointsman.kube.errors import ApiError
from pointsman.kube.store import Change

STEPS = 400


class Rebuilt:
    """What a subscriber who sees only changes believes."""

    def __init__(self) -> None:
        self.objects: dict[Key, int] = {}

    def take(self, change: Change) -> None:
        if change.new is not None:
            assert self.objects.get(change.new.key) == (change.old.version if change.old else None)
            self.objects[change.new.key] = change.new.version
        elif change.old is not None:
            assert self.objects.pop(change.old.key) == change.old.version


def breaking(rng: random.Random, road: Road, *, expiring: bool) -> None:
    """Make the road break at random: cut inside an event, double one, hold one back, refuse a request.

    Without `expiring` there is no 410, hence no list that would heal what a resumed watch has missed.
    """

    async def bend(call: Call, piece: bytes) -> bytes:
        draw = rng.random() if call.watch else 1.0
        if draw < 0.10:
            raise Cut(piece[: rng.randrange(len(piece))])
        if draw < 0.12:
            await asyncio.sleep(0.2)
        return piece * 2 if draw < 0.20 else piece

    def refuse(_: Call) -> tuple[int, dict[str, str], bytes] | None:
        draw = rng.random()
        if draw < 0.05:
            return 429, {"retry-after": "0"}, b'{"code":429,"message":"slow"}'
        if expiring and draw < 0.10:
            return 410, {}, b'{"code":410,"message":"too old"}'
        return (500, {}, b"{}") if draw < 0.15 else None

    road.bend, road.refuse = bend, refuse


async def disturb(rng: random.Random, client: Client, namespace: str, road: Road) -> None:
    """Create, change and delete objects at random, each for a while and then never again; cut the road now and then."""
    for step in range(STEPS):
        key = Key(namespace, f"c{step // 20 + rng.randrange(3)}")
        try:
            act = rng.choice(("create", "change", "change", "delete"))
            if act == "create":
                await client.create(CONFIGMAP, {"metadata": {"name": key.name, "namespace": namespace}})
            elif act == "change":
                await client.patch(CONFIGMAP, key, {"data": {"step": str(step)}}, how="merge")
            else:
                await client.delete(CONFIGMAP, key)
        except ApiError:
            pass  # it is there already, or not there
        if rng.random() < 0.02:
            road.cut()


@pytest.mark.parametrize("expiring", [False, True], ids=["resuming", "expiring"])
async def test_the_cache_ends_equal_to_the_server(
    client: Client, namespace: str, far: Client, road: Road, *, expiring: bool
) -> None:
    seed = int(os.environ.get("POINTSMAN_CHAOS_SEED") or random.randrange(10**6))
    print("POINTSMAN_CHAOS_SEED", seed)
    rng = random.Random(seed)
    rebuilt, reconciled = Rebuilt(), dict[Key, str]()

    async def reconcile(key: Key, view: View) -> Result | None:
        document = view.get(CONFIGMAP, key)
        await asyncio.sleep(rng.random() / 100)
        reconciled[key] = document["metadata"]["resourceVersion"] if document else ""
        return None

    runtime = Runtime(far, ownership=Ownership(manager="chaos", domain="chaos.dev"))
    runtime.add(Controller("chaos", Source(CONFIGMAP, namespace=namespace), reconcile))
    runtime._reflectors[CONFIGMAP].subscribe(rebuilt.take)
    breaking(rng, road, expiring=expiring)
    async with running(runtime):
        await runtime.settled()
        await disturb(rng, client, namespace, road)
        road.bend = road.refuse = None

        async def equal() -> None:
            answer = json.loads(await client.request("GET", CONFIGMAP.path(namespace)))
            server = {Key(namespace, one["metadata"]["name"]): one["metadata"] for one in answer["items"]}
            versions = {key: int(one["resourceVersion"]) for key, one in server.items()}
            assert {item.key: item.version for item in runtime._stores[CONFIGMAP]} == versions
            assert rebuilt.objects == versions
            assert {key: version for key, version in reconciled.items() if version} == {
                key: one["resourceVersion"] for key, one in server.items()
            }

        await eventually(equal)
