"""Time that moves when told."""


class Clock:
    """What is given to whoever asks for the time."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now
