"""A request while it is with a model, and what is learned of the model from it."""

from collections.abc import Callable

from pointsman.epp.bbr.models import Model
from pointsman.epp.extproc.usage import UsageReader
from pointsman.wire.protobuf import Data


class Served:
    """One request that is with a model: counted while it is there, timed up to its first bytes, and what it cost."""

    __slots__ = ("_began", "_clock", "_first", "_inflight", "_model", "_usage")

    def __init__(self, model: Model, *, clock: Callable[[], float]) -> None:
        self._model = model
        self._clock = clock
        self._began = clock()
        self._first: float | None = None
        self._inflight = model.inflight
        self._usage = UsageReader() if model.cost_window is not None else None
        model.inflight += 1

    def seen(self, part: Data, *, end: bool) -> None:
        """Take note of a part of the response's body."""
        if self._first is None:
            self._first = self._clock()
        if self._usage is not None:
            self._usage.feed(bytes(part), end=end)

    def end(self) -> None:
        """Take note that the response has ended, or never will."""
        model = self._model
        model.inflight = max(0, model.inflight - 1)
        if self._first is not None and model.window is not None:
            model.window.add(self._first - self._began, inflight=self._inflight, at=self._clock())
        used = self._usage.usage if self._usage is not None else None
        if used is not None and model.cost_window is not None:
            cost = used.prompt * model.price + used.completion * model.output_price
            model.cost_window.add(cost, at=self._clock())
