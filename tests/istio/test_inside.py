"""Run `inside/` where Pod addresses are local: a user and network namespace, no root needed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.assets import Missing
from tests.cluster.assets import find as find_plane
from tests.istio.assets import find as find_istio
from tests.istio.conftest import INSIDE

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PODS = "10.244.0.0/16"
# Each has a mesh of its own: istiod is started again in the second, and Pods of one would get addresses of the other.
STORIES = {
    "stacks": ("test_doctor.py", "test_envoyfilter.py", "test_bbr.py", "test_simulators.py"),
    "installs": ("test_schedulers.py",),
}


@pytest.fixture
def mesh() -> None:
    """Make sure that what the tests inside need is there; building it takes minutes, once."""
    probe = ["unshare", "--map-root-user", "--net", "true"]
    if not shutil.which("unshare") or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("tests/istio needs unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1")
    try:
        find_plane()
        find_istio()
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(1260)
@pytest.mark.usefixtures("mesh")
@pytest.mark.parametrize("story", [pytest.param(each, marks=pytest.mark.xdist_group(each)) for each in STORIES])
def test_inside_a_network_namespace(story: str) -> None:
    # In order: they share one stack, which is what starting a mesh costs, and the last one deletes it.
    plugins = [word for name in ("cacheprovider", "xdist", "randomly") for word in ("-p", f"no:{name}")]
    tests = [sys.executable, "-m", "pytest", "-qs", *plugins, *(str(HERE / "inside" / name) for name in STORIES[story])]
    enter = [sys.executable, "-m", "tests.istio.enter", PODS]
    command = ["unshare", "--map-root-user", "--net", *enter, *tests]
    run = subprocess.run(
        command, cwd=ROOT, env={**os.environ, INSIDE: "1"}, capture_output=True, text=True, timeout=1200, check=False
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
    print(run.stdout[-500:])


def test_every_file_is_in_a_story() -> None:
    told = [name for story in STORIES.values() for name in story]
    assert sorted(told) == sorted(path.name for path in (HERE / "inside").glob("test_*.py"))
