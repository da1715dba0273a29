"""Find istiod, its chart and the CRDs that go with it: our cache, or a build from Go modules.

The directory is named as `tools/istio/build` names it; see tests/cluster/assets.py for the control plane itself.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.assets import Missing

TOOLS = Path(__file__).parents[2] / "tools" / "istio"


def find(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory with pilot-discovery, chart/ and crds/; raises Missing."""
    there = built(environment)
    if there is not None:
        return there
    if not shutil.which("go", path=environment.get("PATH")):
        raise Missing("no istiod for tests/istio: install Go 1.26 or newer, tools/istio/build makes one in 6 minutes")
    run = subprocess.run([TOOLS / "build"], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise Missing(f"tools/istio/build failed with {run.returncode}")
    return Path(run.stdout.strip().splitlines()[-1])


def built(environment: Mapping[str, str]) -> Path | None:
    """Return what the build script has left in the cache."""
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".cache"
    parts = b"".join((TOOLS / name).read_bytes() for name in ("go.mod", "go.sum", "build"))
    key = hashlib.sha256(parts).hexdigest()[:12]
    found = (Path(home) / "pointsman").glob(f"istio-{key}-*")
    return max((path for path in found if ".partial" not in path.name), default=None)
