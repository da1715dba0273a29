"""One control plane per test session, a namespace of its own per test, and a proxy to make the road faulty.

All of these tests carry one xdist group, so that one worker runs them and the plane starts once; those that want
a plane for themselves have a group of their own. Where there is no control plane and none can be made, they are
skipped with one line that says how to get one.
"""

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cluster.assets import Missing, find
from tests.cluster.controlplane import ControlPlane
from tests.cluster.proxy import Road, road_to
from tests.cluster.simulators import Site
from tests.cluster.widgets import define, release_widgets

from pointsman.api import SCHEDULER_INSTALL, SIMULATOR_DEPLOYMENT
from pointsman.api.llminferenceservice import SERVICE
from pointsman.kube import Client, Kind, connect
from pointsman.kube.errors import NotFound

OPERATED = (SERVICE, SCHEDULER_INSTALL, SIMULATOR_DEPLOYMENT)  # what an operator of a later test would see to
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the tests of this folder on one worker; later than this, xdist has read the groups."""
    alone = isinstance(item, pytest.Function) and "bare" in item.fixturenames
    item.add_marker(pytest.mark.xdist_group("bare" if alone else "cluster"))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    yield from _started(tmp_path_factory.mktemp("plane"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for one file alone: for tests that change what the whole cluster has."""
    yield from _started(tmp_path_factory.mktemp("bare"))


def _started(directory: Path) -> Iterator[ControlPlane]:
    try:
        assets = find()
    except Missing as reason:
        pytest.skip(str(reason))
    plane = ControlPlane(assets, directory)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    async with connect(plane.kubeconfig("admin")) as client:
        yield client


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    await client.create(NAMESPACE, {"metadata": {"name": name}})
    yield name
    # The namespace itself stays until the plane ends: taking one down costs an API server more than most tests do.
    await release_widgets(client, name)
    for kind in OPERATED:
        with suppress(NotFound):
            await client.request("DELETE", kind.path(name))


@pytest.fixture
async def road(plane: ControlPlane) -> AsyncIterator[Road]:
    async with road_to(plane) as road:
        yield road


@pytest.fixture
async def far(plane: ControlPlane, road: Road) -> AsyncIterator[Client]:
    """A client that goes by the faulty road."""
    async with connect(plane.kubeconfig("admin", server=road.server)) as client:
        yield client


@pytest.fixture
async def defined(client: Client) -> None:
    """The API server serves widgets."""
    await define(client)


@pytest.fixture
async def site(plane: ControlPlane, client: Client, namespace: str) -> AsyncIterator[Site]:
    """A namespace for stacks, which takes them away at the end."""
    site = Site(plane, client, namespace)
    yield site
    await site.clear()
