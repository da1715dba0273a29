"""`.ci/run`: its exit code is what its parts said, with a `make` that ends as it is told in place of the long one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = """#!/bin/sh
echo "make $1"
case $1 in
  test) exit "$TEST" ;;
  e2e) exit "$E2E" ;;
esac
"""
AGAIN = """#!/bin/sh
echo "again $3"
exit "$AGAIN"
"""


def _executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("test", "e2e", "again", "expected"),
    [
        (0, 0, 1, 0),
        (1, 0, 1, 1),
        (2, 0, 1, 1),
        (0, 2, 0, 0),  # late beside the tests, and right alone
        (0, 2, 1, 1),
        (1, 2, 0, 1),
    ],
)
def test_the_exit_code_is_what_its_parts_said(tmp_path: Path, test: int, e2e: int, again: int, expected: int) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    _executable(tmp_path / "bin/make", MAKE)
    _executable(tmp_path / ".venv/bin/python", AGAIN)
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    environment |= {"TEST": str(test), "E2E": str(e2e), "AGAIN": str(again)}
    line = ["bash", str(tmp_path / ".ci/run")]
    run = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == expected, run.stdout + run.stderr
    assert ("again e2e" in run.stdout) is (e2e != 0)
    assert run.stdout.startswith("make .venv/.dev\n")
    assert sorted(run.stdout.split("\n")[1:3]) == ["make e2e", "make test"]
    assert not list(tmp_path.glob("tmp.*")), "what the node's tests said is a temporary file"
