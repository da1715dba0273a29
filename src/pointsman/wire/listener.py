"""Sockets for the wire: one `Peer` per connection, between asyncio's transport and the sans-I/O `Connection`.

Owns what only a socket can show: a peer that never introduces itself, one that does not read, and too many of them. A
peer that does not read is not read either, so what it can make us hold stays bounded; after `stalled_seconds` it goes.
"""

import asyncio
import ssl
from collections import Counter
from typing import cast

from pointsman.core.errors import PortTaken, UserError
from pointsman.wire.connection import Connection
from pointsman.wire.grpc import Router
from pointsman.wire.limits import Limits


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, listener: "Listener") -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self.connection = Connection(
            accept=listener.router.accept,
            limits=listener.limits,
            clock=listener.loop.time,
            on_limit=listener.count_limit,
        )
        self.connection.flush = self._flush

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce ourselves."""
        self._transport = cast(asyncio.Transport, transport)
        if len(self._listener.peers) >= self._listener.limits.connections:
            self._listener.count_limit("connections")
            self._transport.abort()
            return
        self._listener.peers.add(self)
        self._timer = self._listener.loop.call_later(self._listener.limits.preface_seconds, self._check_ready)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Pass bytes through the connection; everything that they cause leaves in one write."""
        out = self.connection.receive(data)
        transport = self._transport
        if transport is not None:
            if out:
                transport.write(out)
            if self.connection.closing:
                self._close()

    def connection_lost(self, _exc: Exception | None) -> None:
        """End every stream."""
        self._cancel_timer()
        self._transport = None
        self._listener.peers.discard(self)
        self.connection.lost()

    def pause_writing(self) -> None:
        """Stop reading from one who does not read."""
        if self._transport is not None and not self._closing:
            self._transport.pause_reading()
            self._cancel_timer()
            self._timer = self._listener.loop.call_later(self._listener.limits.stalled_seconds, self._give_up)

    def resume_writing(self) -> None:
        """Go on."""
        if self._transport is not None and not self._closing:
            self._cancel_timer()
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close without waiting for anything."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport is not None:
            self._transport.write(self.connection.out.take())
            if self.connection.closing:
                self._close()

    def _close(self) -> None:
        """Close so that our last words arrive: closing over unread input would reset the connection under them."""
        transport = self._transport
        if transport is None or self._closing:
            return
        self._closing = True
        self._cancel_timer()
        if transport.can_write_eof():
            transport.write_eof()
            self._timer = self._listener.loop.call_later(self._listener.limits.linger_seconds, self.abort)
        else:
            transport.close()

    def _check_ready(self) -> None:
        if not self.connection.ready:
            self.connection.exhaust("preface_seconds", "no HTTP/2 preface in time")

    def _give_up(self) -> None:
        self._listener.count_limit("stalled_seconds")
        self.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Listener:
    """One bound port."""

    def __init__(self, router: Router, *, limits: Limits) -> None:
        self.router = router
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.peers: set[Peer] = set()
        self.limit_hits: Counter[str] = Counter()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def bind(self, *, host: str, port: int, flag: str, tls: ssl.SSLContext | None = None) -> None:
        """Start to accept connections.

        Raises PortTaken or UserError when the address cannot be had.
        """
        try:
            self._server = await self.loop.create_server(
                lambda: Peer(self), host, port, ssl=tls, backlog=self.limits.accept_backlog, reuse_address=True
            )
        except OSError as error:
            if error.errno in {48, 98}:
                raise PortTaken(port=port, flag=flag, what="the picker") from None
            raise UserError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        self.port = self._server.sockets[0].getsockname()[1]

    def count_limit(self, name: str) -> None:
        """Count a limit that was hit."""
        self.limit_hits[name] += 1

    @property
    def open_streams(self) -> int:
        """How many streams are open over all connections."""
        return sum(peer.connection.open_streams for peer in self.peers)

    async def drain(self, *, seconds: float) -> None:
        """Accept nothing new, ask every peer to leave, and wait for open streams; cut what stays longer."""
        if self._server is not None:
            self._server.close()
        for peer in list(self.peers):
            peer.connection.drain()
        end = self.loop.time() + seconds
        while self.peers and self.loop.time() < end:  # noqa: ASYNC110 - a poll at shutdown needs no event
            await asyncio.sleep(0.02)
        for peer in list(self.peers):
            peer.abort()
