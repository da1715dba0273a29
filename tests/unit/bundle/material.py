"""Real bundles, where they are at hand: a folder that the environment names, and test data of three Go modules."""

import functools
import json
import os
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

from pointsman.bundle.load import load_bundle
from pointsman.bundle.model import Bundle

MODULES = (
    "github.com/operator-framework/api@v0.37.0",
    "github.com/operator-framework/operator-registry@v1.61.0",
    "github.com/operator-framework/operator-lifecycle-manager@v0.38.0",
)


def named_folder() -> Path | None:
    """Return the folder with real bundles that the environment names."""
    data = os.environ.get("POINTSMAN_DATA")
    named = os.environ.get("POINTSMAN_BUNDLES") or (f"{data}/bundles" if data else "")
    return Path(named) if named and Path(named).is_dir() else None


@functools.cache
def go_folders() -> tuple[Path, ...]:
    """Return the folders of bundles in the Go modules; none, and a warning, without Go or its modules."""
    if not shutil.which("go"):
        warnings.warn("150 bundles are not tested: they come with Go modules, and there is no Go", stacklevel=1)
        return ()
    found: list[Path] = []
    for module in MODULES:
        run = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, text=True, check=False)
        if run.returncode:
            warnings.warn(f"bundles of {module} are not tested: {run.stderr or run.stdout}", stacklevel=1)
            continue
        found.extend(bundles_below(Path(json.loads(run.stdout)["Dir"])))
    return tuple(found)


def bundles_below(root: Path) -> Iterator[Path]:
    """Yield the folders below one that hold a ClusterServiceVersion, or whose `manifests` do."""
    folders = {
        path.parent
        for path in root.rglob("*.y*ml")
        if path.is_file() and b"kind: ClusterServiceVersion" in path.read_bytes()
    }
    for folder in sorted(folders):
        yield folder.parent if folder.name == "manifests" and (folder.parent / "metadata").is_dir() else folder


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def real_bundle(name: str) -> Bundle | None:
    """Return one of the real bundles by the start of its folder's name."""
    folder = named_folder()
    found = next(iter(sorted(folder.glob(f"{name}*"))), None) if folder else None
    return load_bundle(read_files(found), name=name) if found else None
