"""Sockets for the wire: one `Peer` per connection, between asyncio's transport and the sans-I/O `Connection`.

Owns what only a socket can show: a peer that never introduces itself, one that does not read, and too many of them. A
peer that does not read is not read either, so what it can make us hold stays bounded; after `stalled_seconds` it goes.

Everybody gets a turn: input is handled for a slice of time per round of the loop (`core.inbox`), and of one peer's only
so many frames at a time; a peer whose input waits is not read. And everybody gets in: when there are as many
connections as we take, one makes room for the newcomer: one that never asked for anything, or else one that has no
stream open, of the address that has most of them. Streams are cut only where one address has all, for one from
elsewhere.
"""

import asyncio
import ssl
from collections import Counter
from functools import partial
from typing import cast

from pointsman.core.budget import Account, Budget, Exhausted
from pointsman.core.inbox import Inbox
from pointsman.core.loop import wait_while
from pointsman.core.ports import Port, Spawn, Tls, listen
from pointsman.wire.connection import Connection
from pointsman.wire.grpc import Router
from pointsman.wire.limits import Limits

# A round of the loop costs as much as half a request, and Envoy's requests come by the dozen: in rounds of a
# millisecond the picker took a fifth more CPU.
_SLICE = 0.01


class Peer(asyncio.Protocol):
    """One connection."""

    connection: Connection

    def __init__(self, listener: "Listener") -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unsent: Account | None = None  # what waits in the socket, while it is much
        self._discarded = 0  # bytes since our last words
        self._closing = False
        self._choked = False  # it has a good deal to read before we read on
        self._queued = False  # its input is in line
        self._paused = False
        self.address = ""
        self.used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection and send our SETTINGS."""
        self._transport = cast(asyncio.Transport, transport)
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        listener = self._listener
        self.connection = Connection(
            accept=listener.router.accept,
            limits=listener.limits,
            clock=listener.loop.time,
            budget=listener.budget,
            on_limit=listener.count_limit,
        )
        self.connection.flush = self._flush
        if not listener.guests.admit(self):
            listener.count_limit("connections")
            self._transport.abort()
            return
        self._timer = listener.loop.call_later(listener.limits.preface_seconds, self._check_ready)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Handle the input now, or when its turn has come."""
        if self._closing:
            self._discard(data)
        elif self._listener.inbox.open() and not self._queued:
            self._take(data)
        else:
            self._queued = True
            self._listener.inbox.put(partial(self._take_later, data))
            self._pace()

    def _take_later(self, data: bytes) -> None:
        self._queued = False
        self._take(data)

    def _take(self, data: bytes) -> None:
        """Pass bytes through the connection; everything that they cause leaves in one write."""
        self._write(self.connection.receive(data))
        if not self.used and self.connection.used:
            self._listener.guests.note_use(self)

    def _go_on(self) -> None:
        """Take another turn with what was read before."""
        self._queued = False
        if not self._choked and not self._closing:
            self._write(self.connection.proceed())

    def _write(self, out: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        if out:
            transport.write(out)
        if self.connection.closing:
            self._close()
            return
        if self._choked:
            self._count_unsent()
        if self.connection.backlog or self._paused:
            self._pace()

    def _pace(self) -> None:
        """Line up for another turn if there is input left, and read on if there is none."""
        if self._transport is None or self._closing:
            return
        if self.connection.backlog and not self._queued and not self._choked:
            self._queued = True
            self._listener.inbox.put(self._go_on)
        pause = self._queued or self._choked
        if pause != self._paused:
            self._paused = pause
            (self._transport.pause_reading if pause else self._transport.resume_reading)()

    def connection_lost(self, _exc: Exception | None) -> None:
        """End every stream."""
        self._cancel_timer()
        self._transport = None
        self._listener.guests.leave(self)
        if self._unsent is not None:
            self._unsent.release()
        self.connection.lost()

    def pause_writing(self) -> None:
        """Stop reading from one who does not read."""
        if self._transport is not None and not self._closing:
            self._choked = True
            self._pace()
            self._cancel_timer()
            self._timer = self._listener.loop.call_later(self._listener.limits.stalled_seconds, self._give_up)

    def resume_writing(self) -> None:
        """Resume sending: the socket's buffer has drained."""
        self._choked = False
        if self._unsent is not None:
            self._unsent.release()
        if self._transport is not None and not self._closing:
            self._cancel_timer()
            self._pace()

    def abort(self) -> None:
        """Close without waiting for anything."""
        if self._transport is not None:
            self._transport.abort()

    def _count_unsent(self) -> None:
        """Account for what the peer does not read; it goes when there is no room for that."""
        if self._unsent is None:
            self._unsent = self._listener.budget.account("socket", shed=self._give_up)
        assert self._transport is not None
        try:
            self._unsent.set(self._transport.get_write_buffer_size())
        except Exhausted:
            self._give_up()

    def _flush(self) -> None:
        self._write(self.connection.out.take())

    def _close(self) -> None:
        """Close so that our last words arrive: closing over unread input would reset the connection under them."""
        transport = self._transport
        if transport is None or self._closing:
            return
        self._closing = True
        self._cancel_timer()
        if self._paused:
            transport.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()
            self._timer = self._listener.loop.call_later(self._listener.limits.linger_seconds, self.abort)
        else:
            transport.close()

    def _discard(self, data: bytes) -> None:
        """Abort a connection whose peer keeps sending after we have closed it."""
        self._discarded += len(data)
        if self._discarded > self._listener.limits.linger_bytes:
            self.abort()

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


class Guests:
    """Who is connected, by address, and who makes room for a newcomer."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._strangers: dict[str, dict[Peer, None]] = {}  # never had a stream; the oldest first
        self._known: dict[str, dict[Peer, None]] = {}
        self._counts: Counter[str] = Counter()
        self.peers: set[Peer] = set()

    def admit(self, peer: Peer) -> bool:
        """Take a newcomer in, in another's place if need be; return whether there is one."""
        if len(self.peers) >= self._limit:
            victim = self._victim(peer.address)
            if victim is None:
                return False
            self.leave(victim)
            victim.abort()
        self.peers.add(peer)
        self._counts[peer.address] += 1
        self._strangers.setdefault(peer.address, {})[peer] = None
        return True

    def note_use(self, peer: Peer) -> None:
        """Note that a peer has opened a stream."""
        peer.used = True
        if peer in self.peers:
            self._strangers[peer.address].pop(peer, None)
            self._known.setdefault(peer.address, {})[peer] = None

    def leave(self, peer: Peer) -> None:
        """Remove a closed connection from the tables."""
        if peer not in self.peers:
            return
        self.peers.discard(peer)
        for group in (self._strangers, self._known):
            group.get(peer.address, {}).pop(peer, None)
        self._counts[peer.address] -= 1
        if not self._counts[peer.address]:
            del self._counts[peer.address]
            self._strangers.pop(peer.address, None)
            self._known.pop(peer.address, None)

    def _victim(self, newcomer: str) -> Peer | None:
        crowds = [address for address, _ in self._counts.most_common()]
        strangers = (peer for address in crowds for peer in self._strangers.get(address, ()))
        known = (peer for address in crowds for peer in self._known.get(address, ()))
        idle = next(strangers, None) or next((peer for peer in known if not peer.connection.open_streams), None)
        if idle is not None or self._counts[crowds[0]] <= self._counts[newcomer] + 1:
            return idle
        return next(iter(self._known[crowds[0]]))


class Listener:
    """One bound port."""

    def __init__(self, router: Router, *, limits: Limits, budget: Budget) -> None:
        self.router = router
        self.limits = limits
        self.budget = budget
        self.loop = asyncio.get_running_loop()
        self.inbox = Inbox(seconds=_SLICE)
        self.guests = Guests(limit=limits.connections)
        self.peers = self.guests.peers
        self.limit_hits: Counter[str] = Counter()
        self.port = 0
        self._bound: Port | None = None

    async def bind(self, *, host: str, port: int, flag: str, tls: ssl.SSLContext | None = None, spawn: Spawn) -> None:
        """Start to accept connections; handshakes are tasks of whoever is behind `spawn`.

        Raises PortTaken or UserError when the address cannot be had.
        """
        secure = self._secure(tls, spawn=spawn) if tls is not None else None
        self._bound = await listen(
            lambda: Peer(self),
            host=host,
            port=port,
            flag=flag,
            what="the picker",
            backlog=self.limits.accept_backlog,
            tls=secure,
        )
        self.port = self._bound.sockets[0].getsockname()[1]

    def _secure(self, context: ssl.SSLContext, *, spawn: Spawn) -> Tls:
        return Tls(
            context=context,
            spawn=spawn,
            seconds=self.limits.handshake_seconds,
            at_once=self.limits.handshakes,
            on_limit=self.count_limit,
        )

    def count_limit(self, name: str) -> None:
        """Count a limit that was hit."""
        self.limit_hits[name] += 1

    @property
    def open_streams(self) -> int:
        """How many streams are open over all connections."""
        return sum(peer.connection.open_streams for peer in self.peers)

    async def drain(self, *, seconds: float) -> None:
        """Accept nothing new, ask every peer to leave, and wait for open streams; cut what stays longer."""
        if self._bound is not None:
            self._bound.close()
        for peer in list(self.peers):
            peer.connection.drain()
        await wait_while(lambda: self.peers, seconds=seconds)
        for peer in list(self.peers):
            peer.abort()
