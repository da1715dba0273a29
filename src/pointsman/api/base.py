"""What all custom resources share: how a model reads what people write, and types that Kubernetes has and Python lacks.

A block or value that is null counts as left out, as it does in the schema that the cluster checks: people comment out
the inside of a block and leave its name. Unknown fields are refused here, because a file on a laptop meets no API
server that would prune them, and a typing error must not be silent.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

Port = Annotated[int, Field(ge=1, le=65_535)]
Replicas = Annotated[int, Field(ge=0, le=1_000_000)]
Verbosity = Annotated[int, Field(ge=0, le=10)]
ServiceType = Literal["ClusterIP", "NodePort", "LoadBalancer"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
# A Service's name is a DNS label that begins with a letter.
ServiceName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
# The API server writes 1000m as "1" and accepts both 1 and "1".
Quantity = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value),
    Field(pattern=r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[kMGTPE]|[KMGTPE]i|[mun])?$"),
]


class Block(BaseModel):
    """A part of a resource; field names are camelCase outside and snake_case inside."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: inner for name, inner in value.items() if inner is not None}
        return value


class ResourceClaim(Block):
    """A claim of the Pod that a container uses."""

    name: str = Field(description="Name of the entry in the Pod's resourceClaims.")
    request: str | None = Field(default=None, description="Which request of the claim; all when left out.")


class Resources(Block):
    """CPU, memory and devices of a container, as Kubernetes has them."""

    limits: dict[str, Quantity] | None = Field(default=None, description="The most that the container may use.")
    requests: dict[str, Quantity] | None = Field(default=None, description="What is set aside for the container.")
    claims: tuple[ResourceClaim, ...] | None = Field(default=None, description="Devices that the container is given.")
