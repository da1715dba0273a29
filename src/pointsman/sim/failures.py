"""Refusals in vLLM's error body, and the failures that a simulator makes up on purpose.

`Refusal` is the one exception of the server: its status decides the error type, as vLLM maps it. Injected failures
are drawn per request id, so that the same seed fails the same requests whatever the concurrency.
"""

from typing import Any, NamedTuple

import msgspec

from pointsman.core.errors import PointsmanError
from pointsman.core.http import Response
from pointsman.sim.engine.chance import Chance
from pointsman.sim.settings import FAILURES, Settings

_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}


class Refusal(PointsmanError):
    """A request that gets an error instead of an answer."""

    def __init__(self, status: int, message: str, *, param: str | None = None, allowed: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.allowed = allowed  # methods that would do, where the asked one does not

    def document(self) -> dict[str, Any]:
        """Return the body as vLLM writes it."""
        kind = _TYPES.get(self.status) or ("InternalServerError" if self.status >= 500 else "APIConnectionError")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.status}}

    def response(self, headers: bytes = b"") -> Response:
        """Return the whole answer."""
        return Response(self.status, msgspec.json.encode(self.document()), headers=headers)


class Mishap(NamedTuple):
    """A fault that is no error: no answer at all, or a connection that breaks at a token."""

    hangs: bool = False
    cut_at: int | None = None


NO_MISHAP = Mishap()


def fault(status: int, message: str) -> Response:
    """Return the answer to a request that broke HTTP itself, in the same body."""
    return Refusal(status, message).response()


def injected(settings: Settings, *, request_id: str) -> Refusal | None:
    """Return the failure that this request draws, if any."""
    if not settings.failure_injection_rate:
        return None
    chance = Chance(settings.seed, request_id, "failure")
    if not chance.happens(settings.failure_injection_rate):
        return None
    return _make(chance.choice(settings.failure_types or FAILURES), model=settings.model)


def mishap(settings: Settings, *, request_id: str, tokens: int) -> Mishap:
    """Return what this request draws of the faults that are no error, for an answer of so many tokens."""
    chance = Chance(settings.seed, request_id, "fault")
    if chance.happens(settings.hang_rate):
        return Mishap(hangs=True)
    return Mishap(cut_at=chance.below(tokens)) if chance.happens(settings.abort_rate) else NO_MISHAP


def _make(kind: str, *, model: str) -> Refusal:
    """Return a failure in the Go simulator's words, which tests of retries and error pages look for."""
    limit = "in organization org-xxx on requests per min (RPM): Limit 3, Used 3, Requested 1."
    window = "This model's maximum context length is 4096 tokens. However, your messages resulted in 4500 tokens."
    return {
        "rate_limit": Refusal(429, f"Rate limit reached for {model} {limit}"),
        "invalid_api_key": Refusal(401, "Incorrect API key provided."),
        "context_length": Refusal(400, window, param="messages"),
        "server_error": Refusal(503, "The server is overloaded or not ready yet."),
        "invalid_request": Refusal(400, "Invalid request: missing required parameter 'model'.", param="model"),
        "model_not_found": Refusal(404, f"The model '{model}-nonexistent' does not exist", param="model"),
    }[kind]
