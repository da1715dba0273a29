"""SchedulerInstall: a picker, a gateway and the route between them, for simulators or model servers of a namespace.

Names, defaults and enums are those of the operator that came before, so that its resources work unchanged. What is
different has a reason: what it could only find out while it worked is refused by the schema, a pool is made where none
is there, and `routing.way` says how the gateway is made to follow picks, where the operator's choice is not wanted.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pointsman.api.base import (
    Block,
    Generation,
    Image,
    Port,
    PullPolicy,
    Replicas,
    Resources,
    Rule,
    ServiceName,
    Switch,
    without_nulls,
)
from pointsman.api.published import FailureMode, LabelValue, NamespaceName, ObjectName
from pointsman.api.simulator import (
    GROUP,
    VERSION,
    ConditionStatus,
    LoadBalancing,
    Metadata,
    PickerConfig,
    name_rule,
)
from pointsman.core.kinds import Kind

SCHEDULER_INSTALL = Kind(GROUP, VERSION, "SchedulerInstall", "schedulerinstalls")

Profile = Literal["default", "proxy-performance", "proxy-performance-by-backend"]
Way = Literal["Native", "EndpointSlice", "RoutePatch", "FilterPatch", "OwnEnvoy"]
Labels = Annotated[dict[str, LabelValue], Field(max_length=16), BeforeValidator(without_nulls)]
DECODERS = {"llm-d.ai/role": "decode", "llm-d.ai/inferenceServing": "true"}
GATEWAY = "infra-inference-scheduling-inference-gateway"
POOL = "gaie-inference-scheduling"
PICKER = f"{POOL}-epp"
PROXY = f"{POOL}-proxy"
# Pods of a gateway of our own are called after it, with 17 characters more.
_GatewayName = Annotated[ServiceName, Field(max_length=46)]


class ProxyService(Block):
    """The Service in front of the model servers, in their namespace."""

    enabled: Switch = Field(
        default=True, description="Make the Service; one that a SimulatorDeployment has made already is used as it is."
    )
    name: ServiceName = Field(default=PROXY, description="Name of the Service.")
    port: Port = Field(default=8200, description="Port of the Service.")
    target_port: Port | None = Field(default=None, description="Port of the Pods; the Service's when left out.")
    selector: Labels | None = Field(default=None, description="Labels of the Pods; decode Pods of llm-d when left out.")


class SchedulerPicker(PickerConfig):
    """The endpoint picker, in the scheduler's namespace."""

    name: Annotated[ServiceName, Field(max_length=46)] = Field(
        default=PICKER, description="Name of the picker's objects."
    )
    port: Port = Field(default=9002, description="Port of the picker's Service; its Pods listen on 9002.")
    failure_mode: FailureMode = Field(
        default="FailOpen",
        description="When no picker answers: FailOpen serves from any Pod, FailClose answers with an error.",
    )
    pool_name: ObjectName = Field(default=POOL, description="InferencePool that the picker follows.")
    pool_namespace: NamespaceName | None = Field(
        default=None, description="Namespace of the pool; `simulatorNamespace` when left out."
    )
    config_profile: Profile = Field(
        default="default",
        description="How it picks: load, prefixes and KV caches; requests in flight; or these among nvlink backends.",
    )


class SchedulerGateway(Block):
    """The gateway, in the scheduler's namespace."""

    enabled: Switch = Field(default=False, description="Make the gateway.")
    name: _GatewayName = Field(default=GATEWAY, description="Name of the Gateway.")
    class_name: str = Field(default="istio", min_length=1, max_length=253, description="GatewayClass of the Gateway.")
    listener_port: Port = Field(default=80, description="Port on which it listens.")
    listener_protocol: Literal["HTTP"] = Field(
        default="HTTP", description="Protocol of that listener; add listeners of your own to the Gateway for TLS."
    )
    routes_from: Literal["Same", "All"] = Field(
        default="Same", description="Namespaces whose HTTPRoutes may use the listener."
    )
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        default="ClusterIP",
        description="Type of the Service that Istio makes of the Gateway; others than ClusterIP where the operator "
        "allows them.",
    )
    replicas: Replicas = Field(default=1, description="Gateway Pods, where the gateway is an Envoy of our own.")
    image: Image | None = Field(default=None, description="Image with Envoy, where the gateway is an Envoy of our own.")
    resources: Resources | None = Field(default=None, description="CPU and memory of such a Pod.")


class PoolReference(Block):
    """The pool that the route leads to."""

    name: ObjectName | None = Field(default=None, description="Name; `epp.poolName` when left out.")
    namespace: NamespaceName | None = Field(default=None, description="Namespace; `epp.poolNamespace` when left out.")
    port: Port | None = Field(default=None, description="Port of the Pods; the proxy Service's when left out.")


class ParentGateway(Block):
    """A Gateway that is there already."""

    name: ObjectName | None = Field(default=None, description="Name; `gateway.name` when left out.")
    namespace: NamespaceName | None = Field(default=None, description="Namespace; the scheduler's when left out.")


