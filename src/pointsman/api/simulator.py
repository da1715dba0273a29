"""SimulatorDeployment: one resource for the whole stack of simulators, picker and gateways.

Names, defaults and enums are those of the operator that came before, so that its resources work unchanged. What is
different has a reason: replicas may be 0, ports and verbosity are checked, a stage without a verbosity takes the
stack's, `nameSuffix` lets two stacks share a namespace. The defaults are part of the schema and apply where the block
is there.
"""

from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from pointsman.api.base import (
    Arguments,
    Block,
    Count,
    Generation,
    Image,
    Port,
    PullPolicy,
    Replicas,
    Resources,
    Rule,
    ServiceName,
    ServiceType,
    Switch,
    Verbosity,
)
from pointsman.api.published import FailureMode
from pointsman.core.kinds import Kind

GROUP = "sim.llm-d.io"
VERSION = "v1alpha1"
SIMULATOR_DEPLOYMENT = Kind(GROUP, VERSION, "SimulatorDeployment", "simulatordeployments")

Algorithm = Literal["ROUND_ROBIN", "LEAST_REQUEST", "RANDOM", "LEAST_CONN"]
# The longest name made from a resource's is `ms-sim-{name}-decode`, whose Pods get 17 more characters in their labels.
LONGEST_NAME = 40


def name_rule(made: str) -> Rule:
    """Return the rule for a resource from whose name other things are made."""
    return Rule(
        field="metadata.name",
        says=f"has more than {LONGEST_NAME} characters, and {made} are made from it: choose a shorter one",
        cel=f"self.metadata.name.size() <= {LONGEST_NAME}",
        holds=lambda self: len(self.metadata.name) <= LONGEST_NAME,
    )


_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
# The picker's container listens on these whatever its Service's port is.
PICKER_PORTS = {"grpc": 9002, "health": 9003, "metrics": 9090}
_TAKEN_PORTS = f"{PICKER_PORTS['health']}, {PICKER_PORTS['metrics']}"
# What the stack calls its parts, each with the suffix; Services among them are taken.
PICKER = "gaie-sim-epp"
GATEWAY = "infra-sim-inference-gateway"
ISTIO_GATEWAY = f"{GATEWAY}-istio"
STAGE = "ms-sim-llm-d-modelservice-"
SERVICES = (PICKER, GATEWAY, ISTIO_GATEWAY, f"{STAGE}prefill", f"{STAGE}decode")


class ServiceConfig(Block):
    """The Service in front of the simulators."""

    name: ServiceName = Field(default="gaie-inference-scheduling-proxy", description="Name of the Service.")
    port: Port = Field(default=8200, description="Port of the Service, and of the simulators without stages.")
    type: ServiceType = Field(
        default="ClusterIP", description="Type of the Service; others than ClusterIP where the operator allows them."
    )


class LegacyGateway(Block):
    """A Gateway of the Gateway API in front of the Service; `inferenceGateway` is its successor."""

    enabled: Switch = Field(default=False, description="Make a Gateway and an HTTPRoute.")
    class_name: str = Field(default="istio", min_length=1, max_length=253, description="GatewayClass of the Gateway.")
    route_name: ServiceName = Field(
        default="infra-sim-inference-gateway", description="Name of the Gateway and of the HTTPRoute."
    )


class ConnectionPool(Block):
    """Limits of the connections from a proxy to the simulators."""

    http1_max_pending_requests: Count = Field(
        default=1, alias="http1MaxPendingRequests", description="Requests that may wait for a connection."
    )
    max_requests_per_connection: Count = Field(
        default=1, description="Requests on one connection before it is closed; 0 sets no limit."
    )


class LoadBalancing(Block):
    """How proxies spread requests when no picker decides: Istio's DestinationRule, and our gateway's own policy."""

    enabled: Switch = Field(default=False, description="Set the algorithm and the connection pool.")
    algorithm: Algorithm = Field(default="ROUND_ROBIN", description="LEAST_CONN is an old name of LEAST_REQUEST.")
    connection_pool: ConnectionPool | None = Field(default=None, description="Connection limits; none when left out.")


class PickerConfig(Block):
    """The endpoint picker."""

    RULES = (
        Rule(
            field="port",
            says=f"is a port that the picker's Service has already ({_TAKEN_PORTS}): choose another, such as 8100",
            cel=f"!(self.port in [{_TAKEN_PORTS}])",
            holds=lambda self: self.port not in {PICKER_PORTS["health"], PICKER_PORTS["metrics"]},
        ),
    )

    enabled: Switch = Field(default=False, description="Run the picker.")
    replicas: Replicas = Field(default=1, description="Picker Pods; of several, one leads and the others stand by.")
    image: Image = Field(
        default="ghcr.io/llm-d/llm-d-inference-scheduler:v0.4.0",
        description="Image of the picker, from where the operator trusts images.",
    )
    port: Port = Field(default=8100, description="Port of the picker's Service; its Pods listen on 9002.")
    verbosity: Verbosity = Field(default=1, description="Log verbosity of the picker.")
    failure_mode: FailureMode = Field(
        default="FailOpen",
        description="When no picker answers: FailOpen serves from any simulator, FailClose answers 503.",
    )
    args: Arguments = Field(
        default=(),
        description="More flags, after the built-in ones; with `--secure-serving`, gateways speak TLS to the picker.",
    )
    resources: Resources | None = Field(
        default=None,
        description="CPU and memory of the picker; where nothing is said of memory, 256Mi and at most 1Gi.",
    )


