"""The example operator of the documentation on a real API server: convergence, ownership, rest."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cluster.conftest import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.proxy import Road
from tests.cluster.widgets import (
    CONFIGMAP,
    WIDGET,
    expect,
    operator,
    quiet,
    running,
    source,
    widget,
)
from tests.waiting import eventually

from pointsman.core.kinds import EVENT
from pointsman.kube import (
    Client,
    Controller,
    Key,
    Kind,
    Object,
    Owner,
    Ownership,
    Result,
    Runtime,
    Source,
    View,
    owned,
)
from pointsman.kube.conditions import is_current


@pytest.fixture
async def operated(defined: None, far: Client) -> AsyncIterator[None]:
    async with running(operator(far)):
        yield


async def settled(client: Client, key: Key) -> Object:
    """Return the widget once it is ready for its generation."""

    async def ready() -> Object:
        found = await client.get(WIDGET, key)
        assert is_current(found, "Ready"), found.get("status")
        return found

    return await eventually(ready)


def test_the_example_is_short() -> None:
    code = [line for line in source().splitlines() if line.strip() and not line.startswith(("import", "from", '"""'))]
    assert len(code) <= 60


async def test_copies_follow_the_widget(client: Client, namespace: str, operated: None) -> None:
    key = Key(namespace, "w")
    await client.create(WIDGET, widget(namespace, "w", copies=3))
    await expect(client, namespace, {f"w-{number}": "hello" for number in range(3)})
    found = await settled(client, key)
    assert found["status"]["observedGeneration"] == 1
    await client.patch(WIDGET, key, {"spec": {"copies": 1, "text": "bye"}}, how="merge")
    await expect(client, namespace, {"w-0": "bye"})
    changed = await settled(client, key)
    assert changed["status"]["observedGeneration"] == 2
    before, after = (one["status"]["conditions"][0] for one in (found, changed))
    assert after["lastTransitionTime"] == before["lastTransitionTime"]  # it was ready all along
    await client.delete(WIDGET, key)
    await expect(client, namespace, {})


async def test_drift_is_repaired(client: Client, namespace: str, operated: None) -> None:
    await client.create(WIDGET, widget(namespace, "w", copies=2))
    await expect(client, namespace, {"w-0": "hello", "w-1": "hello"})
    await client.patch(CONFIGMAP, Key(namespace, "w-0"), {"data": {"text": "vandal"}}, how="merge")
    await client.delete(CONFIGMAP, Key(namespace, "w-1"))
    await expect(client, namespace, {"w-0": "hello", "w-1": "hello"})


async def test_what_others_add_to_our_objects_stays(client: Client, namespace: str, operated: None) -> None:
    await client.create(WIDGET, widget(namespace, "w"))
    await expect(client, namespace, {"w-0": "hello"})
    await client.patch(CONFIGMAP, Key(namespace, "w-0"), {"data": {"theirs": "1"}}, how="merge")
    await client.patch(WIDGET, Key(namespace, "w"), {"spec": {"text": "new"}}, how="merge")
    await expect(client, namespace, {"w-0": "new"})
    assert (await client.get(CONFIGMAP, Key(namespace, "w-0")))["data"] == {"text": "new", "theirs": "1"}


async def test_at_rest_there_are_only_watches(client: Client, namespace: str, road: Road, operated: None) -> None:
    for number in range(10):
        await client.create(WIDGET, widget(namespace, f"w{number}", copies=2))
    await expect(client, namespace, {f"w{one}-{two}": "hello" for one in range(10) for two in range(2)})
    for number in range(10):
        await settled(client, Key(namespace, f"w{number}"))
    await quiet(lambda: road.count(namespace))
    road.calls.clear()
    # A change that concerns every widget without changing what is wanted: ten reconciles, no request.
    for number in range(10):
        await client.patch(WIDGET, Key(namespace, f"w{number}"), {"metadata": {"labels": {"a": "b"}}}, how="merge")
    await asyncio.sleep(2)
    assert road.count(namespace) == {}


async def test_a_restart_writes_nothing(client: Client, namespace: str, road: Road, far: Client, defined: None) -> None:
    async with running(operator(far)):
        await client.create(WIDGET, widget(namespace, "w", copies=5))
        await settled(client, Key(namespace, "w"))
        await quiet(lambda: road.count(namespace))
    road.calls.clear()
    async with running(operator(far)) as runtime:
        await runtime.settled()
        await asyncio.sleep(1)
    assert road.count(namespace) == {}
    assert runtime.metrics.reconciles.cells.get(("widget", "success"), 0) >= 1


async def test_another_namespace(client: Client, namespace: str, operated: None) -> None:
    elsewhere = f"{namespace}-elsewhere"
    await client.create(NAMESPACE, {"metadata": {"name": elsewhere}})
    await client.create(WIDGET, widget(namespace, "w", copies=2, namespace=elsewhere))
    await expect(client, elsewhere, {"w-0": "hello", "w-1": "hello"})
    await client.delete(CONFIGMAP, Key(elsewhere, "w-0"))  # an event there leads to the owner here
    await expect(client, elsewhere, {"w-0": "hello", "w-1": "hello"})
    await client.patch(WIDGET, Key(namespace, "w"), {"spec": {"namespace": namespace}}, how="merge")
    await expect(client, namespace, {"w-0": "hello", "w-1": "hello"})
    await expect(client, elsewhere, {})
    await client.patch(WIDGET, Key(namespace, "w"), {"spec": {"namespace": elsewhere}}, how="merge")
    await expect(client, elsewhere, {"w-0": "hello", "w-1": "hello"})
    await client.delete(WIDGET, Key(namespace, "w"))
    await expect(client, elsewhere, {})
    await client.delete(NAMESPACE, Key("", elsewhere))


