"""`pointsman up` on a disk that is full, or holds garbage: the truth is what runs, and that goes on."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tests.envoy.commands import UP, Run, alive, pids, status
from tests.envoy.load import load
from tests.waiting import until

from pointsman.local import control
from pointsman.local.http import get
from pointsman.local.processes import die_with_parent
from pointsman.local.state import Folder, StackState
from pointsman.render.envoy.addresses import read_address


@dataclass(frozen=True)
class SmallDisk:
    """A file system of its own, seen by `run` and nobody else."""

    run: Run
    folder: Path
    """The same, as we see it."""

    def fill(self) -> None:
        """Leave no room at all."""
        with (self.folder / "filling").open("ab", buffering=0) as file:
            for size in (1 << 16, 4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def free(self) -> None:
        (self.folder / "filling").unlink()


def _holder(how: str, folder: Path) -> "subprocess.Popen[bytes] | None":
    """Return a process in a mount namespace of its own, with a small disk at the folder."""
    script = f"mount -t tmpfs -o size=4m,mode=700 tmpfs {folder} && echo mounted && exec sleep 300"
    holder = subprocess.Popen(
        ["unshare", how, "sh", "-c", script],
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, takes no lock
    )
    assert holder.stdout is not None
    if holder.stdout.readline() == b"mounted\n":
        return holder
    holder.kill()
    holder.wait()
    return None


@pytest.fixture
def small_disk(envoy: Path, tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "small"
    folder.mkdir()
    how, holder = next(((how, found) for how in ("-m", "-rm") if (found := _holder(how, folder))), ("", None))
    if holder is None:
        pytest.skip("NOT TESTED: a full disk needs a mount namespace, as root or with user namespaces")
    environment = {**os.environ, "XDG_STATE_HOME": str(folder), "POINTSMAN_ENVOY": str(envoy)}
    user = ("--user", "--preserve-credentials") if how == "-rm" else ()

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        line = [
            "nsenter",
            "--target",
            str(holder.pid),
            "--mount",
            "--root",
            *user,
            "--",
            sys.executable,
            "-m",
            "pointsman",
        ]
        return subprocess.run(
            [*line, *arguments], env=environment, capture_output=True, text=True, timeout=90, check=False
        )

    yield SmallDisk(run, Path(f"/proc/{holder.pid}/root{folder}"))
    run("down")
    holder.kill()
    holder.wait()


async def test_a_full_disk_costs_no_request_and_no_truth(small_disk: SmallDisk) -> None:
    run = small_disk.run
    started = run(*UP, "--replicas", "2", "--fail-open")
    assert started.returncode == 0, started.stderr
    before = status(run)
    victim = before["endpoints"][0]
    record = small_disk.folder / "pointsman" / "stack.json"
    pod = read_address(victim["address"])

    async def answers() -> bool:
        return await get(pod, "/health") is not None

    async def away() -> bool:
        return not alive(victim["pid"])

    async def mended() -> bool:
        known = msgspec.json.decode(record.read_bytes(), type=StackState)
        return not known.problems and known.replicas[0].pid != victim["pid"]

    async with load(before["gateway"], clients=2) as tally:
        await tally.grows(50)
        small_disk.fill()
        os.kill(victim["pid"], signal.SIGKILL)
        await until(away)
        await until(answers)
        await tally.grows(50)
        said = (await asyncio.to_thread(run, "status")).stdout
        refused = await asyncio.to_thread(run, "up", "--replicas", "3")
        small_disk.free()
        await until(mended)
        await tally.grows(50)
    assert set(tally.answers) == {200}, tally
    assert said.startswith("degraded: ") and "No space left on device" in said
    assert f"{victim['name']} {victim['address']} ready" in said
    assert refused.returncode == 1 and "No space left on device" in refused.stderr

    small_disk.fill()
    stopped = run("down")
    assert (stopped.returncode, stopped.stdout) == (0, "the stack is stopped\n")
    assert not any(alive(pid) for pid in pids(before))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 << 20)


GARBAGE: dict[str, Callable[[Path], object]] = {
    "empty": _empty,
    "cut off": lambda path: path.write_bytes(b'{"pid": 12'),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "another shape": lambda path: path.write_bytes(b'{"pid": 1, "replicas": -7, "endpoints": 5}'),
    "a huge number": lambda path: path.write_bytes(b'{"replicas": ' + b"9" * 5000 + b"}"),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "large": _large,
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a loop": lambda path: path.symlink_to(path),
}


def replace_by(path: Path, make: Callable[[Path], object]) -> None:
    """Put garbage in the place of a file, which the supervisor may mend between our two steps."""
    while True:
        path.unlink(missing_ok=True)
        with suppress(FileExistsError):
            make(path)
            return


async def test_garbage_in_the_state_folder_ends_nothing(run: Run, tmp_path: Path) -> None:
    assert run(*UP, "--replicas", "1").returncode == 0
    folder = Folder(tmp_path / "pointsman")
    before = status(run)
    picker_file = next((folder.path / "endpoints").glob("*.yaml"))
    files = (folder.stack_file, folder.wanted_file, folder.envoy_endpoints_file, picker_file)

    def told() -> StackState | None:
        found = control.find(folder)
        return found.stack if found is not None else None

    async def whole() -> bool:
        stack = told()
        return stack is not None and not stack.problems and folder.stack() == stack

    async def served() -> bool:
        async with load(before["gateway"], clients=1) as tally:
            await tally.grows(5)
        return set(tally.answers) == {200}

    for name, make in GARBAGE.items():
        for path in files:
            replace_by(path, make)
        stack = told()
        assert stack is not None and stack.pid == before["pid"], name
        for path in files:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
        await until(whole)
    await until(served)  # an empty list of endpoints was a list, until it was put right
    async with load(before["gateway"], clients=2) as tally:
        await tally.grows(20)
    assert set(tally.answers) == {200}
    after = status(run)
    assert {key: after[key] for key in ("pid", "pids")} == {key: before[key] for key in ("pid", "pids")}

    os.kill(before["pid"], signal.SIGSTOP)  # so that it neither answers nor mends
    folder.stack_file.write_bytes(b"garbage")
    said = run("status")
    os.kill(before["pid"], signal.SIGCONT)
    assert (said.returncode, said.stderr) == (1, "") and "does not say what it is" in said.stdout
    folder.stack_file.write_bytes(b'{"pid": 1')
    assert run("down").stdout == "the stack is stopped\n"
    assert not any(alive(pid) for pid in pids(before))


def test_nobody_else_may_read_what_a_stack_writes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pointsman").mkdir(mode=0o755)
    recording = tmp_path / "pointsman" / "decisions.jsonl"
    assert run(*UP, "--replicas", "1", f"--picker-args=--record {recording}").returncode == 0
    found = list((tmp_path / "pointsman").rglob("*"))
    modes = {path.relative_to(tmp_path): stat.S_IMODE(path.stat().st_mode) for path in found}
    assert {path.name for path in modes} >= {"stack.json", "envoy.json", "picker.log", "up.log", recording.name, "lock"}
    open_to_others = {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
    assert not open_to_others
    assert stat.S_IMODE((tmp_path / "pointsman").stat().st_mode) == 0o700
