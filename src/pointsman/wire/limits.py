"""What a peer may cost us. Every limit has a name, which stands in the GOAWAY that enforces it and in the metrics.

Rates are token buckets: a burst is free, a flood is not. They count only what a well-behaved peer does rarely, because
what they end is a connection, and Envoy has one for all its requests. Resets are not among them: Envoy ends *every*
ext_proc stream with one, and thousands a second before our first reply when as many clients give up. What a flood of
them may cost is bounded by turns instead (`wire.connection`, `core.inbox`), and memory by the `Budget`.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many at once, so many per second after that."""

    burst: float
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one connection may do (the last four: what a port takes)."""

    concurrent_streams: int = 4096
    header_list_bytes: int = 65_536  # decoded; also the cap of an HPACK bomb
    header_block_bytes: int = 65_536  # encoded, over HEADERS and all its CONTINUATIONs
    continuations: int = 32
    frame_bytes: int = 16_384
    message_bytes: int = 4 << 20
    settings: Rate = Rate(burst=50, per_second=5)
    pings: Rate = Rate(burst=100, per_second=20)
    empty_data: Rate = Rate(burst=500, per_second=100)
    ignored_frames: Rate = Rate(burst=1000, per_second=100)  # PRIORITY, unknown types, acknowledgements of nothing
    window_updates: Rate = Rate(burst=20_000, per_second=10_000)
    stream_errors: Rate = Rate(burst=500, per_second=50)  # each costs us a RST_STREAM
    preface_seconds: float = 10.0
    stalled_seconds: float = 30.0  # how long a peer may leave our bytes unread
    linger_seconds: float = 1.0  # how long we discard input after our GOAWAY, so that it is not lost to a reset
    linger_bytes: int = 1 << 20  # … and how much of it
    connections: int = 1024
    accept_backlog: int = 4096
    handshakes: int = 256  # under way at once; beside the connections, so that they push none of these out
    handshake_seconds: float = 5.0


class Bucket:
    """A token bucket that asks the clock only when it is empty, so an honest peer pays one subtraction.

    Over any time t it lets through at most 2 x burst + t x per_second.
    """

    __slots__ = ("_clock", "_rate", "_since", "_tokens")

    def __init__(self, rate: Rate, *, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = rate.burst
        self._since = clock()

    def take(self) -> bool:
        """Return whether one more is within the limit."""
        if self._tokens < 1:
            now = self._clock()
            self._tokens = min(self._rate.burst, self._tokens + (now - self._since) * self._rate.per_second)
            self._since = now
            if self._tokens < 1:
                return False
        self._tokens -= 1
        return True
