"""Build a Dockerfile without a daemon or a registry: Debian's buildah, unpacked, on a base made by debootstrap.

`vfs` storage and chroot isolation need nothing but root. buildah runs where the unpacked packages lie over /usr: for
RUN it starts itself again with an environment of its own, so a path to libraries in ours would not reach it. What pip
is told on this machine (certificates, an index, local wheels) it is told in the build too, by files that are there
only while RUN runs and that no layer keeps.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

BASE = "localhost/base:1"
WITH_PACKAGES = (
    "bash",
    "-c",
    'source "$0" && with_packages "$@"',
    str(Path(__file__).parents[1] / "debian.sh"),
)
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'


class Builder:
    """buildah with a storage of its own in one directory."""

    def __init__(self, root: Path, directory: Path) -> None:
        self._root = root
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "policy.json").write_text(POLICY)
        (directory / "registries.conf").write_text("unqualified-search-registries = []\n")

    def base(self, tree: Path) -> None:
        """Make an image of a directory, to build on."""
        container = self._buildah("from", "scratch").strip()
        self._buildah("add", "--quiet", container, str(tree), "/")
        self._buildah("commit", "--quiet", *self._policy, container, BASE)
        self._buildah("rm", container)

    def build(self, context: Path, *, name: str, archive: Path) -> None:
        """Build the Dockerfile of a directory on the base and write the image as an archive that `ctr` imports."""
        mounts = [f"--volume={source}:{target}:ro" for source, target in self._pip(os.environ).items()]
        both = (f"--build-arg=BASE={BASE}", f"--build-arg=BUILDER={BASE}")
        options = [*both, f"--tag={name}", "--pull=never", "--layers=false"]
        self._buildah("bud", "--quiet", *self._policy, *options, *mounts, str(context))
        self._buildah("push", "--quiet", *self._policy, name, f"oci-archive:{archive}:{name}")

    @property
    def _policy(self) -> Sequence[str]:
        return (f"--signature-policy={self._directory / 'policy.json'}",)

    def _pip(self, environment: Mapping[str, str]) -> dict[Path, str]:
        """Return what to mount so that pip behaves as it does outside."""
        said = {name[4:]: value for name, value in environment.items() if name.startswith("PIP_")}
        told = {name.lower().replace("_", "-"): value for name, value in said.items()}
        path = self._directory / "pip.conf"
        path.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in told.items()))
        named = (Path(value) for value in told.values() if value.startswith("/"))
        return {path: "/etc/pip.conf", **{one: str(one) for one in named if one.exists()}}

    def _buildah(self, *arguments: str) -> str:
        # By flag: beside --root the variable STORAGE_DRIVER is not looked at, and overlay on an overlay does not work.
        storage = [
            *(f"--root={self._directory / 'storage'}", f"--runroot={self._directory / 'run'}"),
            "--storage-driver=vfs",
        ]
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self._directory),
            "TMPDIR": str(self._directory),
            "BUILDAH_ISOLATION": "chroot",
            "CONTAINERS_REGISTRIES_CONF": str(self._directory / "registries.conf"),
        }
        command = [*WITH_PACKAGES, str(self._root), "buildah", *storage, *arguments]
        run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if run.returncode:
            raise RuntimeError(f"buildah {' '.join(arguments)}: {run.stderr.strip()[-2000:]}")
        return run.stdout
