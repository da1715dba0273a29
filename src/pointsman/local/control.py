"""Asking a supervisor what runs, without the disk: a socket that has a name but no file, and goes with the process.

Who answers is known from the kernel: another user's process that took the name first is not believed, and another user
who asks is told nothing. Where there are no such sockets (other systems than Linux, another network namespace) there is
the record in the folder.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec

from pointsman.local.state import Folder, StackState

_PATIENCE = 2.0
_CREDENTIALS = struct.Struct("3i")


class SupervisorAnswer(NamedTuple):
    """Who supervises, and what it says."""

    pid: int
    stack: StackState | None
    """Nothing while it has no plan yet."""


def name_of(folder: Folder) -> str:
    """Return the socket's name: one for each user and folder."""
    digest = hashlib.sha256(os.fsencode(folder.path.absolute())).hexdigest()[:24]
    return f"\0pointsman-{os.getuid()}-{digest}"


@contextlib.asynccontextmanager
async def answering(folder: Folder, say: Callable[[], StackState | None]) -> AsyncIterator[None]:
    """Tell whoever asks what `say` returns, while the context lasts."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            if _peer(writer.get_extra_info("socket"))[1] == os.getuid():
                writer.write(msgspec.json.encode(say()))
                await asyncio.wait_for(writer.drain(), _PATIENCE)
            writer.close()

    server = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # taken: there is the record
            server = await asyncio.start_unix_server(answer, name_of(folder))
    try:
        yield
    finally:
        if server is not None:
            server.close()


def ask(folder: Folder) -> SupervisorAnswer | None:
    """Return what the supervisor of the folder says; None when nobody answers."""
    if sys.platform != "linux":
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_PATIENCE)
        try:
            asking.connect(name_of(folder))
            pid, uid = _peer(asking)
            if uid != os.getuid():
                return None
            said = b"".join(iter(lambda: asking.recv(1 << 16), b""))
        except OSError:
            return None
    try:
        return SupervisorAnswer(pid, msgspec.json.decode(said, type=StackState | None))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return SupervisorAnswer(pid, None)


def find(folder: Folder) -> SupervisorAnswer | None:
    """Return who supervises the folder, by asking, or else by its record."""
    asked = ask(folder)
    if asked is not None:
        return asked
    stack = folder.stack()
    return SupervisorAnswer(stack.pid, stack) if stack is not None and folder.is_held_by(stack.pid) else None


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Return process and user at the other end."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
