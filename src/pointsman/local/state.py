"""The folder in which a running stack is found: who supervises it, what is wanted, where everything listens.

Two records, one writer each. The supervisor writes `stack.json` (what is); the commands write `wanted.json` (what
should be), and the supervisor follows it. Whether a stack runs is decided by a lock that its supervisor holds and the
kernel releases, never by a process id that may long belong to someone else. Every file is replaced by rename, so a
reader sees the old or the new one.
"""

import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from pointsman.core.errors import Unavailable


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One simulator, as its supervisor sees it."""

    name: str
    address: str
    state: str
    pid: int | None


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """A running stack."""

    pid: int
    ready: bool
    gateway: str
    admin: str
    model: str
    failure_mode: str
    picker: dict[str, str]
    pids: dict[str, int | None]
    logs: str
    replicas: tuple[Replica, ...]
    services: dict[str, str] = {}
    """Where each Service is, by its name and port."""
    file: str = ""
    """The resource that the stack is made from, when it is made from one."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked of a running stack."""

    replicas: int


def default_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of this user's stack."""
    base = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".local/state")
    return Path(base) / "pointsman"


def replace(path: Path, data: bytes | str) -> None:
    """Put the data at the path in one step, which also is what makes Envoy notice it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(data.encode() if isinstance(data, str) else data)
    beside.rename(path)


class Folder:
    """The state folder of one stack."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.stack_file = path / "stack.json"
        self.wanted_file = path / "wanted.json"
        self.envoy_endpoints_file = path / "envoy-endpoints.json"
        self.listeners_file = path / "endpoints" / "services.listeners.json"
        self.clusters_file = path / "endpoints" / "services.clusters.json"
        self._lock_file = path / "lock"
        self._lock: IO[bytes] | None = None

    def endpoints_file(self, backend: str) -> Path:
        """Return where Envoys read who is behind a port of a Service."""
        return self.path / "endpoints" / f"{backend}.json"

    def picker_file(self, group: str) -> Path:
        """Return where the pickers of a revision read whom they may pick."""
        return self.path / "endpoints" / f"{group}.yaml"

    def config_file(self, pod: str, name: str) -> Path:
        """Return where a Pod finds a file of its own."""
        return self.path / "config" / pod / name

    def acquire(self) -> None:
        """Become the supervisor of this folder, until the process ends.

        Raises Unavailable when another process is.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        lock = self._lock_file.open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise Unavailable(f"a stack runs already in {self.path}: `pointsman down` stops it") from None
        self._lock = lock
        for inner in ("endpoints", "config"):
            shutil.rmtree(self.path / inner, ignore_errors=True)
        (self.path / "endpoints").mkdir()
        self.wanted_file.unlink(missing_ok=True)
        self.stack_file.unlink(missing_ok=True)

    def retire(self) -> None:
        """Say that the stack is gone; the lock stays until this process is too, so that `down` waits for all of it."""
        self.stack_file.unlink(missing_ok=True)
        if self._lock is not None:
            os.dup(self._lock.fileno())  # the kernel closes it, and nobody before

    def is_supervised(self) -> bool:
        """Say whether some process supervises a stack here."""
        try:
            with self._lock_file.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def stack(self) -> Stack | None:
        """Return the running stack, or None."""
        if not self.is_supervised():
            return None
        try:
            return msgspec.json.decode(self.stack_file.read_bytes(), type=Stack)
        except FileNotFoundError:
            return None

    def write_stack(self, stack: Stack) -> None:
        """Tell the other commands what is."""
        replace(self.stack_file, msgspec.json.encode(stack))

    def wanted(self) -> Wanted | None:
        """Return what was asked of the running stack, or None when nothing was."""
        try:
            return msgspec.json.decode(self.wanted_file.read_bytes(), type=Wanted)
        except FileNotFoundError:
            return None

    def write_wanted(self, wanted: Wanted) -> None:
        """Ask the supervisor for something."""
        replace(self.wanted_file, msgspec.json.encode(wanted))
