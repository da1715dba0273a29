"""The KV block pool: how many blocks are held, which contents are cached, and what is evicted next.

Blocks are fungible here (there is no memory behind them), so the pool counts anonymous ones and names only those
whose content is known by a hash key. The order of reuse is vLLM's: blocks never used, then released ones, oldest
first; a sequence gives back its blocks tail first, so that shared prefixes outlive the tails that hang on them.

Invariant: `used + free == size`, at every moment; `used` is what sequences hold, cached but idle blocks are free.
It must not know sequences, time, or what a key means.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

Removed = Callable[[int], None]


class BlockPool:
    """`size` blocks, some held, the rest free (of which some still hold cached content)."""

    __slots__ = ("_anonymous", "_blank", "_fresh", "_held", "_idle", "_removed", "size")

    def __init__(self, size: int, *, removed: Removed | None = None) -> None:
        self.size = size
        self._fresh = size  # never used so far
        self._anonymous = 0  # held, content without a key
        self._held: dict[int, int] = {}  # key -> how many sequences hold it
        self._idle: OrderedDict[int, None] = OrderedDict()  # free: a key, or a negative number for blank
        self._blank = 0
        self._removed = removed

    @property
    def used(self) -> int:
        """Blocks that sequences hold."""
        return self._anonymous + len(self._held)

    @property
    def free(self) -> int:
        """Blocks that an allocation may take."""
        return self._fresh + len(self._idle)

    def hits(self, keys: Sequence[int], *, limit: int) -> int:
        """Return how many leading keys are cached, `limit` at most."""
        held, idle = self._held, self._idle
        found = 0
        for key in keys[:limit]:
            if key not in held and key not in idle:
                break
            found += 1
        return found

    def fits(self, hit: Sequence[int], *, new: int) -> bool:
        """Whether the cached blocks can be pinned and `new` others taken at the same time."""
        return new <= self.free - sum(key in self._idle for key in hit)

    def pin(self, keys: Sequence[int]) -> None:
        """Take a reference on cached blocks."""
        for key in keys:
            if key in self._held:
                self._held[key] += 1
            else:
                del self._idle[key]
                self._held[key] = 1

    def take(self, count: int) -> None:
        """Allocate blocks without content; the caller has asked `fits` first."""
        fresh = min(count, self._fresh)
        self._fresh -= fresh
        for _ in range(count - fresh):
            key, _none = self._idle.popitem(last=False)
            if key >= 0 and self._removed is not None:
                self._removed(key)
        self._anonymous += count

    def name(self, key: int) -> bool:
        """Give one anonymous block its key; False (and it stays anonymous) where another block has it already."""
        if key in self._held or key in self._idle:
            return False
        self._anonymous -= 1
        self._held[key] = 1
        return True

    def release(self, keys: Sequence[int], *, anonymous: int) -> None:
        """Give back what one sequence holds: its anonymous tail first, then its keys from the last to the first."""
        self._anonymous -= anonymous
        for _ in range(anonymous):
            self._blank -= 1
            self._idle[self._blank] = None
        held = self._held
        for key in reversed(keys):
            count = held[key] - 1
            if count:
                held[key] = count
            else:
                del held[key]
                self._idle[key] = None

    def clear(self) -> int:
        """Forget all cached content that nobody holds; return how many blocks that was."""
        named = [key for key in self._idle if key >= 0]
        for key in named:
            del self._idle[key]
            self._blank -= 1
            self._idle[self._blank] = None
        return len(named)
