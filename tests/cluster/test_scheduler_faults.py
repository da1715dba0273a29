"""What can happen to a SchedulerInstall while nobody looks: the operator is away, a namespace is deleted; and what an
operator does that sees one namespace only. Nothing of others is defined here.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.cluster.conftest import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.installs import Installs, namespaces
from tests.cluster.simulators import ON, Site, defined, operator
from tests.waiting import eventually

from pointsman.api import SCHEDULER_INSTALL
from pointsman.kube import Key

PICKER = "gaie-inference-scheduling-epp"


@pytest.fixture(scope="module", autouse=True)
def _defined(plane: ControlPlane) -> Iterator[None]:
    with defined(plane, mesh=False):
        yield


@pytest.fixture
async def installs(site: Site) -> AsyncIterator[Installs]:
    async with namespaces(site) as installs:
        yield installs


async def test_deleted_while_the_operator_was_away(plane: ControlPlane, installs: Installs) -> None:
    async with operator(plane.kubeconfig("admin")):
        await installs.create(epp=ON)
        await installs.has(f"h/Deployment/{PICKER}", f"t/Role/{PICKER}")
    await installs.delete()
    assert "deletionTimestamp" in (await installs.live())["metadata"]  # it waits
    assert f"t/Role/{PICKER}" in await installs.made()
    async with operator(plane.kubeconfig("admin")):
        await eventually(lambda: gone(installs))
    assert await installs.made() == set()


async def gone(installs: Installs) -> None:
    left = await installs.here.list(SCHEDULER_INSTALL)
    assert left == [], left


async def test_a_namespace_is_deleted_under_an_install(plane: ControlPlane, installs: Installs) -> None:
    third = Site(plane, installs.client, f"{installs.here.namespace}-gone")
    await installs.client.create(NAMESPACE, {"metadata": {"name": third.namespace}})
    async with operator(plane.kubeconfig("admin")):
        await installs.create(epp=ON, simulatorNamespace=third.namespace)
        await eventually(lambda: has_role(third))
        await installs.client.delete(NAMESPACE, Key("", third.namespace))
        await eventually(lambda: complains(installs))
        await installs.delete()  # which nothing keeps from ending
        await eventually(lambda: gone(installs))
        assert await installs.made() == set()


async def has_role(site: Site) -> None:
    assert f"Role/{PICKER}" in await site.made()


async def complains(installs: Installs) -> None:
    """While the namespace ends nothing can be made in it, and then it is not there."""
    assert (await installs.condition("Ready"))["reason"] in {"Forbidden", "NamespaceMissing"}


async def test_an_operator_that_sees_one_namespace(plane: ControlPlane, installs: Installs) -> None:
    here = installs.here.namespace
    async with operator(plane.kubeconfig("admin"), namespaces=(here,)):
        await installs.create(epp=ON)
        words = f"the operator sees namespace {here} and not {installs.there.namespace}: let it watch all namespaces"
        await installs.told("Ready", "False", "NamespaceNotWatched", words=words)
        assert await installs.made() == set()
        await installs.here.create("sims", replicas=1)
        await installs.edit(simulatorNamespace=here, gateway=ON, routing=ON)
        assert (await installs.ready())["status"]["way"] == "OwnEnvoy"
        await installs.clear()
