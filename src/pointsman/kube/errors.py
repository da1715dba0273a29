"""What goes wrong between us and a cluster. The class says what happens next; messages are for people.

PointsmanError
├── ApiError              the API server answered with a Status (code, reason, message, retry_after)
│   ├── NotFound          404: the object, or the whole kind, is not there
│   ├── Forbidden         401, 403: someone must grant something
│   ├── Stale             409: written on an old version, or already there: read again, then retry
│   ├── Gone              410: the version to watch from was compacted: list again
│   ├── Invalid           400, 422: the same request will fail again
│   └── Throttled         429 that outlasted the client's own patience
├── Unreachable           no answer: refused, reset, timed out, or not JSON
├── NotLeader             the lease ran out; the write was not sent
├── Conflict              the object belongs to someone else; it was not touched
├── Retry                 a reconcile asks to be called again (after `delay`, or by back-off)
└── Terminal              a reconcile knows that only a change of its object can help; not retried
"""

from typing import Any

from pointsman.core.errors import PointsmanError
from pointsman.core.numbers import is_count


class ApiError(PointsmanError):
    """The API server's own refusal."""

    def __init__(self, message: str, *, code: int, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after


class NotFound(ApiError):
    """The object or its kind is not there."""


class Forbidden(ApiError):
    """The account may not do this."""


class Stale(ApiError):
    """The write was based on a version that is no longer the latest."""


class Gone(ApiError):
    """The resource version is too old to watch from."""


class Invalid(ApiError):
    """The request itself is wrong."""


class Throttled(ApiError):
    """The server asked for patience more often than we have it."""


class Unreachable(PointsmanError):
    """No usable answer came."""


class NotLeader(PointsmanError):
    """The write was withheld because the lease is not held."""


class Conflict(PointsmanError):
    """An object of that name exists and belongs to someone else."""

    def __init__(self, what: str, *, holder: str) -> None:
        super().__init__(f"{what} exists and belongs to {holder}: rename ours, or delete that one")
        self.what = what
        self.holder = holder


class Retry(PointsmanError):
    """Call again: after `delay` seconds, or by the key's back-off when it is None."""

    def __init__(self, message: str = "", *, delay: float | None = None) -> None:
        super().__init__(message)
        self.delay = delay


class Terminal(PointsmanError):
    """Do not call again before the object changes."""


_BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Stale,
    410: Gone,
    422: Invalid,
    429: Throttled,
}


def from_status(status: dict[str, Any], *, code: int, retry_after: float | None = None) -> ApiError:
    """Return the error for a Status document, as an answer or inside a watch."""
    said = status.get("code")
    code = said if is_count(said, most=999) and said else code
    message = str(status.get("message") or f"the API server answered {code}")
    reason = str(status.get("reason") or "")
    return _BY_CODE.get(code, ApiError)(message, code=code, reason=reason, retry_after=retry_after)
