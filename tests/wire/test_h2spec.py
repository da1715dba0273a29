"""The HTTP/2 conformance suite against the real process, in plaintext and over TLS."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.wire.picker import running_picker

MODULE = Path(__file__).parents[2] / "tools" / "h2spec"


@pytest.fixture(scope="module")
def h2spec() -> Path:
    """Return h2spec, built once into the cache from the pinned Go modules."""
    if shutil.which("go") is None:
        pytest.skip("h2spec needs Go to be built: install Go 1.26 or newer")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pointsman"
    key = hashlib.sha256((MODULE / "go.sum").read_bytes()).hexdigest()[:12]
    binary = cache / f"h2spec-{key}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "h2spec.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            part = binary.with_suffix(".part")
            command = ["go", "build", "-mod=readonly", "-o", str(part), "github.com/summerwind/h2spec/cmd/h2spec"]
            subprocess.run(command, cwd=MODULE, check=True, timeout=300)
            part.rename(binary)
    return binary


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_h2spec_finds_no_failure(h2spec: Path, tmp_path: Path, *, tls: bool) -> None:
    with running_picker(tmp_path, tls=tls) as picker:
        command = [str(h2spec), "--host", "127.0.0.1", "--port", str(picker.grpc_port), "--timeout", "4"]
        result = subprocess.run(
            command + ["--tls", "--insecure"] * tls, capture_output=True, text=True, timeout=240, check=False
        )
        assert picker.inflight == 0
    summary = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", result.stdout)
    assert summary is not None, result.stdout[-2000:]
    print(f"h2spec: {summary[0]}")
    assert summary[4] == "0", result.stdout[result.stdout.find("Failures:") :]
    assert int(summary[2]) >= 140
    assert "Traceback" not in (tmp_path / "epp.log").read_text()
