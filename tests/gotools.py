"""Programs that tests build from pinned Go modules (`tools/<name>/go.mod`), once, into the cache outside the clone."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


def built(name: str, *, package: str) -> Path:
    """Return the program; skip the test where there is no Go to build it with."""
    if shutil.which("go") is None:
        pytest.skip(f"{name} needs Go to be built: install Go 1.26 or newer")
    module = TOOLS / name
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pointsman"
    key = hashlib.sha256((module / "go.sum").read_bytes()).hexdigest()[:12]
    binary = cache / f"{name}-{key}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            part = binary.with_suffix(".part")
            command = ["go", "build", "-mod=readonly", "-o", str(part), package]
            subprocess.run(command, cwd=module, check=True, timeout=300)
            part.rename(binary)
    return binary
