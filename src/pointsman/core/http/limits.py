"""What one peer may cost a port, and one answer whoever asked for it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one peer may cost us."""

    body_bytes: int = 4 << 20
    head_bytes: int = 64 << 10
    pipelined: int = 32
    unread_seconds: float = 60.0  # how long a peer may read nothing of an answer under way
    request_seconds: float = 30.0  # from a request's first byte to its last
    idle_seconds: float = 3900.0  # longer than Envoy keeps an idle upstream connection, so Envoy closes first
    linger_seconds: float = 2.0  # how long we discard input after an answer that the peer did not wait for
    handshakes: int = 256  # under way at once, beside the connections
    handshake_seconds: float = 10.0
    connections: int = 16_384  # of a port


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """What one answer may cost whoever asked. How long it may take is for each caller to say."""

    body_bytes: float = 4 << 20  # infinite for a stream, whose reader stops the socket instead
    head_bytes: int = 64 << 10
