"""The decisions of the last five minutes, for a what-if; kept only while somebody watches.

What a record holds is its candidates, each as it was, so memory is bounded by candidates: with a hundred endpoints some
two thousand decisions fit, with four the last five minutes of many a pool; and by what their requests weigh, where
clients send large headers or prompts. It is always a whole stretch: a replay that
lacked some decisions would know of caches less than the picker did. Parts of plugins (`Record.trace`) are let go.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from pointsman.epp.schedule.records import Record

SECONDS = 300.0
MOST = 20_000
MOST_CANDIDATES = 200_000  # some 300 bytes each, at worst
MOST_BYTES = 64 << 20  # of requests


class Tail:
    """A stretch of decisions up to now, oldest first."""

    def __init__(
        self,
        *,
        seconds: float = SECONDS,
        most: int = MOST,
        candidates: int = MOST_CANDIDATES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._seconds = seconds
        self._most = most
        self._most_candidates = candidates
        self._most_bytes = most_bytes
        self._kept: deque[Record] = deque()
        self._candidates = 0
        self._bytes = 0
        self.cut = False  # older ones of the last minutes had to go

    def begin(self, records: Iterable[Record]) -> None:
        """Start anew with what is known, oldest first."""
        self.clear()
        for record in records:
            self.add(record)

    def clear(self) -> None:
        """Let go of everything."""
        self._kept.clear()
        self._candidates = self._bytes = 0
        self.cut = False

    def add(self, record: Record) -> None:
        """Keep a decision that can be decided again."""
        if record.outcome is None:
            return
        if record.trace is not None:
            record = msgspec.structs.replace(record, trace=None)
        self._kept.append(record)
        self._candidates += len(record.candidates)
        self._bytes += record.weight
        while (
            len(self._kept) > self._most or self._candidates > self._most_candidates or self._bytes > self._most_bytes
        ):
            self._drop()
            self.cut = True

    def prune(self, now: float) -> None:
        """Let go of what is too old."""
        while self._kept and self._kept[0].at < now - self._seconds:
            self._drop()
            self.cut = False

    def _drop(self) -> None:
        gone = self._kept.popleft()
        self._candidates -= len(gone.candidates)
        self._bytes -= gone.weight

    def decisions(self, now: float) -> Sequence[Record]:
        """Return what there is, as it is now."""
        self.prune(now)
        return tuple(self._kept)
