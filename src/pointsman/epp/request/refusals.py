"""How the picker says no. Each refusal knows its HTTP answer: status, canonical code, and the drop reason header.

    Refusal
    ├── BadRequest 400           the client's request makes no sense
    ├── RequestTimeout 408       … or does not come to an end
    ├── PreconditionFailed 412   the client wants it only where its prefix is cached, and it is nowhere
    ├── TooLarge 413             … or is larger than we take
    ├── ResourceExhausted 429    shed: try again later
    ├── Internal 500
    └── ServiceUnavailable 503   nobody can serve it

The body is the Go picker's, byte for byte: `inference error: <Code> - <message>`.
"""

from typing import ClassVar

DROPPED_REASON = "x-llm-d-request-dropped-reason"


class Refusal(Exception):
    """The request is answered by us and not forwarded."""

    status: ClassVar[int]
    code: ClassVar[str]
    reason: ClassVar[str] = ""  # why a request was dropped, where nobody says it more exactly

    def __init__(self, message: str, *, dropped: str = "") -> None:
        super().__init__(message)
        self.dropped = dropped or self.reason

    @property
    def body(self) -> bytes:
        """What the client reads."""
        return f"inference error: {self.code} - {self}".encode("utf-8", "replace")

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """What the answer carries beside its status."""
        return ((DROPPED_REASON, self.dropped),) if self.dropped else ()


class BadRequest(Refusal):
    """The client has to change its request."""

    status, code = 400, "BadRequest"


class RequestTimeout(Refusal):
    """The client has to send quicker."""

    status, code = 408, "RequestTimeout"


class PreconditionFailed(Refusal):
    """The client said under which condition, and it does not hold."""

    status, code = 412, "PreconditionFailed"


class TooLarge(Refusal):
    """The client has to send less."""

    status, code = 413, "RequestEntityTooLarge"


class ResourceExhausted(Refusal):
    """The client may try again later."""

    status, code, reason = 429, "ResourceExhausted", "rejected-saturated"


class Internal(Refusal):
    """We are wrong, or wrongly set up."""

    status, code, reason = 500, "Internal", "rejected-internal"


class ServiceUnavailable(Refusal):
    """Nobody is there to serve it."""

    status, code, reason = 503, "ServiceUnavailable", "rejected-no-endpoints"


class Answer(Exception):
    """The request is answered by us because it asked for that; it counts as no request for a model, and as no error."""

    def __init__(self, status: int, *, headers: tuple[tuple[str, str], ...] = (), body: bytes = b"") -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


def no_candidates() -> Refusal:
    """Return the refusal for an empty pool, or a subset hint that leaves nobody."""
    message = "failed to find endpoint candidates for serving the request"
    return ServiceUnavailable(message, dropped="rejected-no-endpoints")


def no_memory() -> Refusal:
    """Return the refusal for a request that holds more than others while memory is short."""
    message = "the picker holds as many bytes of requests as --max-held-bytes allows, and this one holds most of them"
    return ResourceExhausted(message, dropped="rejected-memory")


def no_pods() -> Refusal:
    """Return the refusal for a request without a body when the pool is empty."""
    return Internal("no pods available in datastore")
