"""One budget of bytes for all that a process holds for its peers: bodies under way, parts of messages, unsent answers.

Limits per peer bound nothing when there are many peers; this bounds their sum. Whoever holds memory over more than one
turn of the loop has an `Account`. When the budget is spent the largest holder gives up its place, and of several that
are about as large the oldest: so whoever piles things up pays, and a small request is served beside any number of
hogs. Sizes are sorted into powers of two, which makes every operation O(1).

What every open stream costs, however little it holds, is taken without an account (`take`, `give`).
"""

from collections import Counter, OrderedDict
from collections.abc import Callable

DEFAULT_BYTES = 384 << 20
_LEVELS = 48  # powers of two; more than any machine's memory


class Exhausted(Exception):
    """There is no room, and nobody holds more than whoever asks."""


class Account:
    """What one holder holds."""

    __slots__ = ("_budget", "_shed", "level", "size", "what")

    def __init__(self, budget: "Budget", *, what: str, shed: Callable[[], None]) -> None:
        self._budget = budget
        self._shed = shed
        self.what = what
        self.size = 0
        self.level = 0

    def hold(self, more: int) -> None:
        """Hold so many bytes more, or fewer when negative.

        Raises Exhausted, and holds nothing any more, when it is this account that has to make room.
        """
        self.set(self.size + more)

    def set(self, size: int) -> None:
        """Hold so many bytes. Raises as `hold`."""
        grown = size > self.size
        self._budget.move(self, size)
        if grown:
            self._budget.make_room(self)

    def release(self) -> None:
        """Release everything."""
        if self.size:
            self._budget.move(self, 0)

    def shed(self) -> None:
        """Give up: let go of the memory and tell the peer."""
        self.release()
        self._shed()


class Budget:
    """The bytes of one process."""

    __slots__ = ("_levels", "held", "limit", "shed")

    def __init__(self, *, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self.shed: Counter[str] = Counter()  # who had to make room, by what they held
        self._levels: list[OrderedDict[Account, None]] = [OrderedDict() for _ in range(_LEVELS)]

    def account(self, what: str, *, shed: Callable[[], None]) -> Account:
        """Return an account that holds nothing; `shed` is called when it has to make room."""
        return Account(self, what=what, shed=shed)

    def take(self, size: int) -> bool:
        """Take bytes that nobody can be made to give up; return whether there is room for them."""
        self.held += size
        if self.held > self.limit:
            try:
                self.make_room(None)
            except Exhausted:
                self.held -= size
                return False
        return True

    def give(self, size: int) -> None:
        """Give back what was taken."""
        self.held -= size

    def move(self, account: Account, size: int) -> None:
        """Note that an account holds so much now."""
        self.held += size - account.size
        account.size = size
        level = size.bit_length()
        if level != account.level:
            if account.level:
                del self._levels[account.level][account]
            if level:
                self._levels[level][account] = None
            account.level = level

    def make_room(self, asking: Account | None) -> None:
        """Let the largest holders go until the budget is kept. Raises Exhausted when that is the one who asks."""
        while self.held > self.limit:
            victim = self._largest()
            if victim is None or victim is asking:
                if asking is not None:
                    self.shed[asking.what] += 1
                    asking.release()
                raise Exhausted
            self.shed[victim.what] += 1
            victim.shed()

    def _largest(self) -> Account | None:
        for level in reversed(self._levels):
            if level:
                return next(iter(level))
        return None
