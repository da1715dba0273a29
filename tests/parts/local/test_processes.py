"""Real children: small shell and Python programs that die, hang, refuse to stop, or lose their supervisor."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.waiting import until

from pointsman.core.errors import Unavailable
from pointsman.local.processes import LONGEST_PAUSE, Process, ProcessState, Program, pause

SLEEPER = ("/bin/sh", "-c", "exec sleep 60")


async def always() -> bool:
    return True


async def never() -> bool:
    return False


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@asynccontextmanager
async def running(
    command: tuple[str, ...], log: Path, *, probe: Callable[[], Awaitable[bool]] = always, grace: float = 5
) -> AsyncIterator[tuple[Process, list[ProcessState]]]:
    states: list[ProcessState] = []
    process = Process(
        Program(name="part", command=command, probe=probe, grace=grace),
        log=log,
        changed=lambda p: states.append(p.state),
        clock=time.monotonic,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(process.supervise())
        try:
            yield process, states
        finally:
            process.stop()


async def test_starts_becomes_ready_and_stops(tmp_path: Path) -> None:
    async with running(SLEEPER, tmp_path / "log") as (process, states):
        await process.until_ready(timeout=5)
        pid = process.pid
        assert pid is not None and alive(pid)
        process.stop()
        await process.until_stopped()
    assert not alive(pid)
    assert [states[0], *states[-3:]] == [
        ProcessState.STARTING,
        ProcessState.READY,
        ProcessState.STOPPING,
        ProcessState.STOPPED,
    ]


async def test_comes_back_when_it_is_killed(tmp_path: Path) -> None:
    async with running(SLEEPER, tmp_path / "log") as (process, states):
        await process.until_ready(timeout=5)
        first = process.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: process.state is ProcessState.READY and process.pid != first)
        assert process.deaths == 1
        assert ProcessState.RESTARTING in states


async def test_what_keeps_dying_is_reported_with_its_last_words(tmp_path: Path) -> None:
    command = ("/bin/sh", "-c", "echo first; echo '  | the port is taken' >&2; echo '  +-----'; exit 3")
    async with running(command, tmp_path / "log", probe=never) as (process, _):
        with pytest.raises(Unavailable, match=r"part does not start: the port is taken \(log: .*log\)"):
            await process.until_ready(timeout=10)


async def test_what_never_answers_is_reported_in_time(tmp_path: Path) -> None:
    async with running(SLEEPER, tmp_path / "log", probe=never) as (process, _):
        with pytest.raises(Unavailable, match=r"did not become healthy in 0.1 s"):
            await process.until_ready(timeout=0.1)


async def test_unready_and_ready_again(tmp_path: Path) -> None:
    healthy = True

    async def probe() -> bool:
        return healthy

    async with running(SLEEPER, tmp_path / "log", probe=probe) as (process, _):
        await process.until_ready(timeout=5)
        pid = process.pid
        healthy = False
        await until(lambda: process.state is ProcessState.UNREADY)
        healthy = True
        await until(lambda: process.state is ProcessState.READY)
        assert process.pid == pid  # hanging is not dying


async def test_what_ignores_the_request_to_stop_is_killed_with_its_children(tmp_path: Path) -> None:
    log = tmp_path / "log"
    stubborn = ("/bin/sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait; wait")
    async with running(stubborn, log, grace=0.2) as (process, _):
        await until(lambda: log.exists() and log.read_text().strip().isdigit())
        grandchild = int(log.read_text())
        process.stop()
        await asyncio.wait_for(process.until_stopped(), 5)
    await until(lambda: not alive(grandchild))


async def test_stop_during_a_pause_does_not_start_it_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with running(("/bin/sh", "-c", "echo x"), log, probe=never) as (process, _):
        await until(lambda: process.state is ProcessState.RESTARTING)
        process.stop()
        said = log.read_text()
        await asyncio.wait_for(process.until_stopped(), 5)
    assert said and log.read_text() == said


def test_pauses_grow_to_a_limit() -> None:
    pauses = [pause(deaths) for deaths in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.5
    assert pauses[-1] == LONGEST_PAUSE


SUPERVISOR = """
import asyncio, sys, time
from pathlib import Path
from pointsman.local.processes import Process, Program
async def never(): return False
async def main():
    program = Program(name="child", command=("/bin/sh", "-c", "echo $$; exec sleep 60"), probe=never)
    await Process(program, log=Path(sys.argv[1]), changed=lambda p: None, clock=time.monotonic).supervise()
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
async def test_child_dies_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-c", SUPERVISOR, str(log))
    try:
        await until(lambda: log.exists() and log.read_text().strip().isdigit())
        child = int(log.read_text())
        assert alive(child)
    finally:
        supervisor.kill()
        await supervisor.wait()
    await until(lambda: not alive(child))
