"""What we pull is what Debian's skopeo pulls: the same registry, the same credentials, the same bytes."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.unit.bundle.made import files
from tests.unit.bundle.packed import Registry, digest, packed, serving, tar

from pointsman.bundle.sources.source import Registries, fetch_bundle

TOOL = Path(__file__).parents[3] / "tools" / "skopeo" / "build"


@pytest.fixture(scope="module")
def skopeo() -> str:
    """Return skopeo: the one on the PATH, or Debian's, unpacked into the cache."""
    found = shutil.which("skopeo")
    if found:
        return found
    run = subprocess.run([TOOL], capture_output=True, text=True, timeout=150, check=False)
    if run.returncode:
        pytest.skip(f"NOT CROSS-CHECKED WITH SKOPEO: {run.stderr.strip()[-200:]}")
    return f"{run.stdout.strip()}/skopeo"


@pytest.mark.parametrize("basic", [True, False], ids=["password", "token"])
def test_skopeo_and_we_pull_the_same(skopeo: str, tmp_path: Path, *, basic: bool) -> None:
    content = {"team/bundle": packed(tar(files()))}
    with serving(Registry(images=content, user="u", password="p", basic=basic)) as registry:
        image = f"{registry.host}/team/bundle:v1"

        def run(*arguments: str) -> str:
            done = subprocess.run(
                [skopeo, "--insecure-policy", *arguments], capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        run("copy", "--src-tls-verify=false", "--src-creds=u:p", f"docker://{image}", f"oci:{tmp_path / 'layout'}:v1")
        manifest = run("inspect", "--raw", "--tls-verify=false", "--creds=u:p", f"docker://{image}")
        ours = fetch_bundle(image, registries=Registries(insecure=True, username="u", password="p"))
    copied = fetch_bundle(f"oci:{tmp_path / 'layout'}:v1", registries=Registries())
    assert ours.files == copied.files
    assert ours.content == copied.content
    assert ours.digest == digest(manifest.encode())


def test_skopeo_is_refused_where_we_are(skopeo: str) -> None:
    with serving(Registry(images={"team/bundle": packed(tar(files()))}, user="u", password="p")) as registry:
        command = [skopeo, "--insecure-policy", "inspect", "--tls-verify=false", "--creds=u:wrong"]
        done = subprocess.run([*command, f"docker://{registry.host}/team/bundle:v1"], capture_output=True, check=False)
    assert done.returncode != 0
