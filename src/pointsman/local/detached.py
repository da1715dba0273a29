"""`pointsman up` in a session of its own, which stays when the terminal goes; its output is a log of the stack."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from pointsman.core.errors import PointsmanError, UserError
from pointsman.core.files import open_private
from pointsman.local import control
from pointsman.local.state import Folder, StackState


async def start(arguments: Sequence[str], *, folder: Folder) -> StackState:
    """Start a stack with these flags of `up`; return it once it serves.

    Raises what it failed with: its own last line, and its exit code.
    """
    log = folder.logs / "up.log"
    command = [sys.executable, "-m", "pointsman", "up", *arguments]
    with _new_log(folder, log) as output:
        child = subprocess.Popen(  # noqa: ASYNC220 - it outlives us, and nothing else waits here
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    while child.poll() is None:
        found = await asyncio.to_thread(control.find, folder)
        if found is not None and found.stack is not None and found.stack.ready:
            return found.stack
        await asyncio.sleep(0.05)
    last = log.read_text(errors="replace").strip().splitlines()[-1:] or [f"it said nothing (log: {log})"]
    error = PointsmanError(last[0].removeprefix("pointsman: "))
    error.exit_code = child.returncode or 1
    raise error


def _new_log(folder: Folder, log: Path) -> IO[bytes]:
    try:
        folder.prepare()
        log.unlink(missing_ok=True)
        return open_private(log)
    except OSError as error:
        raise UserError(f"{log} cannot be written: {error.strerror}: make room, or set XDG_STATE_HOME") from None
