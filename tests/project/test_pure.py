"""tests/unit stays pure: a test that opens a socket or starts a process fails, whatever becomes of the refusal."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SWALLOWED = """import asyncio
    try:
        asyncio.run(asyncio.open_connection('127.0.0.1', 1))
    except Exception:
        pass"""
IMPURE = [
    pytest.param("import socket\n    socket.create_server(('127.0.0.1', 0))", "a socket in tests/unit", id="a socket"),
    pytest.param(SWALLOWED, "a socket in tests/unit", id="a refusal that is swallowed"),
    pytest.param("import subprocess\n    subprocess.run(['true'])", "a process in tests/unit", id="a process"),
]


@pytest.mark.parametrize(("body", "sentence"), IMPURE)
def test_what_is_not_pure_is_sent_to_the_right_folder(tmp_path: Path, body: str, sentence: str) -> None:
    folder = tmp_path / "unit"
    folder.mkdir()
    (folder / "conftest.py").write_text((ROOT / "tests" / "unit" / "conftest.py").read_text())
    (folder / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(folder)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and sentence in done.stdout and "belongs in tests/parts" in done.stdout, done.stdout
