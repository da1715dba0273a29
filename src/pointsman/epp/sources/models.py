"""The question `/v1/models`: which models and adapters an endpoint serves. Asked only where someone wants it."""

from typing import ClassVar

import msgspec

from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Mark, Member
from pointsman.epp.sources.scrape import Take


class _Model(msgspec.Struct):
    id: str
    parent: str | None = None  # of an adapter


class _Answer(msgspec.Struct):
    data: list[_Model]


_DECODER = msgspec.json.Decoder(_Answer)


def parse_models(body: bytes) -> dict[str, str] | None:
    """Return the names in an answer, each with its base where it is an adapter; None when it is not one."""
    try:
        return {model.id: model.parent or "" for model in _DECODER.decode(body).data}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class ModelsQuestion:
    """Keeps each member's models."""

    source: ClassVar[str] = "models-data-source"
    shows_life: ClassVar[bool] = True
    extractor: ClassVar[str] = "models-data-extractor"

    def __init__(self, *, tally: Polls) -> None:
        self._tally = tally

    def takes(self, member: Member) -> Take:
        """Return what writes to the member."""

        def take(body: bytes, *, asked_at: float, mark: Mark) -> bool:  # noqa: ARG001 - the question's shape
            models = parse_models(body)
            if models is None:
                self._tally.extract_errors[self.source, self.extractor] += 1
                return False
            member.served(models)
            return True

        return take
