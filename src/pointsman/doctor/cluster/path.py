"""Who leads to whom: from a Gateway by a rule of a route to the model servers, and to the picker that is asked there.

Follows names only and judges nothing: a name that leads nowhere stays a name, for the checks to tell. The picker is the
one that the gateway really asks on this route when that can be seen; else the one that an EnvoyFilter names; else the
one that the pool names; else a Deployment that looks like one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pointsman.core import flags
from pointsman.core.kinds import Key, Object, key_of
from pointsman.core.numbers import whole
from pointsman.doctor import envoy
from pointsman.doctor.cluster.completions import takes_completions
from pointsman.doctor.cluster.envoyfilters import (
    GATEWAY_LABEL,
    Endpoint,
    aims_at,
    concerns_picking,
    endpoint_of_cluster,
    grpc_clusters,
    reaches,
    written_addresses,
)
from pointsman.doctor.cluster.facts import Focus, Proxy, Right
from pointsman.doctor.cluster.objects import (
    INFERENCE,
    INFERENCE_OLD,
    Objects,
    arguments,
    at,
    container_ports,
    each,
    mapping,
    number,
    selects,
    words,
)

EXT_PROC = "envoy.filters.http.ext_proc"
ANNOTATION = "networking.istio.io/ext-proc-override"
POOL_GROUPS = frozenset({INFERENCE, INFERENCE_OLD})
# Ours and today's Go picker's, and that of pickers of before.
_LEASES = ("llm-d.ai", "gateway-api-inference-extension.sigs.k8s.io")
_DEFAULT_PORTS = {"grpc-port": 9002, "grpc-health-port": 9003, "metrics-port": 9090}


@dataclass(frozen=True, kw_only=True)
class Path:
    """The way of a request."""

    gateway: Object | None = None
    own_envoy: Object | None = None
    """The Deployment of an Envoy of its own, where there is no Gateway."""
    route: Object | None = None
    rule: int = 0
    backend: Object | None = None
    """The reference of the rule to what serves, with its namespace filled in."""
    pool: Object | None = None
    service: Object | None = None
    servers: tuple[Object, ...] = ()
    """The Pods that may serve."""
    picker: Endpoint | None = None
    picker_named_by: str = ""
    picker_service: Object | None = None
    picker_pods: tuple[Object, ...] = ()
    picker_deployment: Object | None = None
    gateway_pods: tuple[Object, ...] = ()
    filters: tuple[Object, ...] = ()
    """The EnvoyFilters that reach this gateway."""
    asked: envoy.Filter | None = None
    """The filter that asks the picker, as it is on this route; None when no filter does or Envoy was not seen."""
    live_route: envoy.Route | None = None

    @property
    def rule_document(self) -> Object:
        """The rule itself."""
        rules = each(self.route, "spec", "rules")
        return rules[self.rule] if self.rule < len(rules) else {}

    @property
    def route_name(self) -> str:
        """What Istio calls the rule's route in Envoy: the rule's own name, or one made of where it stands."""
        if self.route is None:
            return ""
        key = key_of(self.route)
        return str(self.rule_document.get("name") or f"{key.namespace}.{key.name}.{self.rule}")

    @property
    def arguments(self) -> list[str]:
        """The picker's command line."""
        return arguments(self.picker_pods[0]) if self.picker_pods else arguments(_template(self.picker_deployment))

    @property
    def account(self) -> Key | None:
        """The account under which the picker runs."""
        running = self.picker_pods[0] if self.picker_pods else _template(self.picker_deployment)
        if not running or not self.home:
            return None
        return Key(self.home, str(at(running, "spec", "serviceAccountName") or "default"))

    @property
    def home(self) -> str:
        """The namespace in which the picker runs; the Service that stands for it may be in another."""
        runs = self.picker_pods[0] if self.picker_pods else self.picker_deployment
        return key_of(runs).namespace if runs else ""

    def port(self, flag: str) -> int:
        """Return the number of one of the picker's ports, by its flag; another program's by what its Pod declares."""
        said = whole(flags.value(self.arguments, flag), most=65_535)
        declared = container_ports(self.picker_pods[0]) if self.picker_pods else {}
        target = self._target(declared) if flag == "grpc-port" else 0
        known = _DEFAULT_PORTS[flag]
        return said or (target if target in declared.values() and known not in declared.values() else known)

    def _target(self, declared: Mapping[str, int]) -> int:
        """Return where the Service's port leads, as far as the Pod declares it."""
        ports = [
            one
            for one in each(self.picker_service, "spec", "ports")
            if self.picker and one.get("port") == self.picker.port
        ]
        wanted = (ports or [{}])[0].get("targetPort", (ports or [{}])[0].get("port"))
        return declared.get(str(wanted)) or (wanted if isinstance(wanted, int) else 0)

    def declares(self, flag: str) -> bool:
        """Tell whether the picker's Pod names one of the picker's ports at all, by flag or number."""
        ports = container_ports(self.picker_pods[0]).values() if self.picker_pods else ()
        return bool(flags.value(self.arguments, flag)) or _DEFAULT_PORTS[flag] in ports


