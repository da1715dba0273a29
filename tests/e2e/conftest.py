"""A cluster with a real node: the one that E2E_KUBECONFIG names, or one on this machine, which then leaves no trace.

`make e2e` sets POINTSMAN_E2E; `make test` does not, and collects nothing here.
"""

import os
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import Cluster
from tests.e2e.traces import Traces
from tools.node.ours import IMAGE, NAMES, ROOT, build_image

collect_ignore_glob = [] if os.environ.get("POINTSMAN_E2E") else ["test_*.py"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster whose node has our image."""
    given = os.environ.get("E2E_KUBECONFIG")
    if given:
        image = os.environ.get("E2E_IMAGE", IMAGE)
        yield Cluster(Path(given), image=image, environment={**os.environ, "KUBECONFIG": given})
        return
    missing = [name for name in ("apt-get", "go", "unshare") if not shutil.which(name)]
    if sys.platform != "linux" or os.geteuid() != 0 or missing:
        needs = f"root on Debian or Ubuntu with Go{' (missing: ' + ', '.join(missing) + ')' if missing else ''}"
        pytest.skip(f"tests/e2e needs {needs}, or E2E_KUBECONFIG and E2E_IMAGE for a cluster of yours")
    yield from _own_node(tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="session")
def named(cluster: Cluster) -> None:
    """Want our image under the names that samples use for it."""
    if os.environ.get("E2E_KUBECONFIG") and os.environ.get("E2E_IMAGE"):
        pytest.skip(
            "the samples name other images than E2E_IMAGE: give the nodes ours under those names and leave it out"
        )


def _own_node(directory: Path) -> Iterator[Cluster]:
    from tools.node import cluster as node

    places = node.places_of(directory / "state")
    image = build_image(places.node)
    before = Traces.take(places.cgroup)
    guard = _guard(places.state)
    try:
        times = node.up(places, images=[image])
        node.tag_image(places, IMAGE, others=NAMES)
        print("node up:", times)
        ready = threading.Event()
        with node.forward(places, ready=ready) as listener:
            assert ready.wait(10), "no way into the node's network namespace"
            config = node.outside_kubeconfig(places, listener.getsockname()[1])
            yield Cluster(
                config,
                image=IMAGE,
                program=places.program("kubectl"),
                entry=node.inside(places, []),
                environment=places.environment(),
            )
    finally:
        node.down(places)
        guard.communicate(b"done\n")
    left = Traces.take(places.cgroup).beyond(before)
    assert not left, f"the node left traces: {left}"


def _guard(state: Path) -> subprocess.Popen[bytes]:
    """Start a process that takes the node down when ours ends without a word: the pipe closes, however we end."""
    command = [sys.executable, "-m", "tools.node.cluster", "down"]
    return subprocess.Popen(
        ["sh", "-c", 'read line || exec "$@"', "guard", *command],
        stdin=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "NODE_STATE": str(state)},
        start_new_session=True,
    )


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    name = f"e2e-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
