"""What a body's members become: headers, by which routes are matched, or another model.

Each processor names the members that it reads, so a request can be answered as soon as these are here. They run one
after the other on one draft, so that each sees what those before it changed. A member that is missing, or empty, sets
nothing: the request goes on as it came.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from pydantic import AliasChoices, Field

from pointsman.epp.plugins.api import Parameters
from pointsman.epp.request.refusals import BadRequest

_LONGEST = 4096  # of a header's value
_UNFIT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MODEL_HEADER = "X-Gateway-Model-Name"
BASE_HEADER = "X-Gateway-Base-Model-Name"


class Tally:
    """What is counted, for the metrics."""

    def __init__(self) -> None:
        self.success = 0
        self.not_found: Counter[str] = Counter()  # by member
        self.empty: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()  # by canonical code


class Draft:
    """What is to become of one request."""

    __slots__ = ("headers", "members", "model", "received")

    def __init__(self, members: dict[str, Any], *, received: Mapping[str, str] = MappingProxyType({})) -> None:
        self.members = members  # those that were asked for; what is not there, or null, is not in it
        self.received = received  # headers that came, of those that somebody goes by
        self.headers: list[tuple[str, str]] = []  # to set
        self.model: str | None = None  # what the body is to name in place of what it does

    def rename(self, model: str) -> None:
        """Let the body name another model."""
        self.model = self.members["model"] = model


class Processor(Protocol):
    """Turns members into headers, or into other members."""

    reads: frozenset[str]

    def process(self, draft: Draft) -> None:
        """Change the draft. Raises Refusal for a request that is not to go on."""


class FieldParameters(Parameters):
    """What `body-field-to-header` takes; the body-based router wrote its names with underscores."""

    field_name: str = Field(min_length=1, validation_alias=AliasChoices("fieldName", "field_name"))
    header_name: str = Field(min_length=1, validation_alias=AliasChoices("headerName", "header_name"))


class FieldToHeader:
    """A member of the body as a header."""

    def __init__(self, parameters: FieldParameters, *, tally: Tally) -> None:
        self._field = parameters.field_name
        self._header = parameters.header_name
        self._tally = tally
        self.reads = frozenset((parameters.field_name,))

    def process(self, draft: Draft) -> None:
        """Set it, when there is something in it."""
        value = draft.members.get(self._field)
        if value is None:
            self._tally.not_found[self._field] += 1
        elif value == "":
            self._tally.empty[self._field] += 1
        else:
            draft.headers.append((self._header, _as_header(value, name=self._field)))


class BaseModelToHeader:
    """The base model of the model that the body names: of an adapter what it was made for; empty when nobody knows."""

    reads = frozenset(("model",))

    def __init__(self, *, base_of: Callable[[str], str]) -> None:
        self._base_of = base_of

    def process(self, draft: Draft) -> None:
        """Set it, where a model is named at all."""
        model = draft.members.get("model")
        if model is not None:
            draft.headers.append((BASE_HEADER, self._base_of(as_text(model))))


def _as_header(value: Any, *, name: str) -> str:
    """Return a member as a header's value; raises BadRequest for what Envoy would take for a fault of ours."""
    text = as_text(value)
    if len(text) > _LONGEST:
        raise BadRequest(f"{name} has {len(text)} characters: a header takes {_LONGEST} at most")
    if _UNFIT.search(text):
        raise BadRequest(f"{name} has control characters, which a header cannot have: leave them out")
    return text


def as_text(value: Any) -> str:
    """Return a member as a header's value: a text as it is, a number or truth as JSON has it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False)