def leads_to_models(objects: Objects, focus: Focus) -> list[Object]:
    """Return the Gateways that could be meant: those in focus; of them those with a pool or a picker, if any has."""
    meant = [
        one
        for one in objects.all("Gateway")
        if (not focus.namespace or key_of(one).namespace == focus.namespace)
        and (not focus.gateway or key_of(one).name == focus.gateway)
    ]
    return [one for one in meant if _has_models(objects, one)] or meant


def trace(objects: Objects, focus: Focus, proxy: Proxy | None = None) -> Path:
    """Return the way of a request through the first Gateway that could be meant."""
    gateways = leads_to_models(objects, focus)
    if not gateways:
        return _without_gateway(objects, focus, proxy)
    gateway = gateways[0]
    routes = [one for one in routes_of(objects, gateway) if not focus.route or key_of(one).name == focus.route]
    route = next((one for one in routes if _interesting(one)), routes[0] if routes else None)
    known = Path(
        gateway=gateway,
        route=route,
        rule=_rule(route),
        gateway_pods=_pods_of_gateway(objects, gateway),
        filters=tuple(one for one in objects.all("EnvoyFilter") if reaches(one, gateway)),
    )
    return _with_picker(objects, _with_servers(objects, known), proxy)


def _without_gateway(objects: Objects, focus: Focus, proxy: Proxy | None) -> Path:
    """Return the way through an Envoy that somebody runs without a Gateway, to the Pods that its picker follows."""
    own = next((one for one in objects.all("Deployment") if _is_envoy(one, focus)), None)
    if own is None:
        return Path()
    pods = tuple(pod for pod in objects.all("Pod") if _makes(own, None, (pod,), key_of(pod).namespace))
    path = _with_picker(objects, Path(own_envoy=own, gateway_pods=pods), proxy)
    namespace = flags.value(path.arguments, "pool-namespace") or key_of(own).namespace
    pool = objects.get("InferencePool", namespace, flags.value(path.arguments, "pool-name"))
    wanted = dict(
        part.split("=", 1) for part in flags.value(path.arguments, "endpoint-selector").split(",") if "=" in part
    )
    labelled = tuple(
        pod
        for pod in objects.all("Pod")
        if key_of(pod).namespace == namespace and selects(wanted, mapping(pod, "metadata", "labels"))
    )
    return replace(path, pool=pool, servers=pool_pods(objects, pool) or labelled)


def _is_envoy(deployment: Object, focus: Focus) -> bool:
    key = key_of(deployment)
    if (focus.namespace and key.namespace != focus.namespace) or (focus.gateway and key.name != focus.gateway):
        return False
    template = _template(deployment)
    images = [str(one.get("image")) for one in each(template, "spec", "containers")]
    labels = mapping(template, "metadata", "labels")
    ours = "gateway" in {labels.get("component"), labels.get("llm-d.ai/component")}
    return GATEWAY_LABEL not in labels and (ours or any("envoy" in image for image in images))


def routes_of(objects: Objects, gateway: Object) -> list[Object]:
    """Return the HTTPRoutes that name a Gateway as parent."""
    return [
        route for route in objects.all("HTTPRoute") if any(_is_parent(ref, route, gateway) for ref in parents(route))
    ]


def parents(route: Object) -> list[Object]:
    """Return the references of a route to its parents."""
    return each(route, "spec", "parentRefs")


def _is_parent(reference: Object, route: Object, gateway: Object) -> bool:
    namespace = reference.get("namespace") or key_of(route).namespace
    kind = reference.get("kind", "Gateway")
    return kind == "Gateway" and Key(namespace, str(reference.get("name"))) == key_of(gateway)


def is_pool(reference: Object) -> bool:
    """Tell whether a rule leads to a pool."""
    return reference.get("kind") == "InferencePool" or reference.get("group") in POOL_GROUPS


def service_at(objects: Objects, address: str) -> Object | None:
    """Return the Service whose own address this is."""
    host = address.rpartition(":")[0]
    return next((one for one in objects.all("Service") if at(one, "spec", "clusterIP") == host), None)


def behind(objects: Objects, service: Object | None) -> tuple[Object, ...]:
    """Return the Pods that a Service selects."""
    if service is None:
        return ()
    selector, namespace = mapping(service, "spec", "selector"), key_of(service).namespace
    return tuple(
        pod
        for pod in objects.all("Pod")
        if key_of(pod).namespace == namespace and selects(selector, mapping(pod, "metadata", "labels"))
    )


