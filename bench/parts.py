"""The processes of a comparison: started and ended together, with the CPU time that each has used.

CPU time comes from the scheduler's own counters (`/proc/PID/task/*/schedstat`, in nanoseconds), so that a run of
seconds is enough; clock ticks would round it.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from pointsman.local.processes import die_with_parent


class Part:
    """One process of a comparison."""

    def __init__(self, command: Sequence[str], *, log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, takes no lock
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def cpu(self) -> float:
        """Return the CPU seconds of all its threads so far."""
        tasks = Path(f"/proc/{self._child.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def check(self) -> None:
        """Fail with the process's last words when it has ended."""
        if self._child.poll() is not None:
            raise SystemExit(f"bench: {' '.join(self._child.args)} ended:\n{self._log.read_text()[-2000:]}")  # type: ignore[arg-type]  # a list of strings

    def end(self) -> None:
        self._child.terminate()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def wait_for(what: str, probe: Callable[[], Awaitable[bool]], *, parts: Sequence[Part], timeout: float = 30) -> None:
    """Wait until the probe succeeds while all parts live."""

    async def poll() -> None:
        deadline = time.monotonic() + timeout
        while not await probe():
            for part in parts:
                part.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"bench: {what} is not ready after {timeout:g} s")
            await asyncio.sleep(0.05)

    asyncio.run(poll())
