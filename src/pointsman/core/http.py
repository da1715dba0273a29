"""A thin HTTP/1.1 server on asyncio and httptools: many listeners, one loop, no framework.

It serves the simulator's hot routes and every metrics port. A handler is a plain function of a `Request`. It
may return a `Response`, return an awaitable of one, or return None and answer later through `request.respond`
or `request.stream`; the last form lets one engine step write to a thousand open streams in one pass, without
a task per request. A burst of requests is handled in turns with everything else that the loop has to do (`inbox`).

Invariants: answers leave in the order of the requests, however these were pipelined; a request is answered
once; what a peer can make us hold is bounded (head, body, pipelined requests), and so is how long it may take to
send a request or to read an answer; what all of them make us hold is bounded by the server's `Budget`. No answer is
made for a peer that has not read the one before. When a port has as many connections as it takes, the one that has
idled longest makes room for the newcomer. A handler that streams learns by `on_choke` that its peer reads too slowly:
what it holds back from then on is its own to bound. A peer that closes has its request's `on_disconnect` called at
once, and nobody else's. It must not know what a route means: faults of the protocol itself take their body from the
listener's `fault`.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from pointsman.core.budget import Budget
from pointsman.core.http_connection import Connection, Limits, Request, Stream
from pointsman.core.http_messages import Response, date_line, header_lines, plain_fault
from pointsman.core.inbox import Inbox
from pointsman.core.ports import Port, Tls, listen

__all__ = ["Handler", "Limits", "Listener", "Request", "Response", "Server", "Stream", "header_lines"]

Handler = Callable[[Request], Response | Awaitable[Response | None] | None]
Fault = Callable[[int, str], Response]


class Listener:
    """One bound port and what answers on it."""

    def __init__(self, server: "Server", *, handler: Handler, fault: Fault, limits: Limits) -> None:
        self.server = server
        self.handler = handler
        self.fault = fault
        self.limits = limits
        self.http2: Callable[[], asyncio.Protocol] | None = None  # takes over connections that open with its preface
        self.draining = False
        self.port = 0
        self.idle: dict[Connection, None] = {}  # those that have nothing to be answered; the longest first
        self._open = 0
        self._bound: Port | None = None

    def admit(self, connection: Connection) -> bool:
        """Take a newcomer in, in the place of one that idles if need be; return whether there is one."""
        if self._open >= self.limits.connections:
            idle = next(iter(self.idle), None)
            if idle is None or idle.transport is None:
                return False
            self.leave(idle)
            idle.transport.abort()
        self._open += 1
        self.idle[connection] = None
        connection.admitted = True
        return True

    def leave(self, connection: Connection) -> None:
        """Forget one."""
        if connection.admitted:
            connection.admitted = False
            self._open -= 1
            self.idle.pop(connection, None)

    async def bind(self, *, host: str, port: int, tls: ssl.SSLContext | None, flag: str) -> None:
        """Start accepting.

        Raises PortTaken when another process holds the port, UserError when the address is not ours.
        """
        limits, spawn = self.limits, self.server.spawn
        secure = (
            Tls(context=tls, spawn=spawn, seconds=limits.handshake_seconds, at_once=limits.handshakes) if tls else None
        )
        self._bound = await listen(
            lambda: Connection(self),
            host=host,
            port=port,
            flag=flag,
            what=f"HTTP on {host}",
            backlog=4096,
            tls=secure,
        )
        self.port = self._bound.sockets[0].getsockname()[1]

    def stop_accepting(self) -> None:
        """Refuse new connections, let every open one end with its current answer."""
        self.draining = True
        if self._bound is not None:
            self._bound.close()
        for connection in self.connections():
            connection.retire()

    def connections(self) -> list[Connection]:
        """Return the connections that came in through this port."""
        return [c for c in self.server.connections if c.listener is self]

    async def drain(self, *, seconds: float) -> None:
        """Stop accepting, wait for the open answers, then cut what is left."""
        self.stop_accepting()
        loop = asyncio.get_running_loop()
        limit = loop.time() + seconds
        while self.connections() and loop.time() < limit:  # noqa: ASYNC110 - a poll at shutdown needs no event
            await asyncio.sleep(0.01)
        for connection in self.connections():
            if connection.transport is not None:
                connection.transport.abort()


class Server:
    """The set of listeners of a process; an async context that owns their tasks and their clock."""

    def __init__(self, *, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self.connections: set[Connection] = set()
        self.listeners: list[Listener] = []
        self.date_line = date_line()
        self.now: Callable[[], float] = lambda: 0.0
        self.inbox = Inbox()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        self.now = asyncio.get_running_loop().time
        await self._tasks.__aenter__()
        self._housekeeper = self._tasks.create_task(self._keep_house())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._housekeeper.cancel()
        for listener in self.listeners:
            listener.stop_accepting()
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await self._tasks.__aexit__(kind, error, trace)

    async def listen(
        self,
        handler: Handler,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        fault: Fault = plain_fault,
        flag: str = "--port",
    ) -> Listener:
        """Serve the handler on one more port (0: the kernel chooses); `flag` is what a complaint tells to change."""
        listener = Listener(self, handler=handler, fault=fault, limits=limits or Limits())
        await listener.bind(host=host, port=port, tls=tls, flag=flag)
        self.listeners.append(listener)
        return listener

    def spawn(self, answer: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run an awaited answer in the server's task group."""
        return self._tasks.create_task(answer)

    async def drain(self, *, seconds: float) -> None:
        """Drain every listener, together within the time."""
        async with asyncio.TaskGroup() as group:
            for listener in self.listeners:
                group.create_task(listener.drain(seconds=seconds))

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.date_line = date_line()
            now = self.now()
            for connection in list(self.connections):
                connection.expire(now)
