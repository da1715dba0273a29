"""The wiring, as far as it shows without a cluster; tests/cluster has the rest."""

import httpx2
import pytest

from pointsman.kube import Client, Controller, Key, Kind, Ownership, Result, Runtime, Source, View, owned
from pointsman.kube.errors import NotLeader

CONFIGMAP = Kind("", "v1", "ConfigMap", "configmaps")
WIDGET = Kind("example.dev", "v1", "Widget", "widgets")
OWNERSHIP = Ownership(manager="op", domain="example.dev")


async def reconcile(key: Key, view: View) -> Result | None:
    return None


def make(lease: Key | None = None) -> Runtime:
    nowhere = Client(httpx2.AsyncClient(base_url="http://127.0.0.1:9", trust_env=False))
    return Runtime(nowhere, ownership=OWNERSHIP, lease=lease)


async def test_before_the_first_list_there_is_a_problem_and_an_empty_queue() -> None:
    runtime = make()
    runtime.add(Controller("c", Source(CONFIGMAP), reconcile))
    assert [str(one) for one in runtime.unfollowed()] == ["configmaps: starting (first list pending)"]
    assert b'workqueue_depth{controller="c",name="c"} 0\n' in runtime.metrics.render()


async def test_one_cache_per_kind_hence_one_selector() -> None:
    runtime = make()
    children = owned(CONFIGMAP, owner=WIDGET, ownership=OWNERSHIP)
    runtime.add(Controller("one", Source(WIDGET), reconcile, watches=(children,)))
    runtime.add(Controller("two", Source(WIDGET), reconcile, watches=(children,)))
    with pytest.raises(ValueError, match="configmaps is already watched as"):
        runtime.add(Controller("three", Source(CONFIGMAP), reconcile))


async def test_owned_objects_may_be_watched_without_the_selector() -> None:
    runtime = make()
    everything = Source(CONFIGMAP)
    children = owned(CONFIGMAP, owner=WIDGET, ownership=OWNERSHIP, source=everything)
    runtime.add(Controller("one", Source(WIDGET), reconcile, watches=(children,)))
    runtime.add(Controller("two", everything, reconcile))
    assert runtime.view.find(CONFIGMAP, OWNERSHIP.label, "u1") == []


async def test_with_a_lease_nothing_is_written_before_it_is_held() -> None:
    runtime = make(lease=Key("a", "leader"))
    with pytest.raises(NotLeader, match="the lease a/leader is not held by"):
        await runtime.client.delete(CONFIGMAP, Key("a", "x"))


async def test_two_processes_have_two_identities() -> None:
    messages = set()
    for _ in range(2):
        election = make(lease=Key("a", "leader")).election
        assert election is not None
        with pytest.raises(NotLeader) as caught:
            election.check()
        messages.add(str(caught.value))
    assert len(messages) == 2
