"""Programs that tests build from pinned Go modules (`tools/<name>/go.mod`), once, into the cache outside the clone.

`python -m tests.gotools NAME` builds one, as `tools.prepare` does before the tests that need it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
PACKAGES = {
    "actionlint": "github.com/rhysd/actionlint/cmd/actionlint",
    "h2spec": "github.com/summerwind/h2spec/cmd/h2spec",
}


def place(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the program is or would be."""
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pointsman"
    return cache / f"{name}-{hashlib.sha256((TOOLS / name / 'go.sum').read_bytes()).hexdigest()[:12]}"


def built(name: str) -> Path:
    """Return the program; skip the test where there is no Go to build it with."""
    if shutil.which("go") is None:
        pytest.skip(f"{name} needs Go to be built: install Go 1.26 or newer")
    return build(name)


def build(name: str) -> Path:
    """Return the program, building it if nobody has."""
    binary = place(name)
    binary.parent.mkdir(parents=True, exist_ok=True)
    with binary.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            part = binary.with_suffix(".part")
            command = ["go", "build", "-mod=readonly", "-o", str(part), PACKAGES[name]]
            subprocess.run(command, cwd=TOOLS / name, check=True, timeout=300)
            part.rename(binary)
    return binary


if __name__ == "__main__":
    build(sys.argv[1])
