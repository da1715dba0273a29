"""Our image for the node: a Debian root with Python, our dependencies, our code, and the example operator.

Dependencies come from the hashed requirement file and are kept in the cache under its digest.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.widgets import source
from tools.node.image import Layer, write_image

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/pointsman:e2e"
EXAMPLE = "/opt/example/widget_operator.py"


def build_image(base: Path, directory: Path) -> Path:
    """Write the image and return its archive."""
    example = directory / "widget_operator.py"
    example.write_text(source())
    archive = directory / "pointsman.tar"
    write_image(
        archive,
        name=IMAGE,
        layers=[
            Layer(base),
            Layer(_dependencies(), at="/opt/dependencies"),
            Layer(ROOT / "src", at="/opt/pointsman"),
            Layer(example, at=EXAMPLE),
        ],
        command=["python3"],
        environment={"PYTHONPATH": "/opt/pointsman:/opt/dependencies", "PYTHONUNBUFFERED": "1"},
    )
    return archive


def _dependencies() -> Path:
    """Return a directory with the runtime dependencies for the image's Python, installing it when there is none."""
    requirements = ROOT / "requirements" / "runtime.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    target = Path(home) / "pointsman" / f"site-{digest}-py311"
    if target.exists():
        return target
    partial = target.with_name(f"{target.name}.partial.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    wheels = ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp"]
    platforms = [f"--platform={name}_x86_64" for name in ("manylinux2014", "manylinux_2_28", "manylinux_2_17")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*pip, "--require-hashes", "-r", str(requirements), *wheels, *platforms, "--target", str(partial)], check=True
    )
    partial.rename(target)
    return target
