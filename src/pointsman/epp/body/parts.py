"""A request's body on its way in: kept until the pick is made, and hashed ahead where that is worth it.

Reading ahead costs more work in all than waiting for the end, and leaves less of it for the end: at 220 KB a seventh of
the hashing. Below `_WORTHWHILE` bytes there is hardly anything to gain, so most requests do without. A part is looked
at when the next one is here: a body that arrived in one go would otherwise cost more, and nobody waits less for it.
"""

from collections.abc import Callable, Mapping
from typing import cast

from pointsman.epp.body.ahead import Ahead
from pointsman.epp.body.grpc import VertexReading, VllmReading
from pointsman.epp.body.parsers import PARSERS, Parser
from pointsman.epp.body.payload import BodyReading
from pointsman.epp.request.request import Needs
from pointsman.wire.protobuf import Data

Reading = BodyReading | VllmReading
"""A body that was read, whatever it was written in."""

_WORTHWHILE = 32 << 10
_PART_BYTES = 64  # what a part costs beside its bytes
_BITE = 16 << 10  # what is hashed at a time, so that it is still near when it is


class Body:
    """The parts that are here."""

    __slots__ = ("_ahead", "_fed", "_hashes", "_headers", "_kept", "_needs", "_parser", "_parts", "_size", "_target_of")

    def __init__(
        self,
        *,
        needs: Needs,
        parser: Parser = PARSERS["openai-parser"],
        headers: Mapping[str, str] | None = None,
        target_of: Callable[[str], str] = lambda model: model,
    ) -> None:
        self._needs = needs
        self._parser = parser
        self._target_of = target_of
        self._headers = headers
        self._hashes = needs.block_tokens > 0 and needs.tokenizer is None and parser.reads == "json"
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

    def read(self) -> Reading | None:
        """Return what it says, now that it is whole; None when it is empty.

        Raises BadRequest.
        """
        parts = [part for part in self._parts if part]  # the last is often empty, and joining would copy the rest
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        if not whole:
            return None
        if self._parser.reads == "vllm":
            return VllmReading(bytes(whole), needs=self._needs)
        if self._parser.reads == "vertex":
            return VertexReading(bytes(whole), needs=self._needs, headers=self._headers)
        return BodyReading(
            whole,
            needs=self._needs,
            ahead=self._ahead,
            headers=self._headers,
            wants_model=self._parser.wants_model,
            chat=self._parser.name != "anthropic-parser",
        )

    def _look_ahead(self) -> None:
        if self._ahead is None:
            self._ahead = Ahead(
                block_tokens=self._needs.block_tokens, max_blocks=self._needs.max_blocks, target_of=self._target_of
            )
        for part in self._parts[self._fed : -1]:
            for at in range(0, len(part), _BITE):
                self._ahead.feed(bytes(part[at : at + _BITE]))
        self._fed = len(self._parts) - 1
