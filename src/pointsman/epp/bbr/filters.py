"""Which models may serve a request, by what its body asks for. What leaves nobody is answered with 429 (`selector`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import Field

from pointsman.epp.bbr.models import Model
from pointsman.epp.plugins.api import Parameters

AUTO = "auto"
GROUP = "auto/"


class Filter(Protocol):
    """Leaves some models out."""

    reads: frozenset[str]

    def keep(self, members: Mapping[str, Any], models: Sequence[Model]) -> Sequence[Model]:
        """Return those that remain."""


class ByFieldParameters(Parameters):
    """What `by-field-filter` takes."""

    field_name: str = Field(min_length=1)
    by_field: str = ""
    """The models' attribute to compare with; their name when there is none."""


class ByField:
    """Those whose name, or attribute, is what a member of the body says; all when it says nothing."""

    def __init__(self, parameters: ByFieldParameters) -> None:
        self._field = parameters.field_name
        self._attribute = parameters.by_field
        self.reads = frozenset((parameters.field_name,))

    def keep(self, members: Mapping[str, Any], models: Sequence[Model]) -> Sequence[Model]:
        """Return them; none for a member that is no text."""
        return _asked_for(members.get(self._field), models, lambda asked: [m for m in models if self._of(m) == asked])

    def _of(self, model: Model) -> object:
        return model.attributes.get(self._attribute) if self._attribute else model.name


class ByGroup:
    """The model that is named; for `auto` all, for `auto/group` those of the group."""

    reads = frozenset(("model",))

    def keep(self, members: Mapping[str, Any], models: Sequence[Model]) -> Sequence[Model]:
        """Return them; none for a name that is no text."""
        return _asked_for(members.get("model"), models, lambda asked: self._matching(asked, models))

    def _matching(self, asked: str, models: Sequence[Model]) -> Sequence[Model]:
        if asked == AUTO:
            return models
        if asked.startswith(GROUP):
            group = asked.removeprefix(GROUP)
            return [model for model in models if group and group in model.groups]
        return [model for model in models if model.name == asked]


def _asked_for(asked: object, models: Sequence[Model], matching: Callable[[str], Sequence[Model]]) -> Sequence[Model]:
    if asked is None or asked == "":
        return models
    return matching(asked) if isinstance(asked, str) else ()
