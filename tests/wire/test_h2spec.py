"""The HTTP/2 conformance suite against the real process, in plaintext and over TLS."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.gotools import built
from tests.wire.picker import running_picker


@pytest.fixture(scope="module")
def h2spec() -> Path:
    return built("h2spec")


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
