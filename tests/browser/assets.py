"""Find the Chromium and the Prometheus of these tests: in our cache, or by `tools/browser`, from Debian's packages."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.assets import Missing

BUILD = Path(__file__).parents[2] / "tools" / "browser" / "build"


def find(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder whose `bin` has both; raises Missing."""
    if built(environment) is None:
        if not possible(environment):
            raise Missing(
                "no Chromium for tests/browser: tools/browser/build needs apt-get and dpkg, of Debian or Ubuntu"
            )
        run = subprocess.run([BUILD], stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            raise Missing(f"tools/browser/build failed with {run.returncode}: it fetches Debian's packages")
    found = built(environment)
    assert found is not None
    return found


def built(environment: Mapping[str, str]) -> Path | None:
    """Return what the build script has left in the cache; its name depends on what is installed here."""
    if not possible(environment):
        return None
    told = subprocess.run([BUILD, "--print"], stdout=subprocess.PIPE, text=True, check=True, env=dict(environment))
    folder = Path(told.stdout.strip())
    return folder if folder.is_dir() else None


def possible(environment: Mapping[str, str]) -> bool:
    """Return whether they can be fetched here."""
    return all(shutil.which(program, path=environment.get("PATH")) for program in ("apt-get", "dpkg"))
