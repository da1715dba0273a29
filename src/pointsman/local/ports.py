"""Which ports are free. A port that the user named must be; a default is only a wish.

A check and a later bind are two steps, so this cannot promise that a port stays free. It promises that a port which
is taken *now* is named in one sentence, before anything was started.
"""

import socket
from collections.abc import Collection
from dataclasses import dataclass

from pointsman.core.errors import PortTaken, Unavailable

_LAST = 65535
_QUIET = range(10_000, 30_000)
"""Below the ports of outgoing connections, which come and go in the middle of any longer span."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A port for a purpose; `named` when a person asked for exactly this one."""

    port: int
    flag: str
    what: str
    named: bool


def is_free(port: int, *, host: str = "127.0.0.1") -> bool:
    """Say whether we could listen on the port.

    Without SO_REUSEPORT, so that a second Envoy, which would silently share the port, is noticed too.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def any_free(*, host: str = "127.0.0.1", given_out: Collection[int] = ()) -> int:
    """Return a free port that is none of those given out, nor one that an outgoing connection may take meanwhile."""
    return free_span(0, host=host, given_out=given_out)


def settle(wish: Wish, *, host: str = "127.0.0.1", given_out: Collection[int] = ()) -> int:
    """Return the wished port, or for a mere default another one.

    Raises PortTaken when a person named the port and another process holds it.
    """
    if wish.port == 0:
        return any_free(host=host, given_out=given_out)
    if wish.port not in given_out and is_free(wish.port, host=host):
        return wish.port
    if wish.named:
        raise PortTaken(port=wish.port, flag=wish.flag, what=wish.what)
    return any_free(host=host, given_out=given_out)


def free_span(first: int, *, count: int = 1, host: str = "127.0.0.1", given_out: Collection[int] = ()) -> int:
    """Return the lowest of so many free ports in a row, upwards from the first; from zero, or after the last, anywhere.

    Raises Unavailable when there is no such row.
    """
    in_a_row = 0
    for port in range(first or _QUIET[_draw(host) % len(_QUIET)], _LAST + 1):
        in_a_row = in_a_row + 1 if port not in given_out and is_free(port, host=host) else 0
        if in_a_row == count:
            return port - count + 1
    if first:
        return free_span(0, count=count, host=host, given_out=given_out)
    raise Unavailable(f"there are no {count} free ports in a row: end what holds them, or choose fewer replicas")


def _draw(host: str) -> int:
    """Return a port as the kernel draws them for outgoing connections: good only as a number that differs each time."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
