"""Ports for the processes that tests start: never one twice, and never one that somebody else may take meanwhile.

A port is chosen now and bound by another process later. So the ports of outgoing connections and those that
`pointsman.local.ports` hands out are avoided, and each worker of pytest-xdist has a part of the rest to itself, through
which it goes in order, each run from another place: two runs at once, in two clones, would else take the port of a
server that the other has ended for a moment.
"""

import itertools
import os

from pointsman.local.ports import is_free

_OURS = range(30_000, 32_700)
_SHARE = 675
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % (len(_OURS) // _SHARE)
_MINE = _OURS[_WORKER * _SHARE : (_WORKER + 1) * _SHARE]
_ports = itertools.islice(itertools.cycle(_MINE), os.getpid() * 97 % _SHARE, None)


def fresh_port() -> int:
    """Return a port that nobody has and that was not returned lately."""
    return next(port for port in _ports if is_free(port))


def fresh_span(count: int) -> int:
    """Return the first of so many such ports in a row."""
    row = [fresh_port()]
    while len(row) < count:
        port = fresh_port()
        row = [*row, port] if port == row[-1] + 1 else [port]
    return row[0]
