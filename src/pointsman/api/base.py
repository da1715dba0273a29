"""What all custom resources share: how a model reads what people write, and types that Kubernetes has and Python lacks.

A block or value that is null counts as left out, as it does in the schema that the cluster checks: people comment out
the inside of a block and leave its name. Unknown fields are refused here, because a file on a laptop meets no API
server that would prune them, and a typing error must not be silent. Numbers and switches are what YAML says they are:
`"2"` is no number, here as on the API server.

A rule that spans fields is written once, as a `Rule` of its block: the sentence, the expression that the API server
evaluates, and the same for Python. A test holds the two to each other on the real API server.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from pointsman.core import quantities

Switch = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Generation = Annotated[int, Field(strict=True, ge=0, json_schema_extra={"format": "int64"})]
Port = Annotated[int, Field(strict=True, ge=1, le=65_535)]
Replicas = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
Verbosity = Annotated[int, Field(strict=True, ge=0, le=10)]
Image = Annotated[str, Field(min_length=1, max_length=1024)]
Arguments = Annotated[
    tuple[Annotated[str, Field(max_length=4096)], ...],
    Field(max_length=256, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
]
ServiceType = Literal["ClusterIP", "NodePort", "LoadBalancer"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
# A Service's name is a DNS label that begins with a letter.
ServiceName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


def without_nulls(value: Any) -> Any:
    """Return a mapping without what is null in it; anything else as it is."""
    if isinstance(value, Mapping):
        return {name: inner for name, inner in value.items() if inner is not None}
    return value


def _quantity(value: object) -> object:
    if isinstance(value, float):
        raise ValueError(f"is a whole number or a string: write {str(value)!r} with its quotes")  # noqa: TRY004 - pydantic's
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _readable(value: str) -> str:
    quantities.amount(value)
    return value


# The API server writes 1000m as "1" and accepts both 1 and "1".
Quantity = Annotated[
    str,
    BeforeValidator(_quantity),
    AfterValidator(_readable),
    WithJsonSchema(
        {"x-kubernetes-int-or-string": True, "pattern": quantities.PATTERN, "maxLength": quantities.LONGEST}
    ),
]
# The API server refuses rules that could become expensive, so what they read has limits.
Quantities = Annotated[dict[str, Quantity], Field(max_length=16), BeforeValidator(without_nulls)]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Something that must hold of a block as a whole."""

    field: str
    """The field to change, below the block."""
    says: str
    """What is wrong and what to do; the field stands before it."""
    cel: str
    holds: Callable[[Any], bool]

    @property
    def message(self) -> str:
        """The sentence."""
        return f"{self.field} {self.says}"

    def to_validation(self) -> dict[str, str]:
        """Return the rule as the API server reads it."""
        return {"rule": self.cel, "message": self.message, "fieldPath": f".{self.field}"}


class Block(BaseModel):
    """A part of a resource; field names are camelCase outside and snake_case inside.

    pydantic makes a validator when the first document is read: most commands read one kind, or none.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, defer_build=True
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        return without_nulls(value)

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        broken = [rule.message for rule in self.RULES if not rule.holds(self)]
        if broken:
            raise ValueError("; ".join(broken))
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler, /) -> dict[str, Any]:
        """Return the block's schema with its rules in it."""
        schema = handler.resolve_ref_schema(handler(core))
        if cls.RULES:
            schema["x-kubernetes-validations"] = [rule.to_validation() for rule in cls.RULES]
        return schema


class ResourceClaim(Block):
    """Devices from a ResourceClaimTemplate."""

    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="Name of a ResourceClaimTemplate in the namespace; each Pod gets a claim made from it.",
    )
    request: str | None = Field(
        default=None, max_length=63, description="Which request of the claim; all when left out."
    )


def _each_once(claims: tuple[ResourceClaim, ...]) -> tuple[ResourceClaim, ...]:
    names = [claim.name for claim in claims]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"name {twice!r} twice: keep one of them")
    return claims


class Resources(Block):
    """CPU, memory and devices of a container, as Kubernetes has them."""

    RULES = (
        Rule(
            field="requests",
            says="ask for more than limits allow: lower the request or raise the limit of the same name",
            # A pattern that does not match keeps no rule from running, and a number with such an exponent, which the
            # pattern refuses, would keep the API server computing until the request times out.
            cel="!has(self.limits) || !has(self.requests) || self.requests.all(name, !(name in self.limits) || "
            f"[self.requests[name], self.limits[name]].exists(one, string(one).matches('{quantities.TOO_LARGE}')) || "
            "quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",
            holds=lambda self: _within(self.requests or {}, self.limits or {}),
        ),
    )

    limits: Quantities | None = Field(default=None, description="The most that the container may use.")
    requests: Quantities | None = Field(default=None, description="What is set aside for the container.")
    claims: Annotated[tuple[ResourceClaim, ...], Field(max_length=32), AfterValidator(_each_once)] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="Devices that the container is given.",
    )


def _within(requests: Mapping[str, str], limits: Mapping[str, str]) -> bool:
    both = requests.keys() & limits.keys()
    return all(quantities.amount(requests[name]) <= quantities.amount(limits[name]) for name in both)