def rights_needed(path: Path, objects: Objects) -> list[Right]:
    """Return what the picker's account must be allowed: to follow Pods, its pool where it has one, and to lead."""
    named = flags.value(path.arguments, "pool-name")
    namespace = flags.value(path.arguments, "pool-namespace") or path.home
    if path.account is None or not namespace:
        return []
    followed = [("", "pods")]
    if named:
        followed.append((flags.value(path.arguments, "pool-group") or INFERENCE, "inferencepools"))
        served = {str(at(one, "metadata", "name")) for one in objects.all("CustomResourceDefinition")}
        kinds = ("inferenceobjectives", "inferencemodelrewrites")
        groups = (INFERENCE_OLD, "llm-d.ai")
        followed += [(group, kind) for group in groups for kind in kinds if f"{kind}.{group}" in served]
    rights = [Right(verb, *what, namespace) for what in followed for verb in ("list", "watch")]
    if flags.switch(path.arguments, "ha-enable-leader-election", default=False):
        rights += _rights_to_lead(path, namespace=namespace, pool=named)
    return rights


def _rights_to_lead(path: Path, *, namespace: str, pool: str) -> list[Right]:
    """Return what an election needs: its lease is the pool's or the Deployment's, and roles may name just that."""
    deployment = key_of(path.picker_deployment).name if path.picker_deployment else ""
    names = tuple(f"epp-{namespace}-{pool or deployment}.{end}" for end in _LEASES)
    lease = ("coordination.k8s.io", "leases", namespace)
    return [Right("create", *lease), *(Right(verb, *lease, names) for verb in ("get", "update"))]


def _has_models(objects: Objects, gateway: Object) -> bool:
    return any(_interesting(route) for route in routes_of(objects, gateway)) or any(
        concerns_picking(one)
        and aims_at(one, gateway)
        and bool(each(one, "spec", "targetRefs") or mapping(one, "spec", "workloadSelector"))
        for one in objects.all("EnvoyFilter")
    )


def _interesting(route: Object) -> bool:
    rules = each(route, "spec", "rules")
    if ANNOTATION in mapping(route, "metadata", "annotations"):
        return True
    return any(is_pool(one) for rule in rules for one in each(rule, "backendRefs")) or any(
        one.get("type") == "ExtensionRef" for rule in rules for one in each(rule, "filters")
    )


def _rule(route: Object | None) -> int:
    """Return the rule to follow: to a pool, and of those the first that is for completions, which a probe can ask."""
    rules = each(route, "spec", "rules")
    pooled = [n for n, rule in enumerate(rules) if any(map(is_pool, each(rule, "backendRefs")))]
    return next((n for n in pooled if takes_completions(rules[n])), pooled[0] if pooled else 0)


def _pods_of_gateway(objects: Objects, gateway: Object) -> tuple[Object, ...]:
    key = key_of(gateway)
    return tuple(
        pod
        for pod in objects.all("Pod")
        if key_of(pod).namespace == key.namespace and at(pod, "metadata", "labels", GATEWAY_LABEL) == key.name
    )


def _with_servers(objects: Objects, path: Path) -> Path:
    references = each(path.rule_document, "backendRefs")
    if path.route is None or not references:
        return path
    reference = references[-1] if len([one for one in references if is_pool(one)]) > 1 else references[0]
    namespace = str(reference.get("namespace") or key_of(path.route).namespace)
    reference = {**reference, "namespace": namespace}
    name = str(reference.get("name"))
    if is_pool(reference):
        pool = objects.get("InferencePool", namespace, name)
        return replace(path, backend=reference, pool=pool, servers=pool_pods(objects, pool))
    service = objects.get("Service", namespace, name)
    return replace(path, backend=reference, service=service, servers=behind(objects, service))


def pool_pods(objects: Objects, pool: Object | None) -> tuple[Object, ...]:
    """Return the Pods that a pool selects."""
    if pool is None:
        return ()
    selector = mapping(pool, "spec", "selector", "matchLabels") or {
        name: value for name, value in mapping(pool, "spec", "selector").items() if isinstance(value, str)
    }
    namespace = key_of(pool).namespace
    return tuple(
        pod
        for pod in objects.all("Pod")
        if key_of(pod).namespace == namespace and selects(selector, mapping(pod, "metadata", "labels"))
    )


def _with_picker(objects: Objects, path: Path, proxy: Proxy | None) -> Path:
    live, asked = _asked(path, proxy)
    endpoint, source = _picker(objects, path, asked)
    service = objects.get("Service", endpoint.namespace, endpoint.name) if endpoint else None
    pods = behind(objects, service) or _by_slices(objects, service)
    home = key_of(pods[0]).namespace if pods else endpoint.namespace if endpoint else ""
    deployment = next((d for d in objects.all("Deployment") if _makes(d, service, pods, home)), None)
    return replace(
        path,
        live_route=live,
        asked=asked,
        picker=endpoint,
        picker_named_by=source,
        picker_service=service,
        picker_pods=pods,
        picker_deployment=deployment,
    )


