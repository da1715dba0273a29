"""A control plane, istiod, and a Gateway whose Pod is a real Envoy, once per session."""

import os
from collections.abc import Iterator

import pytest
from tests.cluster.assets import find as find_plane
from tests.cluster.controlplane import ControlPlane
from tests.istio.assets import find as find_istio
from tests.istio.mesh import Mesh

from pointsman.local.envoy import find as find_envoy


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    directory = tmp_path_factory.mktemp("mesh")
    plane = ControlPlane(find_plane(), directory / "plane")
    mesh = Mesh(plane, istio=find_istio(), envoy=find_envoy(os.environ, say=print), directory=directory)
    try:
        plane.start()
        mesh.start()
        yield mesh
    finally:
        mesh.stop()
        plane.stop()
