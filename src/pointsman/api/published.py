"""Types that the inference resources share, with the limits that their projects publish.

The schema of these resources is not ours to change: whoever reads them (gateways, pickers of other makers) relies on
it. What stands here is the published schema written as models; a test holds what is generated from them to the files of
every release that has them. Descriptions are ours.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from pointsman.api.base import Block

GROUP_PATTERN = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
INT32: dict[str, Any] = {"format": "int32"}

# An empty group is the core group; some releases say so with a minimal length of 0, and the two must not be mixed up.
Group = Annotated[str, Field(max_length=253, pattern=GROUP_PATTERN)]
GroupOrCore = Annotated[str, Field(min_length=0, max_length=253, pattern=GROUP_PATTERN)]
KindName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$")]
ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
NamespaceName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
LabelValue = Annotated[
    str, Field(min_length=0, max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
]
ControllerName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$",
    ),
]
PortNumber = Annotated[int, Field(strict=True, ge=1, le=65_535, json_schema_extra=INT32)]
FailureMode = Literal["FailOpen", "FailClose"]


class StandardCondition(Block):
    """One finding about an object, with the limits of metav1.Condition."""

    type: str = Field(
        max_length=316,
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
        r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        description="What the finding is about.",
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Why, in one word.",
    )
    message: str = Field(max_length=32_768, description="Why, in a sentence.")
    last_transition_time: str = Field(
        json_schema_extra={"format": "date-time"}, description="When the status last changed."
    )
    observed_generation: int | None = Field(
        default=None, ge=0, json_schema_extra={"format": "int64"}, description="The generation that was looked at."
    )


BY_TYPE: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
Conditions = Annotated[tuple[StandardCondition, ...], Field(max_length=8)]


def pending(type_: str) -> dict[str, Any]:
    """Return the condition that an object has before any controller has looked at it."""
    return {
        "type": type_,
        "status": "Unknown",
        "reason": "Pending",
        "message": "Waiting for controller",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }


class PoolReference(Block):
    """An InferencePool in the same namespace."""

    group: Group = Field(default="inference.networking.k8s.io", description="API group of the pool.")
    kind: KindName = Field(default="InferencePool", description="Kind of the pool.")
    name: ObjectName = Field(description="Name of the pool.")
