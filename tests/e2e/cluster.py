"""A cluster as these tests see it: kubectl, a shell as a person has it, and the name of our image there."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A kubeconfig and what goes with it."""

    config: Path
    image: str
    program: str = "kubectl"
    entry: Sequence[str] = ()
    """What goes before a command that is to run where ports are our own."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """How it finds kubectl there, and kubectl the cluster."""

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl and return what it prints."""
        command = [self.program, "--kubeconfig", str(self.config), *arguments]
        run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
        if run.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {run.stderr.strip()}")
        return run.stdout

    def bash(self, script: str, *, within: float = 400.0) -> str:
        """Run what a person would type, in the clone, and return what it prints; raises when a command fails."""
        command = [*self.entry, "bash", "-euo", "pipefail", "-c", script]
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
            cwd=ROOT,
            env={**self.environment, "BUILD": "never"},  # the nodes have our image
        )
        if run.returncode:
            raise AssertionError(f"{script}\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}")
        return run.stdout

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply documents."""
        listed = {"apiVersion": "v1", "kind": "List", "items": documents}
        self.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(listed))

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return a document."""
        document: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return document
