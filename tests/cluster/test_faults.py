"""What goes wrong between an operator and its API server. After each fault the state converges and nothing was lost.

The API server and etcd are real. They are killed, paused and compacted; the road to them is cut, stalled and bent.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from tests.cluster.controlplane import ControlPlane
from tests.cluster.proxy import Call, Cut, Road
from tests.cluster.widgets import (
    CONFIGMAP,
    WIDGET,
    define,
    expect,
    operator,
    running,
    undefine,
    widget,
)
from tests.waiting import eventually

from pointsman.kube import Client, Key, Kind, Runtime, connect
from pointsman.kube.conditions import is_current
from pointsman.kube.errors import Stale
from pointsman.kube.reflector import Reflector


@pytest.fixture
async def runtime(defined: None, far: Client) -> AsyncIterator[Runtime]:
    """The example operator, at the far end of the faulty road."""
    async with running(operator(far, stall=3.0)) as runtime:
        await runtime.settled()
        yield runtime


def reflector(runtime: Runtime, kind: Kind = WIDGET) -> Reflector:
    return runtime._reflectors[kind]


async def create(client: Client, namespace: str, *names: str, text: str = "hello") -> dict[str, str]:
    """Create widgets with one copy each; returns the copies to expect."""
    for name in names:
        await client.create(WIDGET, widget(namespace, name, text=text))
    return {f"{name}-0": text for name in names}


async def rename(client: Client, namespace: str, name: str, text: str) -> None:
    await client.patch(WIDGET, Key(namespace, name), {"spec": {"text": text}}, how="merge")


async def settled(client: Client, namespace: str, name: str) -> None:
    """Wait until the operator has nothing more to write: the answer to a write may bring news before the watch does."""

    async def ready() -> None:
        assert is_current(await client.get(WIDGET, Key(namespace, name)), "Ready")

    await eventually(ready)


async def test_the_server_is_killed_and_comes_back(
    plane: ControlPlane, client: Client, namespace: str, runtime: Runtime
) -> None:
    await expect(client, namespace, await create(client, namespace, "a", "b"))
    plane.kill("kube-apiserver")

    async def noticed() -> None:
        assert reflector(runtime).state == "unreachable"
        assert any(str(one).startswith("widgets.example.dev: unreachable") for one in runtime.unfollowed())

    await eventually(noticed)
    await asyncio.to_thread(plane.start_api)
    await rename(client, namespace, "a", "after")
    await client.delete(WIDGET, Key(namespace, "b"))
    await create(client, namespace, "c")
    await expect(client, namespace, {"a-0": "after", "c-0": "hello"})

    async def well() -> None:
        assert runtime.unfollowed() == []

    await eventually(well)


async def test_a_compacted_version_is_listed_again_and_missed_deletions_are_delivered(
    plane: ControlPlane, client: Client, namespace: str, road: Road, runtime: Runtime
) -> None:
    await expect(client, namespace, await create(client, namespace, "kept", "gone", "changed"))
    deleted: list[str] = []
    reflector(runtime, CONFIGMAP).subscribe(
        lambda change: deleted.append(change.old.key.name) if change.old and not change.new else None
    )
    road.close()
    await client.delete(CONFIGMAP, Key(namespace, "kept-0"))  # a deletion that the operator cannot see
    await client.delete(WIDGET, Key(namespace, "gone"))
    await rename(client, namespace, "changed", "new")
    await create(client, namespace, "fresh")
    plane.kill("kube-apiserver")
    await asyncio.to_thread(plane.compact)  # etcd forgets, and the server's own memory went with it
    await asyncio.to_thread(plane.start_api)
    road.calls.clear()
    road.open()
    await expect(client, namespace, {"kept-0": "hello", "changed-0": "new", "fresh-0": "hello"})
    assert "kept-0" in deleted
    lists = [call for call in road.calls if call.path == CONFIGMAP.path() and not call.watch and call.method == "GET"]
    assert lists, "the watch was not refused with 410, so this test proved nothing"


async def test_every_connection_is_cut_again_and_again(
    client: Client, namespace: str, road: Road, runtime: Runtime
) -> None:
    expected = await create(client, namespace, "a", "b", "c")
    for number in range(10):
        road.cut()
        await rename(client, namespace, "a", f"text-{number}")
        await asyncio.sleep(0.05)
    await expect(client, namespace, {**expected, "a-0": "text-9"})


async def test_a_watch_cut_inside_an_event(client: Client, namespace: str, road: Road, runtime: Runtime) -> None:
    await expect(client, namespace, await create(client, namespace, "a"))
    await settled(client, namespace, "a")
    cuts = 0

    async def bend(call: Call, piece: bytes) -> bytes:
        nonlocal cuts
        if call.watch and call.path == WIDGET.path() and cuts < 3 and b'"text":"one"' in piece:
            cuts += 1
            raise Cut(piece[: len(piece) // 2])
        return piece

    road.bend = bend
    await rename(client, namespace, "a", "one")
    await expect(client, namespace, {"a-0": "one"})
    assert cuts == 3  # the same event was asked for again until it came whole


async def test_a_watch_that_stalls_without_closing(
    client: Client, namespace: str, road: Road, runtime: Runtime
) -> None:
    await expect(client, namespace, await create(client, namespace, "a"))
    stalled = asyncio.Event()

    async def bend(call: Call, piece: bytes) -> bytes:
        if call.watch and not stalled.is_set() and b'"stuck"' in piece:
            stalled.set()
            await asyncio.sleep(60)  # the connection stays, nothing comes
        return piece

    road.bend = bend
    await rename(client, namespace, "a", "stuck")
    await asyncio.wait_for(stalled.wait(), 30)
    began = asyncio.get_running_loop().time()
    await expect(client, namespace, {"a-0": "stuck"})
    assert asyncio.get_running_loop().time() - began < 15  # found by silence, not by the end of the watch


async def test_the_server_is_paused_with_its_connections_open(
    plane: ControlPlane, client: Client, namespace: str, runtime: Runtime
) -> None:
    await expect(client, namespace, await create(client, namespace, "a"))
    plane.pause("kube-apiserver")

    async def noticed() -> None:
        assert reflector(runtime).state == "unreachable"

    try:
        await eventually(noticed)
    finally:
        plane.resume("kube-apiserver")
    await rename(client, namespace, "a", "awake")
    await expect(client, namespace, {"a-0": "awake"})


async def test_events_that_come_twice(client: Client, namespace: str, road: Road, runtime: Runtime) -> None:
    changes: list[str] = []
    reflector(runtime).subscribe(
        lambda change: (
            changes.append(change.sides[-1].meta.resource_version)
            if change.sides[-1].key.namespace == namespace
            else None
        )
    )

    async def bend(call: Call, piece: bytes) -> bytes:
        return piece * 3 if call.watch else piece

    road.bend = bend
    road.cut()
    expected = await create(client, namespace, "a", "b")
    await expect(client, namespace, expected)
    await rename(client, namespace, "a", "new")
    await expect(client, namespace, {**expected, "a-0": "new"})
    await asyncio.sleep(0.5)
    assert len(changes) == len(set(changes))  # each version was news once


async def test_too_many_requests(client: Client, namespace: str, road: Road, runtime: Runtime) -> None:
    refused: list[float] = []

    def refuse(call: Call) -> tuple[int, dict[str, str], bytes] | None:
        if call.method == "PATCH" and namespace in call.path and len(refused) < 3:
            refused.append(asyncio.get_running_loop().time())
            return 429, {"retry-after": "1", "content-type": "application/json"}, b'{"code":429,"message":"slow"}'
        return None

    road.refuse = refuse
    await expect(client, namespace, await create(client, namespace, "a"))
    gaps = [later - earlier for earlier, later in pairwise(refused)]
    assert len(refused) == 3
    assert all(gap >= 0.9 for gap in gaps), gaps


async def test_one_kind_is_forbidden_and_then_granted(
    plane: ControlPlane, client: Client, namespace: str, defined: None
) -> None:
    """As a user who may do everything with widgets and nothing with ConfigMaps."""
    roles = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
    bindings = Kind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
    rules = [
        {"apiGroups": ["example.dev"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["*"]},
    ]
    name = f"visitor-{namespace}"
    await client.create(roles, {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": roles.group, "kind": "ClusterRole", "name": name}
    subject = {"kind": "User", "apiGroup": roles.group, "name": "visitor"}
    await client.create(bindings, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    async with connect(plane.kubeconfig("visitor")) as visitor, running(operator(visitor)) as runtime:
        expected = await create(client, namespace, "a")

        async def told() -> None:
            assert reflector(runtime).state == "following"  # one forbidden kind does not stop another
            assert [one for one in runtime.unfollowed() if re.match("configmaps: forbidden .*cannot list", str(one))]

        await eventually(told)
        rules.append({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]})
        await client.patch(roles, Key("", name), {"rules": rules}, how="merge")
        await expect(client, namespace, expected)

        async def cured() -> None:
            assert runtime.unfollowed() == []  # not even the definitions, which this user may not list

        await eventually(cured)
    await client.delete(bindings, Key("", name))
    await client.delete(roles, Key("", name))


async def test_conflict_storm(client: Client, namespace: str, runtime: Runtime) -> None:
    """Someone writes to the widgets all the time; finalizers and status still get in, and at the end all is right."""
    names = [f"w{number}" for number in range(5)]
    await create(client, namespace, *names)

    async def disturb(name: str) -> None:
        for number in range(20):
            document = await client.get(WIDGET, Key(namespace, name))
            document["spec"]["text"] = f"text-{number}"
            document["metadata"].setdefault("labels", {})["storm"] = str(number)
            try:
                await client.replace(WIDGET, document)
            except Stale:
                continue
        await rename(client, namespace, name, "calm")

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(disturb(name))
    await expect(client, namespace, {f"{name}-0": "calm" for name in names})


async def test_a_definition_that_goes_and_comes_back(client: Client, namespace: str, runtime: Runtime) -> None:
    await expect(client, namespace, await create(client, namespace, "a", "b"))
    await undefine(client)

    async def absent() -> None:
        assert reflector(runtime).state == "absent"
        assert len(reflector(runtime).store) == 0

    await eventually(absent)
    assert runtime.unfollowed() == []  # a kind that does not exist is no fault
    await expect(client, namespace, {})
    await asyncio.sleep(3)  # long enough for the reflector's own retries to become rare
    await define(client)
    began = asyncio.get_running_loop().time()
    await expect(client, namespace, await create(client, namespace, "c"))
    # Told by the definition: once it is known that someone tells, the next retry comes after minutes.
    assert asyncio.get_running_loop().time() - began < 20


async def test_started_before_its_definition_exists(client: Client, namespace: str, far: Client) -> None:
    await undefine(client)
    async with running(operator(far)) as runtime:
        await asyncio.wait_for(runtime.settled(), 30)
        assert reflector(runtime).state == "absent"
        await define(client)
        await expect(client, namespace, await create(client, namespace, "a"))


async def test_a_clock_that_jumps(client: Client, namespace: str, far: Client, defined: None) -> None:
    """The wall clock dates conditions and nothing else: no timer, back-off or event depends on it."""
    now = datetime.now(UTC)
    async with running(operator(far, wall=lambda: now)):
        await expect(client, namespace, await create(client, namespace, "a"))
        await settled(client, namespace, "a")
        for jump in (timedelta(days=-400), timedelta(days=400)):
            now += jump
            await rename(client, namespace, "a", f"text{jump.days}")
            await expect(client, namespace, {"a-0": f"text{jump.days}"})
        found = await client.get(WIDGET, Key(namespace, "a"))
    moved = datetime.fromisoformat(found["status"]["conditions"][0]["lastTransitionTime"])
    assert abs(moved - datetime.now(UTC)) < timedelta(minutes=5)  # it became ready once, before the jumps


async def test_etcd_is_killed_and_comes_back(
    plane: ControlPlane, client: Client, namespace: str, runtime: Runtime
) -> None:
    expected = await create(client, namespace, "a")
    await expect(client, namespace, expected)
    plane.kill("etcd")
    await asyncio.sleep(1)
    await asyncio.to_thread(plane.start_etcd)

    async def written() -> None:
        await rename(client, namespace, "a", "back")

    await eventually(written)
    await expect(client, namespace, {"a-0": "back"})


async def test_an_unreadable_answer_is_survived(client: Client, namespace: str, road: Road, runtime: Runtime) -> None:
    broken = 0

    async def bend(call: Call, piece: bytes) -> bytes:
        nonlocal broken
        if call.watch and call.path == WIDGET.path() and broken < 2:
            broken += 1
            return b'{"type":"MODIFIED","object":{"metadata":{"name":7}}}\n'
        return piece

    road.bend = bend
    expected = await create(client, namespace, "a", "b")
    await expect(client, namespace, expected)
    assert broken == 2


async def test_bookmarks_move_the_version(client: Client, namespace: str, road: Road, runtime: Runtime) -> None:
    """A bookmark in the stream is where the next watch begins."""
    marked = asyncio.Event()

    async def bend(call: Call, piece: bytes) -> bytes:
        if call.watch and call.path == CONFIGMAP.path() and not marked.is_set():
            version = json.loads(piece)["object"]["metadata"]["resourceVersion"]
            mark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version, "annotations": {}}}}
            marked.set()
            return piece + json.dumps(mark).encode() + b"\n"
        return piece

    road.bend = bend
    road.cut()
    await expect(client, namespace, await create(client, namespace, "a"))
    await asyncio.wait_for(marked.wait(), 10)
    version = reflector(runtime, CONFIGMAP)._version
    road.calls.clear()
    again: list[str] = []
    async with asyncio.timeout(30):
        while not again:  # a watch that was just being opened is not cut
            road.cut()
            await asyncio.sleep(0.2)
            again = [call.target for call in road.calls if call.watch and call.path == CONFIGMAP.path()]
    assert f"resourceVersion={version}" in again[0]
    await expect(client, namespace, {"a-0": "hello", **await create(client, namespace, "b")})
