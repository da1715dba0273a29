"""Build the picker's compiled form, once per state of its sources, into the cache outside the clone.

`python -m tools.compiled` builds and prints the folder: the whole package with compiled modules beside their sources,
to be put first in PYTHONPATH. It is the wheel that is published, built in a copy of the tree: compiled files beside the
sources of an editable install would be run, and would be stale with the next edit. What nobody uses is removed.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from pointsman.local.envoy import cache_folder

ROOT = Path(__file__).parents[1]
_BESIDE = ("pyproject.toml", "README.md", "LICENSE")
_DAYS = 3
_READ = ("core", "wire", "epp")  # of the package: what is compiled, and what that imports


def missing(environment: Mapping[str, str] = os.environ) -> str:
    """Return what is missing here to build it; nothing when all is there."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which(compiler, path=environment.get("PATH")) is None:
        return f"the compiled form needs a C compiler, and there is no {compiler}: install gcc"
    return "" if header.exists() else f"the compiled form needs Python's headers, and there is no {header}"


def place(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the build of the sources as they are now is, or would be."""
    code = hashlib.sha256(f"{sys.implementation.cache_tag} {platform.machine()}".encode())
    package = ROOT / "src" / "pointsman"
    sources = sorted(path for folder in _READ for path in (package / folder).rglob("*.py"))
    for path in (ROOT / "pyproject.toml", ROOT / "requirements" / "dev.txt", *sources):
        code.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return cache_folder(environment) / f"compiled-{code.hexdigest()[:12]}"


def build(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder, building it if nobody has."""
    folder = place(environment)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "compiled.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(prefix="compiled-", dir=folder.parent) as scratch:
                _build(Path(scratch), environment).rename(folder)
            _tidy(folder.parent)
        os.utime(folder)
    return folder


def _tidy(cache: Path) -> None:
    """Remove what nobody has used for days; another clone may be at work with what is newer."""
    for each in cache.glob("compiled-*"):
        if each.is_dir() and time.time() - each.stat().st_mtime > _DAYS * 86_400:
            shutil.rmtree(each, ignore_errors=True)


def _build(scratch: Path, environment: Mapping[str, str]) -> Path:
    """Build the wheel in a copy of the tree, and return it unpacked."""
    tree = scratch / "tree"
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in _BESIDE:
        shutil.copy(ROOT / name, tree / name)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(scratch)]
    on = {**environment, "HATCH_BUILD_HOOKS_ENABLE": "true"}
    subprocess.run(command, cwd=tree, env=on, check=True, timeout=1800, stdout=subprocess.DEVNULL)
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(scratch / "whole")
    return scratch / "whole"


if __name__ == "__main__":
    lacking = missing()
    sys.exit(lacking) if lacking else print(build())
