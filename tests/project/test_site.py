"""The documentation builds as a site: no dead link or anchor, no page outside the navigation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(root: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_site_builds_and_can_be_searched(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()
    assert "prefix-cache-scorer" in (tmp_path / "site" / "search" / "search_index.json").read_text()


@pytest.mark.parametrize(
    "target", [pytest.param("how-to/gone.md", id="page"), pytest.param("limits.md#no-such-heading", id="anchor")]
)
def test_a_dead_link_fails_the_build(tmp_path: Path, target: str) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.write(f"\n[gone]({target})\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0 and target.rpartition("#")[2] in done.stderr


def test_a_page_outside_the_navigation_fails_the_build(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0 and "lost.md" in done.stderr
