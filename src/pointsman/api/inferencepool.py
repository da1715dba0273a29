"""InferencePool: which Pods serve one model, on which ports, and which picker chooses among them.

`v1` of inference.networking.k8s.io is the one to write. `v1alpha2` of inference.networking.x-k8s.io is what gateways of
before 2025-11 read (Istio 1.27); its last release was v1.4.0.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from pointsman.api.base import Block, Rule
from pointsman.api.published import (
    BY_TYPE,
    Conditions,
    ControllerName,
    FailureMode,
    Group,
    GroupOrCore,
    KindName,
    LabelValue,
    NamespaceName,
    ObjectName,
    PortNumber,
    pending,
)

ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}


class PoolPort(Block):
    """One port."""

    number: PortNumber = Field(description="The port's number.")


def _each_once(ports: tuple[PoolPort, ...]) -> tuple[PoolPort, ...]:
    if len({port.number for port in ports}) < len(ports):
        raise ValueError("have a number twice: keep one of them")
    return ports


# The expression is the published one; the sentence is ours.
_DISTINCT: dict[str, Any] = {
    "rule": "self.all(p1, self.exists_one(p2, p1.number==p2.number))",
    "message": "targetPorts have a number twice: keep one of them",
}
TargetPorts = Annotated[
    tuple[PoolPort, ...],
    Field(min_length=1, max_length=8, json_schema_extra={**ATOMIC, "x-kubernetes-validations": [_DISTINCT]}),
    AfterValidator(_each_once),
]


class PodSelector(Block):
    """The labels that a Pod of the pool must have."""

    match_labels: Annotated[dict[str, LabelValue], Field(min_length=1, max_length=64)] = Field(
        description="Label names with their values; a Pod needs all of them, in the pool's namespace."
    )


class EndpointPickerRef(Block):
    """The Service of the endpoint picker."""

    RULES = (
        Rule(
            field="port",
            says="is required for a Service: write the number of the Service's port",
            cel="self.kind != 'Service' || has(self.port)",
            holds=lambda self: self.kind != "Service" or self.port is not None,
        ),
    )

    group: GroupOrCore = Field(default="", description="API group of the picker; empty for a Service.")
    kind: KindName = Field(default="Service", description="Kind of the picker; never a Service of type ExternalName.")
    name: ObjectName = Field(description="Name of the picker's Service, in the pool's namespace.")
    port: PoolPort | None = Field(default=None, description="Port of the Service on which the picker is asked.")
    failure_mode: FailureMode = Field(
        default="FailClose", description="What the gateway does while the picker does not answer: refuse, or pick any."
    )


class InferencePoolSpec(Block):
    """Which Pods, which ports, which picker."""

    selector: PodSelector = Field(description="Which Pods belong to the pool.")
    target_ports: TargetPorts = Field(description="Ports of every Pod; each is an endpoint of its own.")
    app_protocol: Literal["http", "kubernetes.io/h2c"] = Field(
        default="http", description="What the Pods speak: HTTP/1.1, or HTTP/2 without TLS."
    )
    endpoint_picker_ref: EndpointPickerRef = Field(description="Who chooses an endpoint for each request.")


class ParentReference(Block):
    """A Gateway, or another parent, that sends requests to the pool."""

    group: GroupOrCore = Field(default="gateway.networking.k8s.io", description="API group of the parent.")
    kind: KindName = Field(default="Gateway", description="Kind of the parent.")
    name: ObjectName = Field(description="Name of the parent.")
    namespace: NamespaceName | None = Field(default=None, description="Namespace of the parent; else the pool's.")


class ParentStatus(Block):
    """What one parent found about the pool."""

    parent_ref: ParentReference = Field(description="The parent.")
    controller_name: ControllerName | None = Field(
        default=None, description="The controller that wrote this, as in GatewayClass."
    )
    conditions: Conditions | None = Field(
        default=None, json_schema_extra=BY_TYPE, description="Findings such as Accepted and ResolvedRefs."
    )


class InferencePoolStatus(Block):
    """What the parents found."""

    parents: Annotated[tuple[ParentStatus, ...], Field(max_length=32)] | None = Field(
        default=None, json_schema_extra=ATOMIC, description="One entry for each parent that uses the pool."
    )


class InferencePool(Block):
    """Pods that serve the same model, and the picker that chooses among them."""

    spec: InferencePoolSpec = Field(description="Which Pods, which ports, which picker.")
    status: InferencePoolStatus | None = Field(default=None, description="What the gateways found.")


class ExtensionRef(Block):
    """The Service of the endpoint picker (v1alpha2)."""

    group: Group = Field(default="", description="API group of the picker; empty for a Service.")
    kind: KindName = Field(default="Service", description="Kind of the picker; never a Service of type ExternalName.")
    name: ObjectName = Field(description="Name of the picker's Service, in the pool's namespace.")
    port_number: PortNumber | None = Field(default=None, description="Port of the Service; else the picker's own.")
    failure_mode: FailureMode = Field(
        default="FailClose", description="What the gateway does while the picker does not answer: refuse, or pick any."
    )


class AlphaPoolSpec(Block):
    """Which Pods, which port, which picker (v1alpha2)."""

    selector: dict[str, LabelValue] = Field(description="Labels that a Pod of the pool must have.")
    target_port_number: PortNumber = Field(description="Port of every Pod.")
    extension_ref: ExtensionRef = Field(description="Who chooses an endpoint for each request.")


class AlphaParentReference(ParentReference):
    """A Gateway that sends requests to the pool (v1alpha2)."""

    group: Group = Field(default="gateway.networking.k8s.io", description="API group of the parent.")


class AlphaParentStatus(Block):
    """What one parent found about the pool (v1alpha2)."""

    parent_ref: AlphaParentReference = Field(description="The parent.")
    conditions: Conditions | None = Field(
        default=None,
        json_schema_extra={**BY_TYPE, "default": [pending("Accepted")]},
        description="Findings such as Accepted and ResolvedRefs.",
    )


class AlphaPoolStatus(Block):
    """What the parents found (v1alpha2)."""

    parent: Annotated[tuple[AlphaParentStatus, ...], Field(max_length=32)] | None = Field(
        default=None, description="One entry for each parent that uses the pool."
    )


_UNSEEN: dict[str, Any] = {
    "parent": [{"parentRef": {"kind": "Status", "name": "default"}, "conditions": [pending("Accepted")]}],
}


class AlphaPool(Block):
    """Pods that serve the same model, as gateways of before v1 read it."""

    spec: AlphaPoolSpec | None = Field(default=None, description="Which Pods, which port, which picker.")
    status: AlphaPoolStatus | None = Field(
        default=None, json_schema_extra={"default": _UNSEEN}, description="What the gateways found."
    )
