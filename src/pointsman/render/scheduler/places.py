"""What the parts of an install are called and where they are: the scheduler's namespace, the model servers', the pool's
and the gateway's, which may be four.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pointsman.api.scheduler import (
    DECODERS,
    ProxyService,
    Routing,
    SchedulerGateway,
    SchedulerInstall,
    SchedulerPicker,
    SchedulerSpec,
)
from pointsman.render.manifests.names import COMPONENT, NAME, Names
from pointsman.render.manifests.objects import Object

INSTALL = "sim.llm-d.io/schedulerInstall"
HOME = "sim.llm-d.io/schedulerNamespace"
# Other words than a stack's own: one of the same name may be in the namespace.
PICKER_COMPONENT, GATEWAY_COMPONENT = "scheduler", "scheduler-gateway"


@dataclass(frozen=True, kw_only=True)
class Places:
    """Names and namespaces of one install."""

    home: str
    """The namespace of the resource."""
    here: Names
    """The scheduler's namespace: picker, route."""
    there: Names
    """The model servers' namespace."""
    pools: Names
    """The pool's namespace."""
    gates: Names
    """The gateway's namespace."""
    picker: str
    pool: str
    gateway: str
    route: str
    service: str
    selector: Mapping[str, str]
    port: int
    """Port of the proxy Service."""
    target: int
    """Port of the Pods behind it."""

    @property
    def is_split(self) -> bool:
        """Whether the picker is in another namespace than the pool, which can only name one in its own."""
        return self.here.namespace != self.pools.namespace

    @property
    def probe(self) -> str:
        """The route that asks whether the gateway understands pools, while ours does without."""
        return f"{self.route}-probe"

    @property
    def mark(self) -> str:
        """By what our watch knows the Pods."""
        return self.here.mark

    @property
    def picker_labels(self) -> dict[str, str]:
        return {"app": self.picker, COMPONENT: PICKER_COMPONENT, "component": "epp"}

    @property
    def picker_selector(self) -> dict[str, str]:
        return {"app": self.picker, NAME: self.here.stack}

    def marked(self, document: Object) -> Object:
        """Return the object with the labels by which people find what an install has in other namespaces."""
        metadata = document["metadata"]
        labels = {**metadata.get("labels", {}), INSTALL: self.here.stack, HOME: self.home}
        return {**document, "metadata": {**metadata, "labels": labels}}


def mark_of(name: str) -> str:
    """Return the value that Pods of an install carry; no resource can have such a name."""
    return f"schedulerinstall_{name}"


def places_of(resource: SchedulerInstall) -> Places:
    """Return where everything of the resource is, with all that was left out filled in."""
    spec, name = resource.spec, resource.metadata.name
    proxy, picker = spec.proxy_service or ProxyService(), spec.epp or SchedulerPicker()
    routing, gateway = spec.routing or Routing(), spec.gateway or SchedulerGateway()
    home = resource.metadata.namespace
    here = Names(
        stack=name,
        namespace=spec.scheduler_namespace or home,
        suffix="",
        service=proxy.name,
        route=routing.http_route_name,
        mark=mark_of(name),
    )
    parent, pool = routing.parent_gateway, routing.inference_pool
    pools = (pool and pool.namespace) or picker.pool_namespace or spec.simulator_namespace
    target = (pool and pool.port) or proxy.target_port or proxy.port
    return Places(
        home=home,
        here=here,
        there=replace(here, namespace=spec.simulator_namespace),
        pools=replace(here, namespace=pools),
        gates=replace(here, namespace=(parent and parent.namespace) or here.namespace),
        picker=picker.name,
        pool=(pool and pool.name) or picker.pool_name,
        gateway=(parent and parent.name) or gateway.name,
        route=routing.http_route_name,
        service=proxy.name,
        selector=proxy.selector or DECODERS,
        port=proxy.port,
        target=target,
    )


def picks(spec: SchedulerSpec) -> bool:
    """Tell whether somebody picks, and there is a way from a gateway on which to obey."""
    return bool(spec.epp and spec.epp.enabled and spec.routing and spec.routing.enabled)
