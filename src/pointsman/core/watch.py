"""Files that change while we run: endpoint lists, configurations, certificates.

What matters is the content, not the event: editors write in pieces, `mv` replaces the inode, Kubernetes swaps a symlink
two levels up. So events only wake us, the content is read anew, and only a difference is reported. A look once a second
covers events that were lost.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from watchfiles import awatch

from pointsman.core.files import read_regular

_MOST_BYTES = 64 << 20
Contents = tuple[bytes | None, ...]
"""One entry per file; None where it cannot be read."""


async def watch_files(paths: Sequence[Path]) -> AsyncIterator[Contents]:
    """Yield the files' contents now, and again after every change of any of them."""
    last: Contents | None = None
    folders = {path.parent for path in paths}
    events = awatch(*folders, recursive=False, step=50, debounce=250, rust_timeout=1000, yield_on_timeout=True)
    now = read_all(paths)
    while True:
        if now != last:
            last = now
            yield now
        await anext(events)
        now = read_all(paths)


def read_all(paths: Sequence[Path]) -> Contents:
    """Return the contents of the files."""
    return tuple(_read(path) for path in paths)


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path, most=_MOST_BYTES)
    except OSError:
        return None
