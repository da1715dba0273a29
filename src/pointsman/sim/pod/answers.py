"""Answers that can be asked for again, the newest ones, within a bound of memory."""

from collections import OrderedDict

_MOST = 1000
_MOST_BYTES = 4 << 20


class Answers:
    """Whole answers by their ids; the oldest make room."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def put(self, name: str, body: bytes) -> None:
        """Keep an answer, in place of an older one of that name."""
        self._bytes += len(body) - len(self._kept.pop(name, b""))
        self._kept[name] = body
        while self._bytes > _MOST_BYTES or len(self._kept) > _MOST:
            self._bytes -= len(self._kept.popitem(last=False)[1])

    def get(self, name: str) -> bytes | None:
        """Return the answer, if it is still there."""
        return self._kept.get(name)
