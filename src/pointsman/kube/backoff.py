"""How long to wait before the next try: exponential, capped, jittered. Pure; randomness is injected."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from `first` to `cap`, each drawn from its upper part so that a crowd spreads."""

    first: float = 0.1
    cap: float = 30.0
    jitter: float = 0.5

    def delay(self, failures: int, *, rng: random.Random) -> float:
        """Return the delay after this many failures in a row (1 is the first)."""
        # 2**60 is beyond any cap; without the bound a key that fails for a week would compute a huge integer.
        whole = min(self.cap, self.first * 2.0 ** min(max(failures, 1) - 1, 60))
        return whole * (1.0 - self.jitter * rng.random())
