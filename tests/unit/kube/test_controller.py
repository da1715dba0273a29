"""Workers and what each outcome means, in virtual time, over a cache that a test fills by hand."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pointsman.core.kinds import Key, Kind, Source
from pointsman.kube.backoff import Backoff
from pointsman.kube.controller import Controller, ControllerWork, Reconcile, Result, Watch, owned, referred
from pointsman.kube.errors import NotLeader, Retry, Terminal
from pointsman.kube.metrics import RuntimeMetrics
from pointsman.kube.ownership import Ownership
from pointsman.kube.store import Entry, Store, entry
from pointsman.kube.view import View

pytestmark = pytest.mark.looptime
WIDGET = Kind("example.dev", "v1", "Widget", "widgets")
SECRET = Kind("", "v1", "Secret", "secrets")
OWNERSHIP = Ownership(manager="op", domain="example.dev")


def item(kind: Kind, name: str, version: int, *, spec: Any = None, **metadata: Any) -> Entry:
    head = {"name": name, "namespace": "a", "uid": f"uid-{name}", "resourceVersion": str(version), **metadata}
    return entry(kind, json.dumps({"metadata": head, "spec": spec}).encode())


class Scene:
    """A controller over hand-filled caches."""

    def __init__(self, reconcile: Reconcile, *, watches: tuple[Watch, ...] = (), **options: Any) -> None:
        self.stores = {WIDGET: Store(WIDGET), SECRET: Store(SECRET)}
        self.metrics = RuntimeMetrics()
        options = {"backoff": Backoff(first=1, cap=8, jitter=0)} | options
        controller = Controller("widget", Source(WIDGET), reconcile, watches=watches, **options)
        self.work = ControllerWork(controller, view=View(self.stores), metrics=self.metrics)

    def change(self, one: Entry, *, watch: Watch | None = None, gone: bool = False) -> None:
        store = self.stores[one.kind]
        change = store.drop(one) if gone else store.put(one)
        assert change is not None
        (self.work.secondary(watch) if watch else self.work.primary)(change)

    def value(self, name: str, /, **labels: str) -> float:
        wanted = {"controller": "widget", **labels}
        families = text_string_to_metric_families(self.metrics.render().decode())
        found = (one for family in families for one in family.samples if (one.name, one.labels) == (name, wanted))
        return next((one.value for one in found), 0.0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.work.run())
            yield
            task.cancel()


def now() -> float:
    return asyncio.get_running_loop().time()


def noting(act: Callable[[int], Result | None] = lambda _: None) -> tuple[list[tuple[str, float]], Reconcile]:
    """Return a log of calls and a reconcile that keeps it, whose n-th call does what `act` says."""
    calls: list[tuple[str, float]] = []

    async def reconcile(key: Key, view: View) -> Result | None:
        calls.append((str(key), now()))
        return act(len(calls))

    return calls, reconcile


async def test_every_object_is_looked_at_once_at_start() -> None:
    calls, reconcile = noting()
    scene = Scene(reconcile)
    for name in "xyz":
        scene.stores[WIDGET].put(item(WIDGET, name, 1))
    async with scene.running():
        await asyncio.sleep(1)
    assert sorted(key for key, _ in calls) == ["a/x", "a/y", "a/z"]
    assert scene.value("controller_runtime_reconcile_total", result="success") == 3


async def test_again_asks_for_another_look() -> None:
    calls, reconcile = noting(lambda count: Result(again=30) if count == 1 else Result())
    scene = Scene(reconcile)
    async with scene.running():
        scene.change(item(WIDGET, "x", 1))
        await asyncio.sleep(100)
    assert [at for _, at in calls] == [0, 30]
    assert scene.value("controller_runtime_reconcile_total", result="requeue_after") == 1


async def test_one_that_always_fails_backs_off_and_ends_no_worker() -> None:
    def fail(_: int) -> None:
        raise ValueError("broken")

    calls, reconcile = noting(fail)
    scene = Scene(reconcile, workers=1)
    async with scene.running():
        scene.change(item(WIDGET, "x", 1))
        await asyncio.sleep(32)
    assert [at for _, at in calls] == [0, 1, 3, 7, 15, 23, 31]
    assert scene.value("controller_runtime_reconcile_errors_total") == 7
    assert scene.value("workqueue_retries_total", name="widget") == 7


async def test_retry_with_a_delay_does_not_count_as_failure() -> None:
    def wait(count: int) -> None:
        if count < 3:
            raise Retry("not yet", delay=5)

    calls, reconcile = noting(wait)
    scene = Scene(reconcile)
    async with scene.running():
        scene.change(item(WIDGET, "x", 1))
        await asyncio.sleep(100)
    assert [at for _, at in calls] == [0, 5, 10]
    assert scene.value("controller_runtime_reconcile_errors_total") == 0


async def test_terminal_waits_for_a_change() -> None:
    def refuse(count: int) -> None:
        if count == 1:
            raise Terminal("spec.size is negative")

    calls, reconcile = noting(refuse)
    scene = Scene(reconcile)
    async with scene.running():
        scene.change(item(WIDGET, "x", 1))
        await asyncio.sleep(1000)
        scene.change(item(WIDGET, "x", 2))
        await asyncio.sleep(1)
    assert [at for _, at in calls] == [0, 1000]
    assert scene.value("controller_runtime_terminal_reconcile_errors_total") == 1


async def test_one_that_hangs_is_cancelled_and_others_go_on() -> None:
    done: list[str] = []

    async def reconcile(key: Key, view: View) -> None:
        if key.name == "hangs" and not done.count("hangs"):
            done.append("hangs")
            await asyncio.Event().wait()
        done.append(key.name)

    scene = Scene(reconcile, workers=2, timeout=10)
    async with scene.running():
        scene.change(item(WIDGET, "hangs", 1))
        for number in range(20):
            scene.change(item(WIDGET, f"w{number}", 1))
        await asyncio.sleep(5)
        assert len(done) == 21
        assert scene.value("workqueue_longest_running_processor_seconds", name="widget") == 5
        await asyncio.sleep(7)
    assert done[-1] == "hangs"  # cancelled at 10, again at 11
    assert scene.value("controller_runtime_reconcile_timeouts_total") == 1


async def test_never_more_at_once_than_workers_and_never_two_of_one_key() -> None:
    busy: list[str] = []
    most = 0

    async def reconcile(key: Key, view: View) -> None:
        nonlocal most
        assert key.name not in busy
        busy.append(key.name)
        most = max(most, len(busy))
        await asyncio.sleep(1)
        busy.remove(key.name)

    scene = Scene(reconcile, workers=3)
    rng = random.Random(1)
    async with scene.running():
        for version in range(1, 60):
            scene.change(item(WIDGET, f"w{rng.randrange(5)}", version))
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
    assert most == 3
    assert scene.work.queue.idle


async def test_without_the_lease_the_key_stays_in_line() -> None:
    def withheld(count: int) -> None:
        if count == 1:
            raise NotLeader("no")

    calls, reconcile = noting(withheld)
    scene = Scene(reconcile)
    async with scene.running():
        scene.change(item(WIDGET, "x", 1))
        await asyncio.sleep(5)
    assert [at for _, at in calls] == [0, 1]


async def test_owned_objects_lead_to_their_owner_across_namespaces() -> None:
    calls, reconcile = noting()
    watch = owned(SECRET, owner=WIDGET, ownership=OWNERSHIP)
    scene = Scene(reconcile, watches=(watch,))
    scene.stores[WIDGET].put(item(WIDGET, "x", 1))
    assert watch.source.labels == "app.kubernetes.io/managed-by=op"
    async with scene.running():
        await asyncio.sleep(1)
        calls.clear()
        child = {"namespace": "elsewhere", "labels": {"example.dev/owner-uid": "uid-x"}}
        scene.change(item(SECRET, "s", 2, **child), watch=watch)
        await asyncio.sleep(1)
        scene.change(item(SECRET, "s", 3, namespace="elsewhere"), watch=watch)  # someone took the label off
        await asyncio.sleep(1)
        scene.change(item(SECRET, "s", 4, namespace="elsewhere"), watch=watch, gone=True)  # no longer ours
        await asyncio.sleep(1)
    assert [key for key, _ in calls] == ["a/x", "a/x"]


async def test_referred_objects_lead_to_those_who_name_them() -> None:
    calls, reconcile = noting()
    watch = referred(Source(SECRET), by=WIDGET, index="secret")
    scene = Scene(reconcile, watches=(watch,))
    scene.stores[WIDGET].add_index("secret", lambda one: [f"a/{one.read()['spec']}"])
    for name, secret in (("x", "s"), ("y", "s"), ("z", "t")):
        scene.stores[WIDGET].put(item(WIDGET, name, 1, spec=secret))
    async with scene.running():
        await asyncio.sleep(1)
        calls.clear()
        scene.change(item(SECRET, "s", 2), watch=watch)
        await asyncio.sleep(1)
    assert sorted(key for key, _ in calls) == ["a/x", "a/y"]


async def test_a_mapping_that_fails_leads_to_a_look_at_everything() -> None:
    def broken(item: Entry, view: View) -> list[Key]:
        raise KeyError("spec")

    calls, reconcile = noting()
    watch = Watch(Source(SECRET), broken)
    scene = Scene(reconcile, watches=(watch,))
    for name in "xy":
        scene.stores[WIDGET].put(item(WIDGET, name, 1))
    async with scene.running():
        await asyncio.sleep(1)
        calls.clear()
        scene.change(item(SECRET, "s", 2), watch=watch)
        await asyncio.sleep(1)
    assert sorted(key for key, _ in calls) == ["a/x", "a/y"]


async def test_a_deleted_object_is_reconciled_once_more_and_forgotten() -> None:
    def fail(count: int) -> None:
        if count < 4:
            raise ValueError("broken")

    calls, reconcile = noting(fail)
    scene = Scene(reconcile)
    async with scene.running():
        scene.change(item(WIDGET, "x", 1))
        await asyncio.sleep(4)
        scene.change(item(WIDGET, "x", 2), gone=True)
        assert scene.work.queue.failures(Key("a", "x")) == 0
        await asyncio.sleep(1)
    assert [at for _, at in calls] == [0, 1, 3, 4]
    assert scene.work.queue.idle