class GatewayInstance(Block):
    """One gateway of the stack."""

    enabled: Switch = Field(default=False, description="Run this gateway.")
    replicas: Replicas = Field(default=1, description="Gateway Pods.")
    image: Image | None = Field(default=None, description="Image with Envoy; each gateway has its own default.")
    port: Port = Field(default=8080, description="Port of the gateway's Service; its Pods listen on 80.")
    resources: Resources | None = Field(default=None, description="CPU and memory of a gateway Pod.")


class InferenceGateway(Block):
    """The gateways in front of the picker."""

    enabled: Switch = Field(default=False, description="Run the gateways that are enabled below.")
    standard: GatewayInstance | None = Field(default=None, description="Envoy with the stack's own configuration.")
    istio: GatewayInstance | None = Field(
        default=None, description="Istio's gateway; without Istio, Envoy with the stack's own configuration."
    )


class Stage(Block):
    """One stage of disaggregated serving: prefill or decode."""

    enabled: Switch = Field(default=False, description="Run this stage.")
    replicas: Replicas = Field(default=2, description="Simulator Pods of the stage.")
    image: Image | None = Field(default=None, description="Image of the stage; the stack's when left out.")
    port: Port = Field(default=8200, description="Port of the stage's Pods and Service.")
    log_verbosity: Verbosity | None = Field(default=None, description="Log verbosity; the stack's when left out.")
    resources: Resources | None = Field(default=None, description="CPU and memory of a Pod of the stage.")
    args: Arguments = Field(default=(), description="More flags, after the built-in ones.")


class SimulatorSpec(Block):
    """What to run."""

    RULES = (
        Rule(
            field="service.name",
            says="is the name of another Service of the stack: choose another, or leave it out",
            cel=f"!has(self.service) || {list(SERVICES)}.all(name, "
            "self.service.name != name + (has(self.nameSuffix) ? self.nameSuffix : ''))",
            holds=lambda self: (
                self.service is None or self.service.name not in {name + self.name_suffix for name in SERVICES}
            ),
        ),
        Rule(
            field="prefill.port",
            says="differs from decode.port, and the picker knows both stages by one port: make them equal",
            cel=f"!({' && '.join(f'has(self.{part}) && self.{part}.enabled' for part in ('epp', 'prefill', 'decode'))})"
            " || self.prefill.port == self.decode.port",
            holds=lambda self: (
                not all(part and part.enabled for part in (self.epp, self.prefill, self.decode))
                or self.prefill.port == self.decode.port
            ),
        ),
    )

    replicas: Replicas = Field(default=2, description="Simulator Pods when neither prefill nor decode is enabled.")
    image: Image = Field(default="ghcr.io/llm-d/llm-d-simulator:latest", description="Image of the simulators.")
    image_pull_policy: PullPolicy = Field(default="IfNotPresent", description="When nodes fetch the images.")
    log_verbosity: Verbosity = Field(default=5, description="Log verbosity of the simulators.")
    name_suffix: str = Field(
        default="",
        max_length=12,
        pattern=r"^(-[a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
        description="Added to names that do not contain this resource's, such as -b: two stacks can share a namespace.",
    )
    resources: Resources | None = Field(default=None, description="CPU and memory of a simulator.")
    service: ServiceConfig | None = Field(default=None, description="The Service in front of the simulators.")
    gateway: LegacyGateway | None = Field(default=None, description="Gateway of the Gateway API (legacy).")
    load_balancing: LoadBalancing | None = Field(default=None, description="How proxies spread requests.")
    epp: PickerConfig | None = Field(default=None, description="The endpoint picker.")
    inference_gateway: InferenceGateway | None = Field(default=None, description="Gateways in front of the picker.")
    prefill: Stage | None = Field(default=None, description="Simulators that compute prompts.")
    decode: Stage | None = Field(default=None, description="Simulators that produce tokens.")


class ConditionStatus(Block):
    """One finding about the stack, as Kubernetes writes conditions."""

    type: str = Field(description="What the finding is about.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(default="", description="Why, in one word.")
    message: str = Field(default="", description="Why, in a sentence, with what to do about it.")
    observed_generation: Generation | None = Field(default=None, description="The generation that was looked at.")
    last_transition_time: str = Field(
        default="", json_schema_extra={"format": "date-time"}, description="When the status last changed."
    )


class SimulatorStatus(Block):
    """What runs."""

    observed_generation: Generation | None = Field(default=None, description="The generation that was looked at.")
    replicas: Count | None = Field(default=None, description="Simulator Pods that exist.")
    ready_replicas: Count | None = Field(default=None, description="Simulator Pods that are ready.")
    selector: str | None = Field(
        default=None, description="Label selector of the simulators, for the scale subresource."
    )
    endpoints: tuple[str, ...] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Addresses of the simulators that are ready.",
    )
    gateway_url: str | None = Field(default=None, alias="gatewayURL", description="Where to send requests.")
    conditions: tuple[ConditionStatus, ...] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Findings, one per component.",
    )


class Metadata(Block):
    """What of the object's metadata concerns us."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    name: str = Field(min_length=1, pattern=_SUBDOMAIN, description="Name of the stack.")
    namespace: str = Field(default="default", pattern=_LABEL, description="Namespace of everything in the stack.")
    generation: int = Field(default=0, description="Counts the changes of the spec.")


class SimulatorDeployment(Block):
    """A stack of simulators with, as wished, a picker and gateways in front of them."""

    RULES = (name_rule("longer names"),)

    api_version: Literal["sim.llm-d.io/v1alpha1"] = Field(description="Group and version.")
    kind: Literal["SimulatorDeployment"] = Field(description="Kind of the resource.")
    metadata: Metadata = Field(description="Name and namespace.")
    spec: SimulatorSpec = Field(default_factory=SimulatorSpec, description="What to run.")
    status: dict[str, Any] | None = Field(default=None, description="What runs; written by the operator.")
