"""The inference definitions as their project published them: files of a Go module, fetched when a test needs them."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from pointsman.core.documents import read_yaml
from pointsman.core.kinds import Object

MODULE = "sigs.k8s.io/gateway-api-inference-extension"
RELEASES = ("v1.0.2", "v1.1.0", "v1.2.1", "v1.3.1", "v1.4.0", "v1.5.0", "v1.6.0")


def release(version: str) -> dict[str, Object]:
    """Return the definitions of a release by name; skips the test where they cannot be had."""
    return {document["metadata"]["name"]: document for document in map(read_yaml, files(version))}


def files(version: str) -> list[Path]:
    """Return the files of a release; skips the test where they cannot be had."""
    return sorted((fetched(MODULE, version) / "config" / "crd" / "bases").glob("*.yaml"))


def fetched(module: str, version: str) -> Path:
    """Return the folder of a module's release; skips the test where it cannot be had."""
    directory = _fetched(module, version)
    if isinstance(directory, str):
        pytest.skip(f"{module} {version} cannot be compared with: {directory}")
    return directory


@cache
def _fetched(module: str, version: str) -> Path | str:
    if not shutil.which("go"):
        return "install Go, which fetches it"
    run = subprocess.run(
        ["go", "mod", "download", "-json", f"{module}@{version}"], capture_output=True, text=True, check=False, cwd="/"
    )
    answer = json.loads(run.stdout or "{}")
    return Path(answer["Dir"]) if "Dir" in answer else str(answer.get("Error") or run.stderr)
