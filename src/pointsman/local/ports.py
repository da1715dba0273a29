"""Which ports are free. A port that the user named must be; a default is only a wish.

A check and a later bind are two steps, so this cannot promise that a port stays free. It promises that a port which
is taken *now* is named in one sentence, before anything was started.
"""

import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pointsman.core.errors import PortTaken

_LAST = 65535


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


def any_free(*, host: str = "127.0.0.1") -> int:
    """Return a port that the kernel chose."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def settle(wish: Wish, *, host: str = "127.0.0.1", given_out: Collection[int] = ()) -> int:
    """Return the wished port, or for a mere default another one.

    Raises PortTaken when a person named the port and another process holds it.
    """
    if wish.port == 0:
        return any_free(host=host)
    if wish.port not in given_out and is_free(wish.port, host=host):
        return wish.port
    if wish.named:
        raise PortTaken(port=wish.port, flag=wish.flag, what=wish.what)
    return any_free(host=host)


def free_from(first: int, *, host: str = "127.0.0.1", given_out: Collection[int] = ()) -> Iterator[int]:
    """Yield free ports upwards from the first, then whatever the kernel has; from zero, that at once."""
    for port in range(first or _LAST + 1, _LAST + 1):
        if port not in given_out and is_free(port, host=host):
            yield port
    while True:
        yield any_free(host=host)
