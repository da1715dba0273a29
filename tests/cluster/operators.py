"""Our operator as a process beside a control plane, for tests of what stands around it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.controlplane import ControlPlane


@contextmanager
def operating(
    plane: ControlPlane,
    log: Path,
    *flags: str,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Run `pointsman operator` while the block runs, as the administrator or by another kubeconfig."""
    quiet = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
    who = f"--kubeconfig={config or plane.kubeconfig('admin')}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pointsman", "operator", *quiet, who, *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"HOME": str(plane.directory), "PATH": os.environ.get("PATH", ""), **(environment or {})},
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(20)


def account_config(plane: ControlPlane, path: Path, *, namespace: str, account: str) -> Path:
    """Write and return the kubeconfig of a service account: what it may do is all that its bearer may."""
    token = plane.kubectl("create", "token", account, "-n", namespace).strip()
    document = json.loads(plane.kubeconfig("admin").read_text())
    document["users"][0]["user"] = {"token": token}
    document["clusters"][0]["cluster"]["certificate-authority"] = str(plane.directory / "ca.crt")
    path.write_text(json.dumps(document))
    return path
