"""A control plane, istiod, and a Gateway whose Pod is a real Envoy, once per session."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.assets import find as find_plane
from tests.cluster.controlplane import ControlPlane
from tests.istio.assets import find as find_istio
from tests.istio.mesh import Mesh

from pointsman.local.envoy import find as find_envoy

ROOT = Path(__file__).parents[3]


def ours(*arguments: str) -> list[str]:
    """Return a command line of this project."""
    return [sys.executable, "-m", "pointsman", *arguments]


@pytest.fixture(scope="session")
def operator(mesh: Mesh) -> None:
    """The operator, as a process that sees the whole cluster."""
    mesh.plane.kubectl("apply", "-k", str(ROOT / "config" / "crd"))
    config = str(mesh.plane.kubeconfig("admin"))
    nowhere = ("--metrics-bind-address", "0", "--health-probe-bind-address", "0")
    mesh.spawn("operator", ours("operator", "--kubeconfig", config, *nowhere), dict(os.environ))
    for plural in ("simulatordeployments", "schedulerinstalls"):
        crd = f"crd/{plural}.sim.llm-d.io"
        mesh.plane.kubectl("wait", "--for=condition=Established", crd, "--timeout=60s")


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
