"""The EnvoyFilter of an install: what of Istio's gateway is changed, and for which routes.

Three things, each by itself: forget what clients forged, make the gateway ask and obey, notice a picker that is dead
or hung. The first two are on for our own routes and no other: a filter in the chain does nothing, and the route's own
entry says what it does. An entry of a route is always complete, because Istio replaces it as a whole; and a route is
known by `namespace.name.rule`, which holds only while its rules have no names.

Invariants: Istio's own ext_proc filter is never touched, since replacing it costs the metadata by which picks arrive;
our filter comes right before the router, and what forgets comes first of all.
"""

from collections.abc import Sequence

from pointsman.api.published import FailureMode
from pointsman.api.scheduler import Way
from pointsman.render.envoy import clusters, filters
from pointsman.render.envoy.gateway import PickerPulse
from pointsman.render.envoy.types import duration, typed
from pointsman.render.manifests import objects
from pointsman.render.manifests.network import MADE_BY_A_GATEWAY
from pointsman.render.manifests.objects import Object
from pointsman.render.scheduler.places import Places

FORGET = "llm-d.forget-forged-headers"
_MANAGER = "envoy.filters.network.http_connection_manager"
_HOW_LONG = 1000.0  # as Istio has it; in full duplex Envoy has no other time limit, and the picker has its own


def envoy_filter(name: str, patches: Sequence[Object], *, places: Places, selector: dict[str, str] | None) -> Object:
    """Return the EnvoyFilter, which has to be where the gateway is."""
    head = objects.head("EnvoyFilter", name, names=places.gates, labels={}, api="networking.istio.io/v1alpha3")
    labels = selector or {MADE_BY_A_GATEWAY: places.gateway}
    return {**head, "spec": {"workloadSelector": {"labels": labels}, "configPatches": list(patches)}}


def route_names(document: Object) -> list[str]:
    """Return what Istio calls the routes of an HTTPRoute, one for each rule."""
    metadata = document["metadata"]
    return [f"{metadata['namespace']}.{metadata['name']}.{n}" for n in range(len(document["spec"]["rules"]))]


def forget(routes: Sequence[str]) -> list[Object]:
    """Return the patches that remove from requests what only the gateway and the picker may say."""
    idle = {
        "name": FORGET,
        "typed_config": typed("extensions.filters.http.header_mutation.v3.HeaderMutation", mutations={}),
    }
    entry = typed(
        "extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute", mutations=filters.forged_headers()
    )
    return [_http_filter("INSERT_FIRST", idle), *(_entry(route, FORGET, entry) for route in routes)]


def ask(way: Way, routes: Sequence[str], *, cluster: str, own: str, mode: FailureMode) -> list[Object]:
    """Return the patches that make the gateway ask the picker for these routes, where Istio does not by itself."""
    if way == "RoutePatch":
        return [_entry(route, filters.EXT_PROC, _complete(cluster, mode)) for route in routes]
    asking = {
        "name": own,
        "disabled": True,  # but for routes with an entry of this name
        "typed_config": typed(
            "extensions.filters.http.ext_proc.v3.ExternalProcessor",
            grpc_service={"envoy_grpc": {"cluster_name": cluster}},
            failure_mode_allow=mode == "FailOpen",
            message_timeout=duration(_HOW_LONG),
            processing_mode={"request_header_mode": "SKIP", "response_header_mode": "SKIP"},
            metadata_options=filters.METADATA,
        ),
    }
    before_router = {"subFilter": {"name": "envoy.filters.http.router"}}
    return [
        _http_filter("INSERT_BEFORE", asking, **before_router),
        *(_entry(route, own, _complete(cluster, mode)) for route in routes),
    ]


def obey(service: str, port: int) -> Object:
    """Return the patch that makes Istio's own cluster of a Service follow picks."""
    match = {"context": "GATEWAY", "cluster": {"service": service, "portNumber": port}}
    value = {"load_balancing_policy": clusters.following_picks("round_robin")}
    return {"applyTo": "CLUSTER", "match": match, "patch": {"operation": "MERGE", "value": value}}


def guard(service: str, port: int, *, health: bool) -> Object:
    """Return the patch by which a picker's cluster notices that the picker is dead or hung."""
    match = {"context": "GATEWAY", "cluster": {"service": service, "portNumber": port}}
    value = clusters.noticing(PickerPulse(), health=health)
    return {"applyTo": "CLUSTER", "match": match, "patch": {"operation": "MERGE", "value": value}}


def _complete(cluster: str, mode: FailureMode) -> Object:
    """Return an entry of a route with everything that asking needs: what it leaves out would not be there at all."""
    return typed(
        "extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
        overrides={
            "grpc_service": {"envoy_grpc": {"cluster_name": cluster}},
            "failure_mode_allow": mode == "FailOpen",
            "processing_mode": filters.MODES[mode],
        },
    )


def _entry(route: str, filter_: str, entry: Object) -> Object:
    match = {"context": "GATEWAY", "routeConfiguration": {"vhost": {"route": {"name": route}}}}
    value = {"typed_per_filter_config": {filter_: entry}}
    return {"applyTo": "HTTP_ROUTE", "match": match, "patch": {"operation": "MERGE", "value": value}}


def _http_filter(operation: str, value: Object, **where: Object) -> Object:
    chain = {"filterChain": {"filter": {"name": _MANAGER, **where}}}
    return {
        "applyTo": "HTTP_FILTER",
        "match": {"context": "GATEWAY", "listener": chain},
        "patch": {"operation": operation, "value": value},
    }
