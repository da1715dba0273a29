"""What a peer may cost us. Every limit has a name, which stands in the GOAWAY that enforces it and in the metrics.

Rates are token buckets: a burst is free, a flood is not. They count only what a well-behaved peer does rarely; Envoy
ends *every* ext_proc stream with RST_STREAM, so a reset counts only when it comes before our first reply (the mark of a
rapid-reset attack, and of a client that hangs up early, hence the generous burst).
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
    """The whole budget of one connection (the last two: of the process)."""

    concurrent_streams: int = 4096
    header_list_bytes: int = 65_536  # decoded; also the cap of an HPACK bomb
    header_block_bytes: int = 65_536  # encoded, over HEADERS and all its CONTINUATIONs
    continuations: int = 32
    frame_bytes: int = 16_384
    message_bytes: int = 4 << 20
    held_bytes: int = 128 << 20  # parts of messages that are not complete yet
    unsent_bytes: int = 128 << 20  # replies that the peer's window does not let out
    early_resets: Rate = Rate(burst=2000, per_second=200)
    settings: Rate = Rate(burst=50, per_second=5)
    pings: Rate = Rate(burst=100, per_second=20)
    empty_data: Rate = Rate(burst=500, per_second=100)
    ignored_frames: Rate = Rate(burst=1000, per_second=100)  # PRIORITY, unknown types, frames of closed streams
    window_updates: Rate = Rate(burst=20_000, per_second=10_000)
    stream_errors: Rate = Rate(burst=500, per_second=50)  # each costs us a RST_STREAM
    preface_seconds: float = 10.0
    stalled_seconds: float = 30.0  # how long a peer may leave our bytes unread
    linger_seconds: float = 1.0  # how long we discard input after our GOAWAY, so that it is not lost to a reset
    connections: int = 1024
    accept_backlog: int = 512


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
