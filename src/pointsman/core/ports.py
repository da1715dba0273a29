"""Ports that accept connections: with TLS, no more handshakes under way at once than we want to pay for.

A connection whose handshake does not come to an end costs a handle and an SSL object for as long as we wait for it,
and the loop's own TLS servers show it to nobody before it is done. So we accept these connections ourselves, a few per
round of the loop, and keep the sockets at hand: when as many handshakes are under way as the port takes, one makes room
for the newcomer: the oldest, of the address that has most of them. A handshake needs a few rounds, so one whose client
answers is done long before its turn to go has come.

It goes by a shutdown of its socket, as if its peer had left, and whoever holds the socket by then closes it: cancelling
the task would leak the transport where the handshake had not begun. Plain ports are the loop's own servers. (The loop's
`start_tls` is no way to do it: uvloop reads from a new connection before the task that would call it has run, and bytes
of the handshake that were read by then cannot be given back.)
"""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pointsman.core.errors import PortTaken, UserError

_PER_ROUND = 32
_WITHOUT_HANDLES = 0.1  # seconds until we try again when the process has no handle left

Factory = Callable[[], asyncio.Protocol]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How a port makes its connections safe; `spawn` runs handshakes in a task group that somebody awaits."""

    context: ssl.SSLContext
    spawn: Spawn
    seconds: float
    at_once: int
    on_limit: Callable[[str], None] = lambda _name: None


class Port(Protocol):
    """What accepts."""

    @property
    def sockets(self) -> Sequence[Any]:
        """The sockets that it listens on."""

    def close(self) -> None:
        """Accept no more."""


async def listen(
    factory: Factory, *, host: str, port: int, flag: str, what: str, backlog: int, tls: Tls | None
) -> Port:
    """Start to accept connections.

    Raises PortTaken or UserError when the address cannot be had; `flag` is what a complaint tells to change.
    """
    loop = asyncio.get_running_loop()
    try:
        if tls is None:
            return await loop.create_server(factory, host, port, backlog=backlog, reuse_address=True)
        return SecurePort(factory, tls=tls, sockets=await _bind(host, port, backlog=backlog))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(port=port, flag=flag, what=what) from None
        raise UserError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


async def _bind(host: str, port: int, *, backlog: int) -> list[socket.socket]:
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with contextlib.ExitStack() as unless_all:
        bound = []
        for family, _, _, _, address in dict.fromkeys(found):
            one = socket.create_server((address[0], address[1]), family=family, backlog=backlog)
            unless_all.callback(one.close)
            one.setblocking(False)
            bound.append(one)
        unless_all.pop_all()
    return bound


class SecurePort:
    """A port with TLS, and the handshakes that are under way on it."""

    def __init__(self, factory: Factory, *, tls: Tls, sockets: Sequence[socket.socket]) -> None:
        self._factory = factory
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[str, dict[socket.socket, None]] = {}  # by address; the oldest first
        self._timers: dict[socket.socket, asyncio.TimerHandle] = {}
        self.handshakes = 0
        self.sockets = sockets
        for each in sockets:
            self._read(each)

    def close(self) -> None:
        """Accept no more, and give up on the handshakes that are under way."""
        for each in self.sockets:
            self._loop.remove_reader(each)
            each.close()
        self.sockets = ()
        for timer in self._timers.values():
            timer.cancel()
        while self._under_way:
            self._drop(next(iter(self._under_way)))

    def _read(self, listening: socket.socket) -> None:
        self._timers.pop(listening, None)
        self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_PER_ROUND):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # most likely no handle is left: asking again at once would only burn time
                self._loop.remove_reader(listening)
                self._timers[listening] = self._loop.call_later(_WITHOUT_HANDLES, self._read, listening)
                return
            connection.setblocking(False)
            self._begin(connection, address[0])

    def _begin(self, connection: socket.socket, address: str) -> None:
        if self.handshakes >= self._tls.at_once:
            self._tls.on_limit("handshakes")
            self._drop(max(self._under_way, key=lambda each: len(self._under_way[each])))
        self._under_way.setdefault(address, {})[connection] = None
        self.handshakes += 1
        self._tls.spawn(self._shake_hands(connection, address))

    async def _shake_hands(self, connection: socket.socket, address: str) -> None:
        tls = self._tls
        try:
            await self._loop.connect_accepted_socket(
                self._factory, connection, ssl=tls.context, ssl_handshake_timeout=tls.seconds
            )
        except OSError:  # the peer left, speaks no TLS, took too long or made room: its own loss
            connection.close()
        finally:
            self._forget(connection, address)

    def _drop(self, address: str) -> None:
        """Let the oldest handshake of an address end."""
        oldest = next(iter(self._under_way[address]))
        self._forget(oldest, address)
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)

    def _forget(self, connection: socket.socket, address: str) -> None:
        ours = self._under_way.get(address, {})
        if connection in ours:
            self.handshakes -= 1
            del ours[connection]
            if not ours:
                del self._under_way[address]
