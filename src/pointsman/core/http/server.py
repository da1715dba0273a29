"""A thin HTTP/1.1 server: many listeners, one loop, no framework.

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
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from pointsman.core.budget import Budget
from pointsman.core.http.connection import Clock
from pointsman.core.http.limits import Limits
from pointsman.core.http.messages import date_line, plain_fault
from pointsman.core.http.peer import Fault, Handler, Peer
from pointsman.core.inbox import Inbox
from pointsman.core.loop import wait_while
from pointsman.core.ports import Port, Tls, listen


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
        self.idle: dict[Peer, None] = {}  # those that have nothing to be answered; the longest first
        self._open = 0
        self._bound: Port | None = None

    def admit(self, peer: Peer) -> bool:
        """Take a newcomer in, in the place of one that idles if need be; return whether there is one."""
        if self._open >= self.limits.connections:
            idle = next(iter(self.idle), None)
            if idle is None:
                return False
            self.leave(idle)
            idle.abort()
        self._open += 1
        self.idle[peer] = None
        peer.admitted = True
        return True

    def leave(self, peer: Peer) -> None:
        """Forget one."""
        if peer.admitted:
            peer.admitted = False
            self._open -= 1
            self.idle.pop(peer, None)

    async def bind(self, *, host: str, port: int, tls: ssl.SSLContext | None, flag: str) -> None:
        """Start accepting.

        Raises PortTaken when another process holds the port, UserError when the address is not ours.
        """
        limits, spawn = self.limits, self.server.spawn
        secure = (
            Tls(context=tls, spawn=spawn, seconds=limits.handshake_seconds, at_once=limits.handshakes) if tls else None
        )
        self._bound = await listen(
            lambda: Peer(self, house=self.server),
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
        for peer in self.peers():
            peer.retire()

    def peers(self) -> list[Peer]:
        """Return those that came in through this port."""
        return [peer for peer in self.server.peers if peer.door is self]

    async def drain(self, *, seconds: float) -> None:
        """Stop accepting, wait for the open answers, then cut what is left."""
        self.stop_accepting()
        await wait_while(self.peers, seconds=seconds)
        for peer in self.peers():
            peer.abort()


class Server:
    """The set of listeners of a process; an async context that owns their tasks and their clock."""

    def __init__(self, *, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self.peers: set[Peer] = set()
        self.listeners: list[Listener] = []
        self.clock = Clock(now=lambda: 0.0, date_line=date_line())
        self.inbox = Inbox()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        self.clock.now = asyncio.get_running_loop().time
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
        for peer in list(self.peers):
            peer.abort()
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
            self.clock.date_line = date_line()
            now = self.clock.now()
            for peer in list(self.peers):
                peer.expire(now)
