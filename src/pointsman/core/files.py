"""Files of our own: nobody else may read them, and what lies in their place is not waited for.

A folder that others can write to, or a person's slip, may put anything where a file should be: a pipe that never ends,
a device, gigabytes. `read_regular` reads plain files up to a size and calls everything else an error.
"""

import io
import os
import stat
from pathlib import Path


def private_folder(path: Path) -> None:
    """Have a folder that only we may look into; raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)


def open_private(path: Path) -> io.FileIO:
    """Open a file for appending that only we may read, without a buffer; raises OSError."""
    return _open(path, os.O_APPEND)


def _open(path: Path, flag: int) -> io.FileIO:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | flag, 0o600)
    return io.FileIO(number, "w")


def replace(path: Path, data: bytes | str) -> None:
    """Put the data at the path in one step, which also is what makes Envoy notice it; raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        rest = memoryview(data.encode() if isinstance(data, str) else data)
        with _open(beside, os.O_TRUNC) as file:
            while rest:  # a disk may have room for a part
                rest = rest[file.write(rest) :]
        beside.rename(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def read_regular(path: Path, *, most: int) -> bytes:
    """Return the content of a plain file; raises OSError when it is none, or larger than `most`."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as content:
        kind = os.fstat(file)
        if not stat.S_ISREG(kind.st_mode):
            raise OSError(0, "it is not a plain file", str(path))
        if kind.st_size > most:
            raise OSError(0, f"it is larger than {most} bytes", str(path))
        return content.read(most)
