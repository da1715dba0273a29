"""How requests reach a service: an HTTPRoute on somebody's Gateway, or an Envoy of our own. Pure.

Where the Gateway API is defined a route is made for the Gateways that the service names, or for the default one. Where
it is not, no route can be: then the service gets a gateway of its own, so that `route: {}` means something on every
cluster. It serves the inference API at the root and under the path that the route would have.
"""

from collections.abc import Mapping
from typing import Any

from pointsman.api.llminferenceservice import LLMSpec
from pointsman.api.simulator import PICKER_PORTS
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.gateway import FailureMode, Gateway, ServicePool
from pointsman.render.manifests import objects, proxy
from pointsman.render.serving import parts
from pointsman.render.serving.names import GATEWAY, ROUTER
from pointsman.render.serving.parts import Object
from pointsman.render.serving.presets import PORT, PresetContext

GATEWAY_API = "gateway.networking.k8s.io/v1"
CHECKSUM = "serving.kserve.io/config-checksum"
HTTP = 80


def http_route(context: PresetContext, spec: LLMSpec) -> list[Object]:
    """Return the HTTPRoute, if the service has one and the cluster knows what that is."""
    wanted = _spec(spec)
    if wanted is None or not context.facts.gateway_api:
        return []
    head = parts.head("HTTPRoute", context.names.route, names=context.names, labels=ROUTER, api=GATEWAY_API)
    rules = [_ruled(context, spec, rule) for rule in wanted.get("rules") or ()]
    return [{**head, "spec": {**wanted, "parentRefs": parents(context, spec), "rules": rules}}]


def parents(context: PresetContext, spec: LLMSpec) -> list[Object]:
    """Return the Gateways of the route: those that the service names go before those that a preset does."""
    refs = spec.router.gateway.refs if spec.router and spec.router.gateway else None
    if refs:
        kind = {"group": "gateway.networking.k8s.io", "kind": "Gateway"}
        return [
            {
                **kind,
                "name": each.name,
                "namespace": each.namespace or context.names.namespace,
                **({"sectionName": each.section_name} if each.section_name else {}),
            }
            for each in refs
        ]
    return list((_spec(spec) or {}).get("parentRefs") or ())


def has_own_gateway(context: PresetContext, spec: LLMSpec) -> bool:
    """Tell whether the service gets an Envoy of its own."""
    return bool(spec.router and spec.router.route is not None) and not context.facts.gateway_api


def own_gateway(
    context: PresetContext, *, picks: bool, picker_tls: bool, https: bool, failure_mode: FailureMode
) -> list[Object]:
    """Return the Envoy: its configuration, Service and Deployment."""
    names = context.names
    gateway = envoy(context, picks=picks, picker_tls=picker_tls, https=https, failure_mode=failure_mode)
    data = proxy.settings(gateway)
    pod = proxy.envoy_pod(
        names.gateway, image=context.settings.gateway_image, pull="IfNotPresent", resources=None, facts=context.facts
    )
    port = objects.port("http", HTTP, proxy.LISTEN, protocol="http")
    return [
        {**parts.head("ConfigMap", names.gateway, names=names, labels=GATEWAY), "data": data},
        parts.deployment(
            names.gateway,
            names=names,
            labels=GATEWAY,
            selector=names.gateway_pods(),
            pod=pod,
            replicas=1,
            rolling=parts.NEVER_AWAY,
            annotations={CHECKSUM: objects.digest(data)},
        ),
        parts.service(names.gateway, names=names, labels=GATEWAY, selector=names.gateway_pods(), ports=[port]),
    ]


def envoy(context: PresetContext, *, picks: bool, picker_tls: bool, https: bool, failure_mode: FailureMode) -> Gateway:
    """Return what our own Envoy does."""
    names = context.names
    where = f"{names.namespace}.svc.{context.facts.domain}"
    return Gateway(
        listen=Address("0.0.0.0", proxy.LISTEN),  # noqa: S104 - a Pod serves on all its addresses
        admin=Address("127.0.0.1", proxy.ADMIN),
        ready=Address("0.0.0.0", proxy.READY),  # noqa: S104 - kubelet asks the Pod's address
        pickers=(Address(f"{names.picker_service}.{where}", PICKER_PORTS["grpc"]),) if picks else (),
        picker_tls=picker_tls,
        picker_health_port=None if picker_tls else PICKER_PORTS["health"],
        pool=ServicePool(service=Address(f"{names.pods}.{where}", PORT)),
        tls_pool=https,
        prefix=names.prefix,
        failure_mode=failure_mode,
    )


def own_url(context: PresetContext) -> str:
    """Return where our own gateway serves the service."""
    names = context.names
    return f"http://{names.gateway}.{names.namespace}.svc.{context.facts.domain}{names.prefix}"


def _spec(spec: LLMSpec) -> Mapping[str, Any] | None:
    http = spec.router.route.http if spec.router and spec.router.route else None
    return http.spec if http else None


def _ruled(context: PresetContext, spec: LLMSpec, rule: Mapping[str, Any]) -> Object:
    return {**rule, "backendRefs": [_backend(context, spec, each) for each in rule.get("backendRefs") or ()]}


def _backend(context: PresetContext, spec: LLMSpec, reference: Mapping[str, Any]) -> Object:
    """Return a backend as it is on this cluster: our pool is there if the picker is, and the definition."""
    names = context.names
    if (reference.get("kind"), reference.get("name")) != ("InferencePool", names.pool):
        return dict(reference)
    scheduler = spec.router.scheduler if spec.router else None
    given = scheduler.pool.ref if scheduler and scheduler.pool else None
    if scheduler is not None and given is not None and given.name:
        return {**reference, "name": given.name}
    if scheduler is not None and context.facts.inference_pool:
        return {**reference, "group": "inference.networking.k8s.io"}
    rest = {name: value for name, value in reference.items() if name not in {"group", "kind", "name", "port"}}
    return {"group": "", "kind": "Service", "name": names.workload_service, "port": PORT, **rest}