async def test_what_another_owns_is_not_touched(client: Client, namespace: str, operated: None) -> None:
    taken: dict[str, Any] = {"metadata": {"name": "w-1", "namespace": namespace}, "data": {"text": "mine"}}
    before = await client.create(CONFIGMAP, taken)
    await client.create(WIDGET, widget(namespace, "w", copies=2))

    async def refused() -> None:
        found = await client.get(WIDGET, Key(namespace, "w"))
        (condition,) = found["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "Conflict")
        assert f"configmaps {namespace}/w-1 exists and belongs to" in condition["message"]

    await eventually(refused)
    after = await client.get(CONFIGMAP, Key(namespace, "w-1"))
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await expect(client, namespace, {})  # and the other copy was not written either

    async def told() -> None:
        answer = await client.request("GET", EVENT.path(namespace))
        assert b'"reason":"Conflict"' in answer.replace(b": ", b":")

    await eventually(told)
    await client.delete(CONFIGMAP, Key(namespace, "w-1"))
    await client.patch(WIDGET, Key(namespace, "w"), {"spec": {"text": "again"}}, how="merge")
    await expect(client, namespace, {"w-0": "again", "w-1": "again"})


async def test_an_owner_made_again_under_its_name_takes_its_objects_back(
    client: Client, namespace: str, far: Client, defined: None
) -> None:
    elsewhere = f"{namespace}-elsewhere"
    await client.create(NAMESPACE, {"metadata": {"name": elsewhere}})
    async with running(operator(far)):
        await client.create(WIDGET, widget(namespace, "w", namespace=elsewhere))
        await expect(client, elsewhere, {"w-0": "hello"})
        await settled(client, Key(namespace, "w"))
    # Nobody runs; someone removes the finalizer by hand.
    await client.delete(WIDGET, Key(namespace, "w"))
    await client.patch(WIDGET, Key(namespace, "w"), {"metadata": {"finalizers": []}}, how="merge")
    await client.create(WIDGET, widget(namespace, "w", text="back", namespace=elsewhere))
    async with running(operator(far)):
        await expect(client, elsewhere, {"w-0": "back"})
        await client.delete(WIDGET, Key(namespace, "w"))
        await expect(client, elsewhere, {})
    await client.delete(NAMESPACE, Key("", elsewhere))


async def test_a_value_that_the_server_spells_its_own_way_is_written_once(
    client: Client, namespace: str, far: Client, road: Road
) -> None:
    """`1000m` comes back as `1`: no comparison of documents can know that, so the answer is remembered."""
    deployment = Kind("apps", "v1", "Deployment", "deployments")
    ownership = Ownership(manager="spelling", domain="spelling.dev")
    owner_map = await client.create(CONFIGMAP, {"metadata": {"name": "owner", "namespace": namespace}})
    owner = Owner(CONFIGMAP, Key(namespace, "owner"), owner_map["metadata"]["uid"])
    container = {"name": "c", "image": "example.invalid/none:1", "resources": {"requests": {"cpu": "1000m"}}}
    wanted = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container]}},
        },
    }
    runtime = Runtime(far, ownership=ownership)
    rounds = 0

    async def reconcile(key: Key, view: View) -> Result | None:
        nonlocal rounds
        if key == owner.key:
            await runtime.applier.converge(owner, [wanted], kinds=[deployment])
            rounds += 1
        return None

    watch = owned(deployment, owner=CONFIGMAP, ownership=ownership)
    runtime.add(Controller("spelling", Source(CONFIGMAP, namespace=namespace), reconcile, watches=(watch,)))
    async with running(runtime):

        async def stored() -> None:
            found = await client.get(deployment, Key(namespace, "d"))
            requests = found["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
            assert requests == {"cpu": "1"}

        await eventually(stored)
        await quiet(lambda: rounds)
        for number in range(3):
            done = rounds
            body = {"metadata": {"annotations": {"n": str(number)}}}
            await client.patch(CONFIGMAP, owner.key, body, how="merge")

            async def again(done: int = done) -> None:
                assert rounds > done

            await eventually(again)
    assert road.count(f"{namespace}/deployments") == {"GET": 1, "PATCH": 1}


async def test_kubectl_sees_it(plane: ControlPlane, client: Client, namespace: str, operated: None) -> None:
    await client.create(WIDGET, widget(namespace, "w"))
    inside = ("-n", namespace)
    await asyncio.to_thread(plane.kubectl, "wait", "--for=condition=Ready", "--timeout=30s", *inside, "widget/w")
    assert "widgets.example.dev" in plane.kubectl("get", "configmap", "w-0", *inside, "-o", "yaml")
