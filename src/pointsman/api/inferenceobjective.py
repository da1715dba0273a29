"""InferenceObjective: how important the requests are that name it. One schema, published in two groups.

`llm-d.ai` is where it lives now; the older group counts priorities without saying in how many bits.
"""

from typing import Annotated

from pydantic import Field

from pointsman.api.base import Block
from pointsman.api.published import BY_TYPE, INT32, Conditions, PoolReference, pending

_IMPORTANCE = "Requests of a higher priority go first; below 0 they may be shed; 0 when left out."
Priority = Annotated[int, Field(strict=True, json_schema_extra=INT32)]
LegacyPriority = Annotated[int, Field(strict=True)]


class InferenceObjectiveStatus(Block):
    """What was found about the objective."""

    conditions: Conditions | None = Field(
        default=None,
        json_schema_extra={**BY_TYPE, "default": [pending("Ready")]},
        description="Findings such as Accepted.",
    )


class InferenceObjectiveSpec(Block):
    """How important requests are, in which pool."""

    pool_ref: PoolReference = Field(description="The pool whose picker honours the objective.")
    priority: Priority | None = Field(default=None, description=_IMPORTANCE)


class InferenceObjective(Block):
    """How important the requests are that name this object in their objective header."""

    spec: InferenceObjectiveSpec | None = Field(default=None, description="How important, in which pool.")
    status: InferenceObjectiveStatus | None = Field(default=None, description="What was found.")


class LegacyObjectiveSpec(InferenceObjectiveSpec):
    """How important requests are, in which pool (older group)."""

    priority: LegacyPriority | None = Field(default=None, description=_IMPORTANCE)


class LegacyObjective(InferenceObjective):
    """How important the requests are that name this object in their objective header (older group)."""

    spec: LegacyObjectiveSpec | None = Field(default=None, description="How important, in which pool.")
