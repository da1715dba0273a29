"""The folder in which a running stack is found: who supervises it, what is wanted, where everything listens.

Two records, one writer each. The supervisor writes `stack.json` (what is); the commands write `wanted.json` (what
should be), and the supervisor follows it. Whether a stack runs is decided by a lock that its supervisor holds and the
kernel releases, never by a process id that may long belong to someone else. Every file is replaced by rename, so a
reader sees the old or the new one.

What is on disk is best effort: it may be garbage, old, or not there. The truth is what runs, and is asked for where it
is needed (`control`); a record that cannot be read counts as none.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from pointsman.core.errors import Unavailable, UserError
from pointsman.core.files import private_folder, read_regular, replace

T = TypeVar("T")
_MOST_BYTES = 4 << 20
MOST_REPLICAS = 100


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One simulator, as its supervisor sees it."""

    name: str
    address: str
    state: str
    pid: int | None


class StackState(msgspec.Struct, frozen=True, kw_only=True):
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
    models: tuple[str, ...] = ()
    """All of them, where each has a pool of its own; `model` and `picker` are then the first one's."""
    pickers: dict[str, dict[str, str]] = {}
    """Where each picker listens, by its name."""
    services: dict[str, str] = {}
    """Where each Service is, by its name and port."""
    file: str = ""
    """The resource that the stack is made from, when it is made from one."""
    problems: tuple[str, ...] = ()
    """What is wrong with it beyond its parts."""

    @property
    def pools(self) -> int:
        """Return how many pools there are: so many times the replicas that a person asked for."""
        return max(1, len(self.models))


class WantedReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked of a running stack."""

    replicas: int


def default_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of this user's stack."""
    base = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".local/state")
    return Path(base) / "pointsman"


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
        self._lock: int | None = None

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

        Raises Unavailable when another process is, UserError when the folder cannot be used.
        """
        try:
            self.prepare()
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                raise Unavailable(f"a stack runs already in {self.path}: `pointsman down` stops it") from None
            self._lock = lock
            for old in ("endpoints", "config", "wanted.json", "stack.json", "envoy-endpoints.json"):
                _remove(self.path / old)
            private_folder(self.path / "endpoints")
        except OSError as error:
            raise UserError(
                f"the state folder {self.path} cannot be used: {error.strerror}: mend it, or set XDG_STATE_HOME"
            ) from None

    def prepare(self) -> None:
        """Create the folder and the folder of the logs; raises OSError."""
        for folder in (self.path, self.logs):
            private_folder(folder)

    def retire(self) -> None:
        """Say that the stack is gone; the lock stays until this process is too, so that `down` waits for all of it."""
        with contextlib.suppress(OSError):
            self.stack_file.unlink(missing_ok=True)

    def is_supervised(self) -> bool:
        """Say whether some process supervises a stack here."""
        try:
            lock = os.open(self._lock_file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(lock)
        return False

    def is_held_by(self, pid: int) -> bool:
        """Say whether a process has our lock open: a record may name anybody."""
        try:
            mine = self._lock_file.stat()
            return any(_same(each.stat(), mine) for each in Path(f"/proc/{pid}/fd").iterdir() if each.exists())
        except OSError:
            return False

    def stack(self) -> StackState | None:
        """Return the running stack as it was recorded last, or None."""
        return _read(self.stack_file, StackState) if self.is_supervised() else None

    def write_stack(self, stack: StackState) -> None:
        """Record the state of the stack for the other commands."""
        replace(self.stack_file, msgspec.json.encode(stack))

    def wanted(self) -> WantedReplicas | None:
        """Return what was asked of the running stack, or None when nothing was."""
        wanted = _read(self.wanted_file, WantedReplicas)
        return wanted if wanted is not None and 1 <= wanted.replicas <= MOST_REPLICAS else None

    def write_wanted(self, wanted: WantedReplicas) -> None:
        """Ask the supervisor for something."""
        replace(self.wanted_file, msgspec.json.encode(wanted))


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(read_regular(path, most=_MOST_BYTES), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _remove(path: Path) -> None:
    """Delete whatever is at the path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
