"""`pointsman demo` from the outside."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def command_lines() -> Iterator[bytes]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield (process / "cmdline").read_bytes()


@pytest.mark.parametrize("flags", [pytest.param([], id="FailClose"), pytest.param(["--fail-open"], id="FailOpen")])
def test_demo_proves_itself_and_leaves_nothing(envoy: Path, tmp_path: Path, flags: list[str]) -> None:
    environment = {**os.environ, "POINTSMAN_ENVOY": str(envoy), "TMPDIR": str(tmp_path), "COLUMNS": "160"}
    command = [sys.executable, "-m", "pointsman", "demo", *flags]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✓") == 10
    assert done.stdout.endswith("all 10 requests were answered by the endpoint that was picked\n")
    assert list(tmp_path.iterdir()) == []
    assert not [line for line in command_lines() if str(tmp_path).encode() in line]
