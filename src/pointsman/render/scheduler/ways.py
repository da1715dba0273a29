"""How a gateway is made to follow a pick: the ways, what each needs, and which one it is here. Pure.

| way | what happens | needs |
|---|---|---|
| Native | the route leads to the pool, the gateway asks the pool's picker | a gateway that knows pools |
| EndpointSlice | the same, and the pool's picker is a Service whose endpoints we keep | the same |
| RoutePatch | the same, and our route is told to ask another picker | the same, of Istio, and EnvoyFilters |
| FilterPatch | the route leads to the Service; a filter of ours asks, and its cluster obeys | Istio and EnvoyFilters |
| OwnEnvoy | the gateway is an Envoy with our own configuration | nothing |

Without an answer in `routing.way`, the first that can be had: what a gateway does by itself goes before what we do to
it. A patched route (RoutePatch) is never chosen: whatever has it has EndpointSlice, too. What cannot be done is said
with what is missing, and nothing is done in its place.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.api.scheduler import SchedulerSpec, Way

FLAG = "ENABLE_GATEWAY_API_INFERENCE_EXTENSION"
_TURN_ON = f"set {FLAG}=true in the environment of istiod, 1.28 or newer"


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What of a cluster decides about the way."""

    gateway_api: bool = False
    """Gateway and HTTPRoute are defined."""
    gateway_class: str = "istio"
    accepted: bool = False
    """The class of the gateway has a controller, which accepts it."""
    istio: bool = False
    """That controller is Istio's."""
    pools: bool = False
    """InferencePool is defined."""
    understood: bool | None = None
    """Whether the gateway's controller understands routes to pools; None before it has seen one."""
    refusal: str = ""
    """What it said of a route to a pool."""
    filters: bool = False
    """EnvoyFilter is defined."""
    split: bool = True
    """Picker and pool are in two namespaces."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The way, or why there is none."""

    way: Way | None
    reason: str
    message: str


def choose(spec: SchedulerSpec, cluster: Abilities) -> Choice:
    """Return the way for a resource that has a picker and a route."""
    routing = spec.routing
    wanted = routing.way if routing else None
    if wanted is not None:
        missing = _missing(wanted, spec, cluster)
        if missing:
            return Choice(way=None, reason="WayNotPossible", message=f"routing.way is {wanted}, and {missing}")
        return Choice(way=wanted, reason=wanted, message=f"{_WORDS[wanted]}, as routing.way says")
    pooled = routing is not None and routing.backend_type == "InferencePool"
    candidates: tuple[Way, ...] = ("Native", "EndpointSlice", "FilterPatch") if pooled else ("FilterPatch",)
    if not (cluster.gateway_api and cluster.accepted):
        candidates = ("OwnEnvoy",)
    why: dict[Way, str] = {}
    for way in candidates:
        why[way] = _missing(way, spec, cluster)
        if not why[way]:
            before = next((said for other, said in why.items() if said and other != _other(cluster)), "")
            message = f"{_WORDS[way]}: {before}" if before else _WORDS[way]
            return Choice(way=way, reason=way, message=message)
    return Choice(way=None, reason=_reason(cluster, pooled=pooled), message=_refusal(why, cluster, pooled=pooled))


def _other(cluster: Abilities) -> Way:
    """Return which of the two native ways is out of the question for no other reason than where the picker is."""
    return "Native" if cluster.split else "EndpointSlice"


def _reason(cluster: Abilities, *, pooled: bool) -> str:
    if not (cluster.gateway_api and cluster.accepted):
        return "NoGateway"
    if pooled and not cluster.pools:
        return "InferencePoolMissing"
    return "InferenceExtensionMissing" if pooled else "NobodyAsksThePicker"


def _refusal(why: Mapping[Way, str], cluster: Abilities, *, pooled: bool) -> str:
    if not pooled and "FilterPatch" in why:
        return f"routing.backendType is Service, so nobody asks the picker: {why['FilterPatch']}, or set InferencePool"
    said = [text for way, text in why.items() if way != _other(cluster)]
    return "no way to follow picks: " + "; and ".join(said)


_WORDS: Mapping[Way, str] = {
    "Native": "the gateway asks the picker of the pool by itself",
    "EndpointSlice": "the gateway asks the picker of the pool by itself, through a Service whose endpoints the "
    "operator keeps equal to the picker's Pods in another namespace",
    "RoutePatch": "an EnvoyFilter tells the route to ask the picker",
    "FilterPatch": "an EnvoyFilter adds a filter that asks the picker, for this route only, and makes the Service's "
    "cluster follow its picks",
    "OwnEnvoy": "the gateway is an Envoy with the operator's own configuration, which asks the picker",
}


def _missing(way: Way, spec: SchedulerSpec, cluster: Abilities) -> str:
    """Return what keeps a way from being taken, with what to do about it; nothing when it can be taken."""
    if way == "OwnEnvoy":
        ours = spec.gateway is not None and spec.gateway.enabled
        return "" if ours else "there is no gateway of this resource to run: enable gateway"
    if not cluster.gateway_api:
        return "the Gateway API is not installed: install its definitions"
    if not cluster.accepted:
        return f"GatewayClass {cluster.gateway_class} does not exist or is not accepted: install its controller"
    if way == "FilterPatch":
        return _no_filters(spec, cluster)
    if way == "RoutePatch" and _no_filters(spec, cluster):
        return _no_filters(spec, cluster)
    return _no_pools(way, cluster)


def _no_pools(way: Way, cluster: Abilities) -> str:
    if not cluster.pools:
        return "InferencePool is not defined: pointsman crds install, and then " + _TURN_ON
    if way == "Native" and cluster.split:
        return "picker and pool are in two namespaces: make them one, or take EndpointSlice"
    if way == "EndpointSlice" and not cluster.split:
        return "picker and pool are in one namespace, where Native does: take that"
    if cluster.understood is False:
        fix = _TURN_ON if cluster.istio else f"install a controller of class {cluster.gateway_class} that does"
        return f"the gateway does not understand routes to pools ({cluster.refusal}): {fix}"
    return ""


def _no_filters(spec: SchedulerSpec, cluster: Abilities) -> str:
    if not cluster.istio:
        return f"class {cluster.gateway_class} is not Istio's, and only Istio can be patched: use className istio"
    if not cluster.filters:
        return "EnvoyFilter is not defined: install Istio's definitions"
    if spec.envoy_filter is None or not spec.envoy_filter.enabled:
        return "EnvoyFilters are not allowed: set envoyFilter.enabled"
    return ""
