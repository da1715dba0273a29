"""What `make test` says before it builds, and while it does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tools import prepare
from tools.prepare import Build

ROOT = Path(__file__).parents[3]


def test_an_empty_cache_is_announced_and_nothing_is_built(tmp_path: Path) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text("")
    go.chmod(0o755)
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(go.parent), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "tools.prepare", "--announce"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    for name in ("Envoy", "h2spec", "actionlint", "Kubernetes control plane: about 9 min", "Istio: about 6 min"):
        assert name in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


def test_without_go_and_compiler_only_what_needs_none_is_built(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path), "HOME": str(tmp_path)}
    assert [build.name.split()[0] for build in prepare.missing(environment)] == ["Envoy"]


@pytest.mark.parametrize(("minutes", "code"), [((), 0), ((1,), 0), ((1, 1), 1), ((9,), 1)])
def test_a_short_build_is_no_reason_to_split_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], minutes: tuple[int, ...], code: int
) -> None:
    builds = [Build(name=f"part {each}", minutes=each, command=(), present=lambda _: False) for each in minutes]
    monkeypatch.setattr(prepare, "missing", lambda _: builds)
    assert prepare.main(["--announce"]) == code
    assert capsys.readouterr().err.count("part ") == len(minutes)


def test_a_build_that_takes_long_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "EVERY", 0.05)
    said: list[str] = []
    for code in (0, 3):
        command = ("sh", "-c", f"sleep 0.5; exit {code}")
        made = prepare.run(Build(name="it", minutes=2, command=command, present=lambda _: False), say=said.append)
        assert made == (code == 0)
    assert said[0] == "building it" and said[1] == "still building it: 0 of about 2 min"
    assert any(line.startswith("it: built after") for line in said) and said[-1].startswith("it: failed with 3")


def test_who_is_told_to_end_takes_the_build_along(tmp_path: Path) -> None:
    script = f"""
import signal, sys
from tools.prepare import Build, run
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
command = ("sh", "-c", "echo $$ > {tmp_path}/pid; sleep 600")
run(Build(name="it", minutes=1, command=command, present=lambda _: False), say=print)
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            pid = _pid(tmp_path / "pid", process)
        finally:
            process.terminate()
        assert process.wait(30) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)


def _pid(file: Path, process: "subprocess.Popen[bytes]") -> int:
    for _ in range(600):
        if file.exists() and file.read_text().strip():
            return int(file.read_text())
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
    raise AssertionError("it never began")
