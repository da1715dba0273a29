"""A stack that runs already, from the outside: waited for, scaled, stopped. Its supervisor is another process."""

import asyncio
import contextlib
import os
import signal
import time

from pointsman.core.errors import Unavailable
from pointsman.local import control
from pointsman.local.observe import observe
from pointsman.local.state import Folder, StackState, WantedReplicas

START_TIMEOUT = 30.0
_STOP_TIMEOUT = 60.0
_KILL_TIMEOUT = 10.0
_LOOK_AGAIN = 0.05


async def until_ready(folder: Folder) -> StackState:
    """Return the stack of the folder once one request went the whole way."""
    while True:
        found = await asyncio.to_thread(control.find, folder)
        if found is not None and found.stack is not None and found.stack.ready:
            return found.stack
        await asyncio.sleep(_LOOK_AGAIN)


async def ready(folder: Folder) -> StackState:
    """Return the stack of the folder, which may still be starting; raises Unavailable when that takes too long."""
    try:
        return await asyncio.wait_for(until_ready(folder), START_TIMEOUT)
    except TimeoutError:
        raise Unavailable(f"the stack in {folder.path} does not become ready: see the logs in {folder.logs}") from None


async def scale(folder: Folder, *, replicas: int, logs: str) -> StackState:
    """Scale to so many simulators in each pool; return the stack once the picker knows each of them.

    Raises Unavailable when the stack ends meanwhile, or takes too long.
    """
    try:
        folder.write_wanted(WantedReplicas(replicas=replicas))
    except OSError as error:
        raise Unavailable(
            f"{folder.wanted_file} cannot be written: {error.strerror}: make room and try again"
        ) from None
    deadline = time.monotonic() + 2 * START_TIMEOUT
    while time.monotonic() < deadline:
        found = await asyncio.to_thread(control.find, folder)
        if found is None and not folder.is_supervised():
            raise Unavailable("the stack stopped while it was scaled")
        if found is not None and found.stack is not None and await _has(found.stack, replicas=replicas):
            return found.stack
        await asyncio.sleep(2 * _LOOK_AGAIN)
    raise Unavailable(f"the stack did not reach {replicas} endpoints in time: see the logs in {logs}")


async def _has(stack: StackState, *, replicas: int) -> bool:
    if len(stack.replicas) != replicas * stack.pools or any(replica.state != "ready" for replica in stack.replicas):
        return False
    return all(endpoint.picks is not None for endpoint in await observe(stack))


def stop(folder: Folder) -> None:
    """End the stack of the folder and wait until everything of it is gone; raises Unavailable when it stays."""
    # Its children die with it, so the last resort leaves nothing behind either.
    for number, patience in ((signal.SIGTERM, _STOP_TIMEOUT), (signal.SIGKILL, _KILL_TIMEOUT)):
        if _ended(folder, number, patience=patience):
            return
    raise Unavailable(f"the stack in {folder.path} does not stop: end the process that holds {folder.path / 'lock'}")


def _ended(folder: Folder, number: signal.Signals, *, patience: float) -> bool:
    """Send the supervisor a signal as soon as it can be found; say whether it ended in time."""
    deadline = time.monotonic() + patience
    asked = False
    while folder.is_supervised():
        if time.monotonic() > deadline:
            return False
        found = None if asked else control.find(folder)
        if found is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.pid, number)
            asked = True
        time.sleep(_LOOK_AGAIN)
    return True
