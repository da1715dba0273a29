"""Our image, built from our own Dockerfile, as an archive that a node imports; kept in the cache by its content.

One image is every part, so a node gets it under every name by which resources ask for a part.
"""

import hashlib
import os
import tempfile
from pathlib import Path

from tools.node.dockerfile import Builder

ROOT = Path(__file__).parents[2]
IMAGE = "docker.io/library/pointsman:local"  # as config/manager names it
# What resources name when they name nothing, or as the samples do.
NAMES = (
    "docker.io/library/llm-d-simulator:local",
    "ghcr.io/llm-d/llm-d-simulator:latest",
    "ghcr.io/llm-d/llm-d-inference-scheduler:v0.4.0",
    "cr.kgateway.dev/kgateway-dev/envoy-wrapper:v2.1.1",
    "docker.io/istio/proxyv2:1.28.1",
    "gcr.io/ecoeng-llmd/llm-d-inference-scheduler:alpn-fix",
)
KEPT = 3
"""Images in the cache, the newest: one per change of the source would fill the disk, but clones take turns."""
CONTENT = (
    "Dockerfile",
    ".dockerignore",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "requirements/build.txt",
    "requirements/compile.txt",
    "requirements/runtime.txt",
)


def build_image(node: Path) -> Path:
    """Return the image's archive, building it with the node's buildah and base when there is none."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    archive = Path(home) / "pointsman" / f"image-{_digest(node)}.tar"
    if archive.exists():
        return archive
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        builder = Builder(node / "root", Path(scratch))
        builder.base(node / "base")
        partial = Path(scratch) / "image.tar"
        builder.build(ROOT, name=IMAGE, archive=partial)
        partial.rename(archive)
    archives = sorted(archive.parent.glob("image-*.tar"), key=lambda each: each.stat().st_mtime, reverse=True)
    for older in archives[KEPT:]:
        older.unlink(missing_ok=True)
    return archive


def _digest(node: Path) -> str:
    code = hashlib.sha256(node.name.encode())
    sources = sorted(path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    for path in (*(ROOT / name for name in CONTENT), *sources):
        code.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return code.hexdigest()[:12]
