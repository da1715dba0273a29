"""A request's body on its way in: kept until the pick is made, and hashed ahead where that is worth it.

Reading ahead costs more work in all than waiting for the end, and leaves less of it for the end: at 220 KB a seventh of
the hashing. Below `_WORTHWHILE` bytes there is hardly anything to gain, so most requests do without. A part is looked
at when the next one is here: a body that arrived in one go would otherwise cost more, and nobody waits less for it.
"""

from collections.abc import Mapping
from typing import cast

from pointsman.epp.body.ahead import Ahead
from pointsman.epp.body.payload import BodyReading
from pointsman.epp.request.request import Needs
from pointsman.wire.protobuf import Data

_WORTHWHILE = 32 << 10
_PART_BYTES = 64  # what a part costs beside its bytes
_BITE = 16 << 10  # what is hashed at a time, so that it is still near when it is


class Body:
    """The parts that are here."""

    __slots__ = ("_ahead", "_fed", "_hashes", "_headers", "_kept", "_needs", "_parts", "_size")

    def __init__(self, *, needs: Needs, headers: Mapping[str, str] | None = None) -> None:
        self._needs = needs
        self._headers = headers
        self._hashes = needs.block_tokens > 0 and needs.tokenizer is None
        self._parts: list[Data] = []
        self._size = 0
        self._kept = 0
        self._ahead: Ahead | None = None
        self._fed = 0

    @property
    def kept(self) -> int:
        """How much memory the parts keep: a view keeps all that it is a view of."""
        return self._kept

    def add(self, part: Data, *, last: bool) -> None:
        """Take the next part."""
        self._parts.append(part)
        self._size += len(part)
        self._kept += _PART_BYTES + len(part if isinstance(part, bytes) else cast(bytes, part.obj))
        if self._hashes and not last and self._size >= _WORTHWHILE and len(self._parts) > 1:
            self._look_ahead()

    def read(self) -> BodyReading | None:
        """Return what it says, now that it is whole; None when it is empty.

        Raises BadRequest.
        """
        parts = [part for part in self._parts if part]  # the last is often empty, and joining would copy the rest
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        if not whole:
            return None
        return BodyReading(whole, needs=self._needs, ahead=self._ahead, headers=self._headers)

    def _look_ahead(self) -> None:
        if self._ahead is None:
            self._ahead = Ahead(block_tokens=self._needs.block_tokens, max_blocks=self._needs.max_blocks)
        for part in self._parts[self._fed : -1]:
            for at in range(0, len(part), _BITE):
                self._ahead.feed(bytes(part[at : at + _BITE]))
        self._fed = len(self._parts) - 1
