"""What a client may cost the gateway, and for how long. 0012-gateway-limits.md has the reasons and what was rejected.

No limit here is on how long an answer takes: a model may think for half an hour before its first token and stream for
hours. What is limited is how long a client may take to *ask*, how long a connection may rest between two requests, and
how much of Envoy one connection may hold.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GatewayLimits:
    """The limits of one gateway; times in seconds."""

    connections: int = 10_000
    """Of clients, at once; one more is closed as soon as it is accepted. Probes and the admin do not count."""
    headers_timeout: float = 10.0
    """From the first byte of a request to the last one of its headers."""
    request_timeout: float = 300.0
    """From the first byte of a request to the last one of its body: 16 MiB at half a megabit per second."""
    connection_idle_timeout: float = 120.0
    """Between two requests, or before the first; longer than clients keep connections (Go: 90), so they close first."""
    stream_idle_timeout: float = 3600.0
    """While an answer is awaited or under way and not a byte moves."""
    header_kib: int = 32
    header_count: int = 100
    streams: int = 256
    """Of one HTTP/2 connection."""
    stream_window_bytes: int = 256 << 10
    connection_window_bytes: int = 1 << 20
    buffer_bytes: int = 256 << 10
    """What Envoy reads ahead of a slow reader, for each connection on either side."""
