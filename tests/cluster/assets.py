"""Find the programs of a control plane: etcd, kube-apiserver, and what else there is.

Owns the order of the places to look: `KUBEBUILDER_ASSETS`, our cache, the official envtest archive (when its
address is configured: the suite itself asks no network), a build from Go modules. Knows nothing of how they
are run. A place is taken only if it has all of `NEEDED`, so half a download is not mistaken for a control
plane.
"""

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NEEDED = ("etcd", "kube-apiserver", "kubectl")
TOOLS = Path(__file__).parents[2] / "tools" / "kube"
HOW = (
    "no control plane for tests/cluster: install Go 1.26 or newer (tools/kube/build makes one in 9 minutes), "
    "or set KUBEBUILDER_ASSETS to a directory with etcd, kube-apiserver and kubectl, "
    "or ENVTEST_URL to an envtest archive"
)


class Missing(Exception):
    """None of the places has a control plane."""


@dataclass(frozen=True, slots=True)
class Assets:
    """A directory of programs, and from where it came."""

    directory: Path
    origin: str

    def find(self, name: str) -> Path | None:
        path = self.directory / name
        return path if path.exists() else None


def find(environment: Mapping[str, str] = os.environ, *, tools: Path = TOOLS) -> Assets:
    """Return the first place that has a whole control plane, making one if it must; raises Missing."""
    named = environment.get("KUBEBUILDER_ASSETS")
    if named:
        if not _whole(Path(named)):
            raise Missing(f"KUBEBUILDER_ASSETS={named} lacks one of {', '.join(NEEDED)}")
        return Assets(Path(named), "KUBEBUILDER_ASSETS")
    there = built(environment, tools=tools)
    if there is not None:
        return Assets(there, "cache")
    url = environment.get("ENVTEST_URL")
    if url:
        return Assets(
            _download(url, _cache(environment), digest=environment.get("ENVTEST_SHA512", "")), "envtest archive"
        )
    if not shutil.which("go", path=environment.get("PATH")):
        raise Missing(HOW)
    return Assets(_build(tools, environment), "Go modules")


def built(environment: Mapping[str, str], *, tools: Path = TOOLS) -> Path | None:
    """Return what the build script has left in the cache; of two compilers' the newer."""
    cache = _cache(environment)
    return max((path for path in cache.glob(f"kube-{_key(tools)}-*") if _whole(path)), default=None)


def _key(tools: Path) -> str:
    """Return what the build script names its directory after, without asking Go: a cache outlives the
    compiler.
    """
    parts = b"".join((tools / name).read_bytes() for name in ("go.mod", "go.sum", "build"))
    return hashlib.sha256(parts).hexdigest()[:12]


def _cache(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".cache"
    return Path(home) / "pointsman"


def _whole(directory: Path) -> bool:
    return ".partial" not in directory.name and all((directory / name).exists() for name in NEEDED)


def _download(url: str, cache: Path, *, digest: str) -> Path:
    target = cache / f"envtest-{hashlib.sha256(url.encode()).hexdigest()[:12]}"
    if _whole(target):
        return target
    with urllib.request.urlopen(url, timeout=120) as answer:
        archive = answer.read()
    if digest and hashlib.sha512(archive).hexdigest() != digest:
        raise Missing(f"{url} is not the archive that ENVTEST_SHA512 names")
    partial = target.with_name(f"{target.name}.partial.{os.getpid()}")
    partial.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar.getmembers():
            # The archive nests its programs; only their names matter, and no path of the archive is trusted.
            if member.isfile() and (source := tar.extractfile(member)) is not None:
                program = partial / Path(member.name).name
                program.write_bytes(source.read())
                program.chmod(0o755)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    if not _whole(target):
        raise Missing(f"{url} lacks one of {', '.join(NEEDED)}")
    return target


def _build(tools: Path, environment: Mapping[str, str]) -> Path:
    run = subprocess.run([tools / "build"], stdout=subprocess.PIPE, text=True, env=dict(environment), check=False)
    if run.returncode:
        raise Missing(f"tools/kube/build failed with {run.returncode}; {HOW}")
    return Path(run.stdout.strip().splitlines()[-1])
