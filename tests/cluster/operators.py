"""Our operator as a process beside a control plane, for tests of what stands around it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.controlplane import ControlPlane


@contextmanager
def operating(plane: ControlPlane, log: Path) -> Iterator[None]:
    """Run `pointsman operator` as the administrator while the block runs."""
    flags = ("--metrics-bind-address=0", "--health-probe-bind-address=0", f"--kubeconfig={plane.kubeconfig('admin')}")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pointsman", "operator", *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"HOME": str(plane.directory), "PATH": os.environ.get("PATH", "")},
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(20)
