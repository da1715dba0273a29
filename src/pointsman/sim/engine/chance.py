"""Randomness that does not depend on who asks first: every draw is keyed by (seed, request id, purpose).

One shared generator would make a run depend on the order in which concurrent requests reach it. A `Chance` is a
splitmix64 stream started from a hash of its key, so that the same seed gives the same answers, lengths and delays
under any interleaving, and starting one costs a microsecond rather than the seeding of a Mersenne twister.
"""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Chance:
    """A stream of random numbers for one purpose of one request."""

    __slots__ = ("_state",)

    def __init__(self, *key: object) -> None:
        text = "\0".join(map(str, key)).encode("utf-8", "surrogatepass")
        self._state = int.from_bytes(blake2b(text, digest_size=8).digest(), "little")

    def bits(self) -> int:
        """Return 64 random bits."""
        self._state = z = (self._state + _GOLDEN) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return (self.bits() >> 11) * 2.0**-53

    def below(self, limit: int) -> int:
        """Return an integer in [0, limit)."""
        return self.bits() * limit >> 64

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return low + self.below(high - low + 1)

    def choice(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[self.below(len(items))]

    def happens(self, percent: float) -> bool:
        """Return true in the given share of draws."""
        return percent > 0 and self.random() * 100 < percent

    def gauss(self, mean: float, deviation: float) -> float:
        """Return a draw from the normal distribution."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.random()))
        return mean + deviation * radius * math.cos(2 * math.pi * self.random())
