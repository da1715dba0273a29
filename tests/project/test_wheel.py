"""The built wheel, installed into an empty environment, runs the stack: nothing is there only because of the clone."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.envoy.commands import PORTS

from pointsman.local.envoy import find

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, environment: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    line = [str(word) for word in command]
    done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, f"{line}: {done.stderr[-2000:]}{done.stdout[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel")
    run(*pip, "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (found,) = folder.glob("pointsman-*.whl")
    return found


@pytest.mark.timeout(400)
def test_the_wheel_alone_runs_the_stack(wheel: Path, tmp_path: Path) -> None:
    # Neither pip in there nor a compiled form of every module: that is most of the time, and nothing that is tested.
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    programs = tmp_path / "venv" / "bin"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", programs / "python")
    install = (*pip, "install", "--quiet", "--no-compile")
    run(*install, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt")
    run(*install, "--no-deps", wheel)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
        "XDG_STATE_HOME": str(tmp_path),
        "POINTSMAN_ENVOY": str(find(os.environ, say=print)),
    }
    listed = run("python3", "-m", "zipfile", "--list", wheel)
    assert "py.typed" in listed and "epp/page/static/index.html" in listed
    pointsman = programs / "pointsman"
    try:
        run(pointsman, "up", "--detach", *(f"{flag}=0" for flag in PORTS), environment=environment, cwd=tmp_path)
        running = json.loads(run(pointsman, "status", "--json", environment=environment, cwd=tmp_path))
        with urllib.request.urlopen(f"{running['gateway']}/v1/models", timeout=10) as answer:
            assert answer.headers["x-inference-pod"].startswith("simulator-")
    finally:
        run(pointsman, "down", environment=environment, cwd=tmp_path)
