"""Child processes that stay: started, watched by their health, restarted with growing pauses, stopped politely.

Nothing may outlive the supervisor, however that ends. On Linux the kernel kills each child when the thread that
started it dies, so children are started from the main thread only, which is where the event loop runs. Each child
leads a process group of its own: Ctrl-C in a terminal reaches the supervisor alone, which then stops the children in
the order it knows, and a signal to a child reaches what the child started.

A `Process` knows nothing of the others. It reports each change of its state to `changed`, at once and in order.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO

from pointsman.core.errors import Unavailable
from pointsman.core.files import open_private, replace

Probe = Callable[[], Awaitable[bool]]

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
STEADY_AFTER = 10.0
"""A process that lived this long has recovered: its next death starts with the shortest pause again."""
GIVE_UP_STARTING = 3
"""Deaths before the first health by which `until_ready` gives up; later ones are retried for ever."""
PROBE_STARTING = 0.05
PROBE_RUNNING = 0.5
UNREADY_AFTER = 3
_PR_SET_PDEATHSIG = 1
_LAST_WORDS = 64 << 10
_FRAME = " \t|+-"
"""What Python draws around the tracebacks of an exception group."""


class ProcessState(StrEnum):
    """Where a process is in its life."""

    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"  # runs, but does not answer
    RESTARTING = "restarting"  # died; we wait before the next start
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run, and how to know that it serves."""

    name: str
    command: tuple[str, ...]
    probe: Probe
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)
    """What it reads, to be written before it starts."""
    grace: float = 5.0
    """Seconds between asking it to stop and killing it."""


def pause(deaths: int) -> float:
    """Return the seconds to wait before the next start, after so many deaths in a row."""
    return min(FIRST_PAUSE * 2.0 ** (deaths - 1), LONGEST_PAUSE)


class Process:
    """One program, kept running until `stop`."""

    def __init__(
        self, program: Program, *, log: Path, changed: Callable[["Process"], None], clock: Callable[[], float]
    ) -> None:
        self.program = program
        self.log = log
        self.state = ProcessState.STARTING
        self.pid: int | None = None
        self.deaths = 0
        """Deaths that nobody asked for."""
        self._changed = changed
        self._clock = clock
        self._was_ready = False
        self._trouble = ""  # why it could not even be started
        self._unwritten = list(program.files.items())
        self._stop = asyncio.Event()
        self._next_change = asyncio.Event()

    async def supervise(self) -> None:
        """Keep the program running; return when `stop` was called and it is gone."""
        with contextlib.suppress(OSError):
            self.log.unlink(missing_ok=True)
        in_a_row = 0
        try:
            while not self._stop.is_set():
                started = self._clock()
                try:
                    self._prepare()
                    await self._live()
                except OSError as error:  # no room for a file or a process: that may pass
                    self._trouble = f"{error.strerror} ({error.filename or self.program.command[0]})"
                if self._stop.is_set():
                    return
                self.deaths += 1
                in_a_row = 1 if self._clock() - started >= STEADY_AFTER else in_a_row + 1
                self._enter(ProcessState.RESTARTING)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause(in_a_row))
        finally:
            self._enter(ProcessState.STOPPED)

    def stop(self) -> None:
        """Ask the program to end; `supervise` returns when it has."""
        self._stop.set()

    async def until_ready(self, *, timeout: float) -> None:
        """Wait for the first health.

        Raises Unavailable with the program's last words when it keeps dying, or when the time is over.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self._was_ready and self.deaths < GIVE_UP_STARTING:
                    await self._next_change.wait()
        except TimeoutError:
            raise Unavailable(f"{self.program.name} did not become healthy in {timeout:g} s: {self._words()}") from None
        if not self._was_ready:
            raise Unavailable(f"{self.program.name} does not start: {self._words()}")

    async def until_stopped(self) -> None:
        """Wait until the program is gone for good."""
        while self.state is not ProcessState.STOPPED:
            await self._next_change.wait()

    def _prepare(self) -> None:
        """Write what the program reads, where it is not there yet."""
        while self._unwritten:
            path, text = self._unwritten[0]
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace(path, text)
            del self._unwritten[0]

    async def _live(self) -> None:
        self._enter(ProcessState.STARTING)
        child = await self._spawn()
        self.pid, self._trouble = child.pid, ""
        self._enter(ProcessState.STARTING)
        try:
            async with asyncio.TaskGroup() as group:
                helpers = (group.create_task(self._watch()), group.create_task(self._end(child)))
                await child.wait()
                for helper in helpers:
                    helper.cancel()
        finally:
            _signal_group(child.pid, signal.SIGKILL)
            self.pid = None

    async def _spawn(self) -> asyncio.subprocess.Process:
        with self._open_log() as log:
            return await asyncio.create_subprocess_exec(
                *self.program.command,
                env={**os.environ, **self.program.environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),  # one system call, takes no lock
            )

    def _open_log(self) -> IO[bytes]:
        """Return where its words go: without room for a log, nowhere."""
        try:
            return open_private(self.log)
        except OSError:
            return Path(os.devnull).open("ab")

    async def _watch(self) -> None:
        failures = 0
        while True:
            healthy = await self.program.probe()
            failures = 0 if healthy else failures + 1
            if healthy:
                self._was_ready = True
                self._enter(ProcessState.READY)
            elif self.state is ProcessState.READY and failures >= UNREADY_AFTER:
                self._enter(ProcessState.UNREADY)
            await asyncio.sleep(PROBE_RUNNING if self.state is ProcessState.READY else PROBE_STARTING)

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        await self._stop.wait()
        self._enter(ProcessState.STOPPING)
        _signal_group(child.pid, signal.SIGTERM)
        await asyncio.sleep(self.program.grace)
        _signal_group(child.pid, signal.SIGKILL)

    def _enter(self, state: ProcessState) -> None:
        if state is self.state and state is not ProcessState.STARTING:
            return
        if self.state is ProcessState.STOPPING and state is not ProcessState.STOPPED:
            return
        self.state = state
        self._changed(self)
        self._next_change.set()
        self._next_change = asyncio.Event()

    def _words(self) -> str:
        if self._trouble:
            return self._trouble
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - _LAST_WORDS))
                lines = log.read(_LAST_WORDS).decode(errors="replace").splitlines()
        except OSError:
            lines = []
        spoken = [line.strip(_FRAME) for line in lines if line.strip(_FRAME)]
        return f"{spoken[-1] if spoken else 'it said nothing'} (log: {self.log})"


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def die_with_parent(parent: int) -> Callable[[], None] | None:
    """Return what a child does before it becomes its program, so that it dies with the thread that started it."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died while we forked
            os._exit(1)

    return before_exec
