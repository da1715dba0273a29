"""The numbers of streams that ended lately, for the right answer to a late frame. Bounded, and O(1)."""

from collections import deque

_REMEMBERED = 128


class Recent:
    """The last few numbers of streams."""

    __slots__ = ("_known", "_order")

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        self._known: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number in self._known

    def add(self, number: int) -> None:
        """Remember one more, and forget the oldest."""
        if number not in self._known:
            self._known.add(number)
            self._order.append(number)
            if len(self._order) > _REMEMBERED:
                self._known.remove(self._order.popleft())
