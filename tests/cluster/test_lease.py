"""At most one replica writes: election, loss, hand-over, on a real API server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.cluster.controlplane import ControlPlane
from tests.cluster.proxy import Call, Road, road_to
from tests.cluster.widgets import CONFIGMAP, running
from tests.waiting import eventually

from pointsman.core.kinds import LEASE
from pointsman.kube import Client, Controller, Key, LeaseTerms, Ownership, Result, Runtime, Source, View, connect
from pointsman.kube.errors import NotLeader

# Long enough that a machine which is busy for a while has no other leader for that.
TERMS = LeaseTerms(duration=5.0, renew_deadline=3.5, retry=0.3)


class Replica:
    """One of several processes of an operator, which writes its name to a ConfigMap as fast as it may."""

    def __init__(self, name: str, *, client: Client, road: Road, namespace: str) -> None:
        self.name = name
        self.road = road
        self.writes: list[float] = []
        self.runtime = Runtime(
            client,
            ownership=Ownership(manager="busy", domain="busy.dev"),
            lease=Key(namespace, "busy"),
            identity=name,
            terms=TERMS,
        )
        source = Source(CONFIGMAP, namespace=namespace, fields="metadata.name=board")
        self.runtime.add(Controller("busy", source, self._reconcile))

    @property
    def leading(self) -> bool:
        assert self.runtime.election is not None
        return self.runtime.election.leading

    async def _reconcile(self, key: Key, view: View) -> Result | None:
        if view.get(CONFIGMAP, key) is None:
            return None
        while True:
            sent = time.monotonic()  # what counts is when it left, not how long a busy machine took to answer
            await self.runtime.client.patch(CONFIGMAP, key, {"data": {"writer": self.name}}, how="merge")
            self.writes.append(sent)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def replicas(plane: ControlPlane, namespace: str, *names: str) -> AsyncIterator[list[Replica]]:
    async with AsyncExitStack() as stack:
        made = []
        for name in names:
            road = await stack.enter_async_context(road_to(plane))
            client = await stack.enter_async_context(connect(plane.kubeconfig("admin", server=road.server)))
            made.append(Replica(name, client=client, road=road, namespace=namespace))
        yield made


@pytest.fixture
async def board(client: Client, namespace: str) -> None:
    await client.create(CONFIGMAP, {"metadata": {"name": "board", "namespace": namespace}})


async def writing(replica: Replica) -> None:
    count = len(replica.writes)

    async def more() -> None:
        assert len(replica.writes) > count + 3

    await eventually(more)


async def test_one_leads_and_hands_over_when_it_ends(
    plane: ControlPlane, client: Client, namespace: str, board: None
) -> None:
    async with replicas(plane, namespace, "one", "two") as (one, two):
        async with running(one.runtime):
            await writing(one)
            async with running(two.runtime):
                await asyncio.sleep(1)
                assert one.leading
                assert two.writes == []
                lease = await client.get(LEASE, Key(namespace, "busy"))
                assert lease["spec"]["holderIdentity"] == "one"
        assert (await client.get(LEASE, Key(namespace, "busy")))["spec"]["holderIdentity"] == ""
        began = time.monotonic()
        async with running(two.runtime):
            await writing(two)
        assert time.monotonic() - began < TERMS.duration  # given back, not waited for
        lease = await client.get(LEASE, Key(namespace, "busy"))
        assert lease["spec"]["leaseTransitions"] >= 1


async def test_a_renewal_that_is_still_on_its_way_does_not_keep_the_lease(
    plane: ControlPlane, client: Client, namespace: str, board: None
) -> None:
    """Whoever ends has read the lease; then a renewal from before arrives, and the server calls that reading old."""
    conflict = 409, {"content-type": "application/json"}, b'{"kind": "Status", "reason": "Conflict", "code": 409}'
    refused: list[Call] = []

    async with replicas(plane, namespace, "one") as (one,):

        def refuse(call: Call) -> tuple[int, dict[str, str], bytes] | None:
            if refused or call.method != "PUT" or "/leases/" not in call.path or one.leading:
                return None
            refused.append(call)
            return conflict

        async with running(one.runtime):
            await writing(one)
            one.road.refuse = refuse
        assert refused
        assert (await client.get(LEASE, Key(namespace, "busy")))["spec"]["holderIdentity"] == ""


async def test_a_lease_that_cannot_be_renewed_stops_the_writing_at_once(
    plane: ControlPlane, namespace: str, board: None
) -> None:
    """Only the renewals fail; every other request of that replica would still succeed."""
    renewed: list[float] = []

    def refuse(call: Call) -> tuple[int, dict[str, str], bytes] | None:
        return (500, {}, b"{}") if "/leases/" in call.path and renewed else None

    async with replicas(plane, namespace, "one", "two") as (one, two), running(one.runtime):
        await writing(one)
        async with running(two.runtime):
            one.road.refuse = refuse
            renewed.append(time.monotonic())
            await writing(two)
            assert not one.leading
            assert max(one.writes) < renewed[0] + TERMS.renew_deadline + 0.5
            assert max(one.writes) < min(two.writes)  # never two writers
            one.road.refuse = None
            await asyncio.sleep(1)
            count = len(one.writes)
            await asyncio.sleep(1)
            assert len(one.writes) == count  # it stands again, and waits


async def test_a_process_that_was_stopped_finds_the_fence_closed(
    plane: ControlPlane, namespace: str, board: None
) -> None:
    async with replicas(plane, namespace, "one") as (one,), running(one.runtime):
        await writing(one)
        time.sleep(TERMS.duration + 0.5)  # noqa: ASYNC251 - the whole process stands still, as under SIGSTOP
        with pytest.raises(NotLeader, match="is not held by one"):
            await one.runtime.client.patch(CONFIGMAP, Key(namespace, "board"), {"data": {"late": "1"}}, how="merge")
        await writing(one)  # and it comes back by itself


async def test_a_lease_taken_by_another_ends_the_term(
    plane: ControlPlane, client: Client, namespace: str, board: None
) -> None:
    async with replicas(plane, namespace, "one") as (one,), running(one.runtime):
        await writing(one)
        stolen = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 5}}
        await client.patch(LEASE, Key(namespace, "busy"), stolen, how="merge")

        async def over() -> None:
            assert not one.leading

        await eventually(over)
        count = len(one.writes)
        await asyncio.sleep(0.5)
        assert len(one.writes) == count
        await writing(one)  # the thief never renews