class Routing(Block):
    """The way of a request from the gateway to the model servers."""

    enabled: Switch = Field(default=False, description="Make the HTTPRoute and what permits it.")
    backend_type: Literal["Service", "InferencePool"] = Field(
        default="Service", description="Where the route leads: to the proxy Service, or to the pool."
    )
    inference_pool: PoolReference | None = Field(default=None, description="The pool, where it is not the picker's.")
    http_route_name: ServiceName = Field(
        default="llm-d-inference-scheduling", alias="httpRouteName", description="Name of the HTTPRoute."
    )
    parent_gateway: ParentGateway | None = Field(default=None, description="The Gateway, where it is not ours.")
    way: Way | None = Field(
        default=None,
        description="How the gateway is made to follow picks; chosen by what the cluster has when left out.",
    )


class EnvoyFilterConfig(Block):
    """Whether Istio's gateways may be patched."""

    enabled: Switch = Field(default=False, description="Allow EnvoyFilters; without, only what Istio does by itself.")
    name: ServiceName = Field(default="epp-ext-proc", description="Name of the EnvoyFilter.")
    workload_selector: Labels | None = Field(
        default=None, description="Labels of the gateway's Pods; the Gateway itself when left out."
    )


def _names(spec: Any) -> list[str]:
    """Return what objects are called that could be in one namespace."""
    picker, proxy = spec.epp or SchedulerPicker(), spec.proxy_service or ProxyService()
    gateway = spec.gateway or SchedulerGateway()
    return [picker.name, f"{picker.name}-config", gateway.name, proxy.name, f"{proxy.name}-pods", f"{proxy.name}-lb"]


def _named(block: str, default: str) -> str:
    return f"(has(self.{block}) ? self.{block}.name : '{default}')"


_PICKER, _PROXY = _named("epp", PICKER), _named("proxyService", PROXY)
_NAMES = ", ".join(
    (_PICKER, f"{_PICKER} + '-config'", _named("gateway", GATEWAY), _PROXY, f"{_PROXY} + '-pods'", f"{_PROXY} + '-lb'")
)


class SchedulerSpec(Block):
    """What to install."""

    RULES = (
        Rule(
            field="envoyFilter.enabled",
            says="is true and epp.enabled is not: there is no picker to ask, so enable epp",
            cel="!(has(self.envoyFilter) && self.envoyFilter.enabled) || (has(self.epp) && self.epp.enabled)",
            holds=lambda self: (
                not (self.envoy_filter and self.envoy_filter.enabled) or (self.epp is not None and self.epp.enabled)
            ),
        ),
        Rule(
            field="routing.enabled",
            says="is true and there is no gateway to route from: add gateway, or name routing.parentGateway",
            cel="!(has(self.routing) && self.routing.enabled) || has(self.gateway) || "
            "(has(self.routing.parentGateway) && has(self.routing.parentGateway.name))",
            holds=lambda self: (
                not (self.routing and self.routing.enabled)
                or self.gateway is not None
                or (self.routing.parent_gateway is not None and self.routing.parent_gateway.name is not None)
            ),
        ),
        Rule(
            field="epp.name",
            says="and gateway.name, proxyService.name and what is made of them (-config, -pods, -lb) are not all "
            "different: choose other names",
            cel=f"[{_NAMES}].all(one, [{_NAMES}].exists_one(other, other == one))",
            holds=lambda self: len(set(_names(self))) == len(_names(self)),
        ),
    )

    scheduler_namespace: NamespaceName | None = Field(
        default=None, description="Namespace of picker and gateway; that of this resource when left out."
    )
    simulator_namespace: NamespaceName = Field(description="Namespace of the model servers.")
    image_pull_policy: PullPolicy = Field(default="IfNotPresent", description="When nodes fetch the images.")
    proxy_service: ProxyService | None = Field(default=None, description="The Service in front of the model servers.")
    epp: SchedulerPicker | None = Field(default=None, description="The endpoint picker.")
    gateway: SchedulerGateway | None = Field(default=None, description="The gateway.")
    routing: Routing | None = Field(default=None, description="The way of a request to the model servers.")
    destination_rule: LoadBalancing | None = Field(
        default=None, description="How proxies of the mesh spread requests over the proxy Service."
    )
    envoy_filter: EnvoyFilterConfig | None = Field(default=None, description="Whether gateways may be patched.")


class SchedulerStatus(Block):
    """What is installed."""

    observed_generation: Generation | None = Field(default=None, description="The generation that was looked at.")
    way: str | None = Field(default=None, description="How the gateway is made to follow picks.")
    gateway_url: str | None = Field(default=None, alias="gatewayURL", description="Where to send requests.")
    endpoints: tuple[str, ...] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Addresses behind the proxy Service that are ready.",
    )
    conditions: tuple[ConditionStatus, ...] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Findings, one per component.",
    )


class SchedulerInstall(Block):
    """A picker and a gateway for the model servers of a namespace."""

    RULES = (name_rule("labels"),)

    api_version: Literal["sim.llm-d.io/v1alpha1"] = Field(description="Group and version.")
    kind: Literal["SchedulerInstall"] = Field(description="Kind of the resource.")
    metadata: Metadata = Field(description="Name and namespace.")
    spec: SchedulerSpec = Field(description="What to install.")
    status: dict[str, Any] | None = Field(default=None, description="What is installed; written by the operator.")
