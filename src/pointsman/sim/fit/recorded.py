"""One recorded request, or a simulated one to compare it with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request and its times, in seconds from the start of the run."""

    prompt_tokens: int
    output_tokens: int
    arrival: float
    scheduled: float
    first_token: float
    last_token: float

    @property
    def ttft(self) -> float:
        """Time to the first token, the queue included."""
        return self.first_token - self.arrival

    @property
    def tpot(self) -> float | None:
        """Mean time between tokens; None for a single one."""
        gaps = self.output_tokens - 1
        return (self.last_token - self.first_token) / gaps if gaps > 0 else None

    @property
    def e2e(self) -> float:
        """Time to the last token."""
        return self.last_token - self.arrival
