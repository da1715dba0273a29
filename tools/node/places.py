"""Names and addresses of the node, in one place: everything else derives from a state directory and these.

The addresses exist only inside the node's network namespace, so they need not be unique on the machine.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

NODE = "node-1"
ADDRESS = "172.30.0.2"
PODS = "10.244.0.0/24"
SERVICES = "10.96.0.0/16"
API = "10.96.0.1"
DNS = "10.96.0.10"
PAUSE = "localhost/pause:1"
COREDNS = "localhost/coredns:1"


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are: our state, what tools/kube/build made, and what tools/node/build made."""

    state: Path
    kube: Path
    node: Path

    @property
    def cgroup(self) -> str:
        """The name of the child cgroup, one per state directory, so that two nodes can run side by side."""
        return f"pointsman-node-{hashlib.sha256(str(self.state).encode()).hexdigest()[:8]}"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    def program(self, name: str) -> str:
        """Return a program of ours, or one that the overlay puts on the usual path."""
        for directory in (self.node / "bin", self.kube):
            if (directory / name).exists():
                return str(directory / name)
        return name

    def kubeconfig(self, user: str) -> Path:
        return self.state / f"{user}.kubeconfig"

    def environment(self) -> dict[str, str]:
        """Return the environment of everything that runs inside."""
        path = f"{self.node / 'bin'}:{self.kube}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {
            "PATH": path,
            "HOME": str(self.state),
            "KUBECONFIG": str(self.kubeconfig("admin")),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        }
