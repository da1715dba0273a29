"""The one exception tree. The class says what happens next, so that callers never look at a message.

    PointsmanError
    ├── UserError        someone must change something: one sentence that names the field and the fix; exit 2
    │   └── PortTaken    … a port that another process holds
    └── Unavailable      a part that we need is not there (yet); retrying may help; exit 1

Servers have one more branch each, beside the code that raises it: refusals in `epp.request.refusals` become HTTP
answers, the wire's faults in `wire.frames` become GOAWAY or RST_STREAM.
"""


class PointsmanError(Exception):
    """Base of everything that we raise on purpose."""

    exit_code = 1


class UserError(PointsmanError):
    """Input that a person has to correct; the message is one sentence with the field and the fix."""

    exit_code = 2


class PortTaken(UserError):
    """A port is held by another process."""

    def __init__(self, *, port: int, flag: str, what: str) -> None:
        super().__init__(f"port {port} for {what} is taken by another process: stop it, or choose another with {flag}")
        self.port = port


class Unavailable(PointsmanError):
    """A part that we need is not there."""


def find_ours(error: BaseException) -> PointsmanError | None:
    """Return the first error of ours in an exception, also when a task group has wrapped it."""
    if isinstance(error, PointsmanError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(find_ours, error.exceptions)), None)
    return None
