"""When to leave a server alone: after several failures in a row for a while, and then one question shows."""

from collections.abc import Callable

FAILURES = 5
SECONDS = 10.0


class Breaker:
    """What is known of one server."""

    def __init__(self, *, clock: Callable[[], float], failures: int = FAILURES, seconds: float = SECONDS) -> None:
        self._clock = clock
        self._most = failures
        self._seconds = seconds
        self._failures = 0
        self._until = 0.0

    def allows(self) -> bool:
        """Return whether the server may be asked now."""
        return self._failures < self._most or self._clock() >= self._until

    def begin(self) -> None:
        """Note that it is asked: after a pause nobody else asks before this one has an answer, or another pause."""
        self._until = self._clock() + self._seconds

    def failed(self) -> None:
        """Note that there was no answer."""
        self._failures += 1
        self._until = self._clock() + self._seconds

    def succeeded(self) -> None:
        """Note an answer: all is well."""
        self._failures = 0
