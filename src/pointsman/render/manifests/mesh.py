"""What of a stack is said to others' controllers: Istio's DestinationRule, and Gateway and HTTPRoute of the Gateway
API.

Istio makes a Deployment and a Service of a Gateway, named after it and its class; replicas and image reach it by a
ConfigMap of overlays. A route leads to the InferencePool when there is a picker and the definition, since only then
does the mesh ask the picker; else to the Service. It has the same paths as a gateway that is our own Envoy (`paths`).
"""

from collections.abc import Sequence

from pointsman.api.simulator import GatewayInstance, LegacyGateway, LoadBalancing, ServiceConfig, SimulatorDeployment
from pointsman.core.documents import to_yaml
from pointsman.render.envoy.paths import INFERENCE
from pointsman.render.manifests import objects
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.names import COMPONENT, Names
from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.picker import POOL_GROUP
from pointsman.render.manifests.policy import ISTIO
from pointsman.render.manifests.proxy import IMAGES

GATEWAY_API = "gateway.networking.k8s.io/v1"
# Telemetry of scheduler gateways is selected by this label, which no controller sets by itself.
GATEWAY_LABEL = "app.kubernetes.io/gateway"
_MATCHES = 8  # of one rule, in the oldest Gateway API that is served as v1
SERVICE_TYPE = "networking.istio.io/service-type"
_LABELS = {COMPONENT: "gateway", "component": "gateway"}


def destination_rule(balancing: LoadBalancing, *, names: Names, facts: Facts) -> Object:
    """Return the rule that sets the algorithm for callers inside the mesh."""
    policy: Object = {"loadBalancer": {"simple": balancing.algorithm}}
    if balancing.connection_pool is not None:
        limits = balancing.connection_pool.model_dump(by_alias=True)
        policy["connectionPool"] = {"http": limits}
    return traffic_rule(f"{names.service}-lb", names.service, policy, names=names, facts=facts)


def traffic_rule(name: str, service: str, policy: Object, *, names: Names, facts: Facts) -> Object:
    """Return a DestinationRule for a Service of the namespace."""
    head = objects.head("DestinationRule", name, names=names, labels={}, api="networking.istio.io/v1beta1")
    host = f"{service}.{names.namespace}.svc.{facts.domain}"
    return {**head, "spec": {"host": host, "trafficPolicy": policy}}


def istio_gateway(
    resource: SimulatorDeployment, instance: GatewayInstance, *, names: Names, facts: Facts
) -> list[Object]:
    """Return the Gateway that Istio turns into Pods, its overlays and its route."""
    container = {"name": "istio-proxy", "image": instance.image or IMAGES["istio"]}
    container |= objects.resources(instance.resources)
    pod = {"containers": [container], **objects.resource_claims(container)}
    overlay = {"spec": {"replicas": instance.replicas, "template": {"spec": pod}}}
    data = {
        "deployment": to_yaml(overlay),
        "service": to_yaml({"spec": {"type": "ClusterIP"}}),
    }
    options = objects.config_map(f"{names.istio_gateway}-options", names=names, labels=_LABELS, data=data)
    parameters = {"group": "", "kind": "ConfigMap", "name": options["metadata"]["name"]}
    gateway = _gateway(
        names.gateway, port=instance.port, class_name=ISTIO, names=names, infrastructure={"parametersRef": parameters}
    )
    return [options, gateway, _route(resource, names.gateway, names=names, facts=facts)]


def legacy_gateway(
    resource: SimulatorDeployment, wanted: LegacyGateway, *, names: Names, facts: Facts, outside: bool
) -> list[Object]:
    """Return the Gateway and route of the old block; its Service is of a type for the `outside` only when it may be."""
    gateway = _gateway(names.route, port=80, class_name=wanted.class_name, names=names, infrastructure={})
    if wanted.class_name == ISTIO and not outside:
        gateway["metadata"]["annotations"] = {SERVICE_TYPE: "ClusterIP"}  # Istio's own default is LoadBalancer
    return [gateway, _route(resource, names.route, names=names, facts=facts)]


def _gateway(name: str, *, port: int, class_name: str, names: Names, infrastructure: Object) -> Object:
    listener = {
        "name": "http",
        "port": port,
        "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": "Same"}},
    }
    return {
        **objects.head("Gateway", name, names=names, labels=_LABELS, api=GATEWAY_API),
        "spec": {
            "gatewayClassName": class_name,
            "infrastructure": {"labels": names.labels(**_LABELS, **{GATEWAY_LABEL: name}), **infrastructure},
            "listeners": [listener],
        },
    }


def path_rules(paths: Sequence[str], backend: Object) -> list[Object]:
    """Return the rules of an HTTPRoute that lead these paths to a backend, and no others."""
    # An answer may stream for as long as it likes.
    rule = {"backendRefs": [backend], "timeouts": {"request": "0s"}}
    matches = [{"path": {"type": "PathPrefix", "value": path}} for path in paths]
    return [{"matches": matches[n : n + _MATCHES], **rule} for n in range(0, len(matches), _MATCHES)]


def _route(resource: SimulatorDeployment, name: str, *, names: Names, facts: Facts) -> Object:
    rules = path_rules(INFERENCE, _backend(resource, names=names, facts=facts))
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name}
    return {
        **objects.head("HTTPRoute", name, names=names, labels=_LABELS, api=GATEWAY_API),
        "spec": {"parentRefs": [parent], "rules": rules},
    }


def _backend(resource: SimulatorDeployment, *, names: Names, facts: Facts) -> Object:
    spec = resource.spec
    if facts.inference_pool and spec.epp is not None and spec.epp.enabled:
        return {"group": POOL_GROUP, "kind": "InferencePool", "name": names.pool, "weight": 1}
    number = (spec.service or ServiceConfig()).port
    return {"group": "", "kind": "Service", "name": names.service, "port": number, "weight": 1}