def _asked(path: Path, proxy: Proxy | None) -> tuple[envoy.Route | None, envoy.Filter | None]:
    """Return the route in Envoy, and the filter as it is there; without a Gateway, the first route that asks."""
    if proxy is None:
        return None, None
    routes = [one for one in proxy.routes if path.own_envoy is not None or one.name == path.route_name]
    pairs = [(route, found) for route in routes for one in proxy.filters if (found := envoy.asked_by(route, one))]
    if pairs:
        return pairs[0]
    return (routes[0] if routes else None), None


def _picker(objects: Objects, path: Path, asked: envoy.Filter | None) -> tuple[Endpoint | None, str]:
    if asked and (found := _of_cluster(objects, asked.cluster, path)):
        return found, "the gateway's configuration"
    for one in path.filters:
        for cluster in grpc_clusters(one):
            if found := _of_cluster(objects, cluster, path):
                return found, f"EnvoyFilter {key_of(one)}"
    reference = mapping(path.pool, "spec", "endpointPickerRef") or mapping(path.pool, "spec", "extensionRef")
    if path.pool is not None and reference.get("name"):
        port = number(reference, "port", "number") or number(reference, "portNumber", otherwise=9002)
        return Endpoint(key_of(path.pool).namespace, str(reference["name"]), port), named_pool(path.pool)
    return _guess(objects, path), "its Deployment"


def named_pool(pool: Object) -> str:
    """Return how a pool is spoken of."""
    return f"InferencePool {key_of(pool)}"


def _of_cluster(objects: Objects, name: str, path: Path) -> Endpoint | None:
    if found := endpoint_of_cluster(name):
        return found
    for address in written_addresses(path.filters, name):
        service = service_at(objects, address)
        if service is not None:
            key = key_of(service)
            return Endpoint(key.namespace, key.name, whole(address.rpartition(":")[2], most=65_535) or 9002)
    return None


def _guess(objects: Objects, path: Path) -> Endpoint | None:
    """Return the Service of a Deployment that is started like a picker, near the route."""
    near = {key_of(one).namespace for one in (path.route, path.gateway, path.own_envoy) if one is not None}
    near |= {str(path.backend["namespace"])} if path.backend else set()
    for deployment in objects.all("Deployment"):
        line = arguments(_template(deployment))
        if key_of(deployment).namespace in near and any(
            flags.value(line, name) for name in ("pool-name", "endpoint-selector")
        ):
            labels = mapping(deployment, "spec", "template", "metadata", "labels")
            for service in objects.all("Service"):
                key = key_of(service)
                if key.namespace == key_of(deployment).namespace and selects(
                    mapping(service, "spec", "selector"), labels
                ):
                    return Endpoint(key.namespace, key.name, _first_port(service))
    return None


def _first_port(service: Object) -> int:
    numbers = [number(one, "port") for one in each(service, "spec", "ports")]
    return 9002 if 9002 in numbers or not numbers else numbers[0]


def _by_slices(objects: Objects, service: Object | None) -> tuple[Object, ...]:
    """Return the Pods behind a Service without a selector, by the addresses of its slices."""
    if service is None or mapping(service, "spec", "selector"):
        return ()
    known = set(slice_addresses(objects, service))
    return tuple(pod for pod in objects.all("Pod") if at(pod, "status", "podIP") in known)


def slices(objects: Objects, service: Object) -> list[Object]:
    """Return the EndpointSlices of a Service."""
    key = key_of(service)
    return [
        one
        for one in objects.all("EndpointSlice")
        if key_of(one).namespace == key.namespace
        and at(one, "metadata", "labels", "kubernetes.io/service-name") == key.name
    ]


def slice_addresses(objects: Objects, service: Object, *, ready: bool = True) -> list[str]:
    """Return the addresses behind a Service; those that are ready, or all."""
    return [
        address
        for one in slices(objects, service)
        for endpoint in each(one, "endpoints")
        if not ready or at(endpoint, "conditions", "ready") is not False
        for address in words(endpoint, "addresses")
    ]


def _makes(deployment: Object, service: Object | None, pods: tuple[Object, ...], namespace: str) -> bool:
    if key_of(deployment).namespace != namespace:
        return False
    wanted = mapping(deployment, "spec", "selector", "matchLabels")
    if pods:
        return selects(wanted, mapping(pods[0], "metadata", "labels"))
    template = mapping(deployment, "spec", "template", "metadata", "labels")
    return service is not None and selects(mapping(service, "spec", "selector"), template)


def _template(deployment: Object | None) -> Object:
    return mapping(deployment, "spec", "template")
