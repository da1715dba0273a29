"""What the gateway's Envoy really does on this route: whom it asks, when, in which modes, and whether it listens."""

from collections.abc import Iterator

from pointsman.core.kinds import Object, key_of
from pointsman.doctor import envoy
from pointsman.doctor.cluster.case import Case
from pointsman.doctor.cluster.envoyfilters import concerns_picking, patches
from pointsman.doctor.cluster.objects import at, kind_of, pod_ready
from pointsman.doctor.cluster.patches import DUPLEX
from pointsman.doctor.cluster.path import is_pool
from pointsman.doctor.findings import Finding, failed, ok, skipped, warned
from pointsman.doctor.repairs import Repair

_ISTIO_ADMIN = 15000


def envoy_answers(case: Case) -> Finding:
    """Whether the gateway can be looked into."""
    name = "the gateway's Envoy can be asked"
    if not case.path.gateway_pods:
        return skipped(name)
    if case.proxy is not None:
        return ok(name, case.proxy.admin)
    pod = key_of(case.path.gateway_pods[0])
    cause = "its admin port cannot be reached from here: what follows is judged by objects and probes alone"
    fix = (
        f"kubectl port-forward -n {pod.namespace} pod/{pod.name} {_ISTIO_ADMIN} & "
        f"pointsman doctor --envoy http://127.0.0.1:{_ISTIO_ADMIN}"
    )
    return warned(name, case.cluster.proxy_why or "no answer", cause=cause, fix=fix)


def configuration_is_accepted(case: Case) -> Finding:
    """Whether Envoy took what it was sent last."""
    name = "Envoy accepts its configuration"
    if case.proxy is None:
        return skipped(name)
    if case.proxy.rejected:
        cause = "it goes on with what it had before: nothing that was changed since has any effect"
        return failed(name, case.proxy.rejected[0], cause=cause, fix=_list_filters(case))
    return ok(name, "nothing was refused")


def route_is_live(case: Case) -> Finding:
    """Whether Envoy has the route."""
    name = "Envoy has the route"
    if case.proxy is None or case.path.route is None:
        return skipped(name)
    if case.path.live_route is None and case.istio:
        there = ", ".join(sorted({one.name for one in case.proxy.routes if one.name})) or "none"
        key = key_of(case.path.route)
        evidence = f"no route {case.path.route_name}; it has: {there}"
        cause = "the controller left the rule out, or has not sent it yet: requests get 404"
        return failed(name, evidence, cause=cause, fix=f"kubectl describe httproute -n {key.namespace} {key.name}")
    return ok(name, case.path.route_name)


def filter_is_there(case: Case) -> Finding:
    """Whether anything asks a picker at all."""
    name = "the gateway has a filter that asks a picker"
    if case.proxy is None:
        return skipped(name)
    if not case.proxy.filters:
        cause = (
            "no request is shown to a picker. Istio adds the filter for routes to an InferencePool; for a Service an "
            "EnvoyFilter must INSERT_BEFORE the router"
        )
        return failed(name, "config_dump has no ExternalProcessor", cause=cause, fix=_to_the_pool(case))
    return ok(name, ", ".join(sorted({one.name for one in case.proxy.filters})))


def filter_is_in_order(case: Case) -> Finding:
    """Whether the picker is asked before the request is sent."""
    name = "the filter comes before the router"
    cause = "the router ends the chain: whatever comes after it is refused by Envoy, or asked when it is too late"
    for owner, place, patch in _filter_patches(case):
        beside = at(patch, "match", "listener", "filterChain", "filter", "subFilter", "name")
        if at(patch, "patch", "operation") == "INSERT_AFTER" and beside == envoy.ROUTER:
            told = f"EnvoyFilter {key_of(owner)}, patch {place} is an INSERT_AFTER {envoy.ROUTER}"
            return failed(name, told, cause=cause, fix=_insert_before(owner, place))
    if case.proxy is None or not case.proxy.filters:
        return skipped(name)
    for one in case.proxy.filters:
        if envoy.ROUTER not in one.after:
            told = f"{one.name} on listener {one.listener} is followed by {', '.join(one.after) or 'nothing'}"
            mine = [(o, n) for o, n, patch in _filter_patches(case) if at(patch, "patch", "value", "name") == one.name]
            return failed(name, told, cause=cause, fix=_insert_before(*mine[0]) if mine else _list_filters(case))
    return ok(name, "it does")


def _filter_patches(case: Case) -> Iterator[tuple[Object, int, Object]]:
    for owner in filter(concerns_picking, case.path.filters):
        for place, patch in patches(owner):
            if patch.get("applyTo") == "HTTP_FILTER":
                yield owner, place, patch


def _insert_before(owner: Object, place: int) -> Repair:
    manager = {"name": "envoy.filters.network.http_connection_manager", "subFilter": {"name": envoy.ROUTER}}
    match = {"context": "GATEWAY", "listener": {"filterChain": {"filter": manager}}}
    body = [
        {"op": "add", "path": f"/spec/configPatches/{place}/match", "value": match},
        {"op": "replace", "path": f"/spec/configPatches/{place}/patch/operation", "value": "INSERT_BEFORE"},
    ]
    return Repair(kind=kind_of(owner), key=key_of(owner), how="json", body=body)


def route_asks(case: Case) -> Finding:
    """Whether the filter is on for this route."""
    name = "the route asks the picker"
    if case.proxy is None or not case.proxy.filters or case.path.live_route is None:
        return skipped(name)
    if case.path.asked is None:
        names = ", ".join(sorted({one.name for one in case.proxy.filters}))
        cause = (
            "the filter is off unless a route turns it on, and this one has no entry for it: requests are spread "
            "evenly and nothing fails"
        )
        return failed(
            name, f"route {case.path.route_name} says nothing about {names}", cause=cause, fix=_list_filters(case)
        )
    return ok(name, f"{case.path.asked.name}, cluster {case.path.asked.cluster}")


def modes_are_right(case: Case) -> Finding:
    """Whether the picker sees the request's body and may answer after it."""
    name = "the route's modes are right"
    one = case.path.asked
    if one is None:
        return skipped(name)
    headers, body = one.modes["request_header_mode"], one.modes["request_body_mode"]
    if headers not in {"SEND", "DEFAULT"}:
        cause = "the picker is not asked, or too late: its pick goes with the answer to the headers"
        return failed(name, f"request_header_mode is {headers}", cause=cause, fix=_list_filters(case))
    if body != DUPLEX:
        cause = f"the picker decides by the body, and only {DUPLEX} sends it before the headers are answered"
        return failed(name, f"request_body_mode is {body}", cause=cause, fix=_list_filters(case))
    if one.modes["request_trailer_mode"] != "SEND":
        cause = f"{DUPLEX} needs request_trailer_mode SEND"
        return failed(
            name, f"request_trailer_mode is {one.modes['request_trailer_mode']}", cause=cause, fix=_list_filters(case)
        )
    return ok(
        name,
        ", ".join(f"{key.removesuffix('_mode')} {value}" for key, value in one.modes.items() if value != "DEFAULT"),
    )


def metadata_is_received(case: Case) -> Finding:
    """Whether Envoy takes the pick from the picker's answer."""
    name = "Envoy takes the pick"
    one = case.path.asked
    if one is None:
        return skipped(name)
    if envoy.METADATA not in one.receives:
        cause = (
            "the pick is in dynamic metadata of that namespace, and Envoy drops what it is not told to take: all "
            "statistics stay clean"
        )
        evidence = (
            f"metadata_options.receiving_namespaces is {', '.join(one.receives) or 'empty'}, {envoy.METADATA} is "
            "missing"
        )
        return failed(name, evidence, cause=cause, fix=_list_filters(case))
    return ok(name, f"metadata of {envoy.METADATA}")


def patience_is_enough(case: Case) -> Finding:
    """Whether Envoy waits for the picker."""
    name = "Envoy waits for the picker"
    one = case.path.asked
    if one is None:
        return skipped(name)
    if one.timeout < 1:
        cause = "long prompts, or a picker that is busy for a moment, are given up"
        return warned(name, f"message_timeout is {one.timeout:g} s", cause=cause, fix=_list_filters(case))
    return ok(name, f"message_timeout {one.timeout:g} s")


def picker_cluster_is_right(case: Case) -> Finding:
    """Whether the cluster that is asked exists, speaks HTTP/2 and has a member."""
    name = "Envoy reaches the picker"
    one, proxy = case.path.asked, case.proxy
    if one is None or proxy is None:
        return skipped(name)
    upstream = proxy.upstreams.get(one.cluster)
    if upstream is None:
        cause = (
            "the filter asks a cluster that Envoy does not have: every request fails, or goes anywhere if "
            "failure_mode_allow is true"
        )
        return failed(name, f"no cluster {one.cluster}", cause=cause, fix="kubectl get services -A | grep -i epp")
    if not upstream.http2:
        cause = "gRPC needs HTTP/2: name the Service's port grpc-…, or give it appProtocol http2"
        return failed(name, f"cluster {one.cluster} speaks HTTP/1.1", cause=cause, fix=_list_filters(case))
    members = proxy.members.get(one.cluster, ())
    sick = [f"{host.address}: {host.why}" for host in members if not host.healthy]
    if not members or len(sick) == len(members):
        cause = "no address of the picker is known to be well"
        fix = "kubectl get endpointslices -A | grep -i epp"
        return failed(name, f"cluster {one.cluster} has {'; '.join(sick) or 'no member'}", cause=cause, fix=fix)
    return ok(name, f"{one.cluster}: {', '.join(host.address for host in members)}")


def pick_is_followed(case: Case) -> Finding:
    """Whether the cluster behind the route goes by the pick."""
    name = "the cluster behind the route follows the pick"
    live, proxy = case.path.live_route, case.proxy
    if live is None or proxy is None or case.path.asked is None:
        return skipped(name)
    deaf = [one for one in live.clusters if (found := proxy.upstreams.get(one)) is not None and not found.follows]
    if deaf:
        cause = (
            "a plain cluster goes by its own load balancing and takes no notice of header or metadata: it needs the "
            "policy override_host, which Istio gives to an InferencePool"
        )
        return failed(name, f"cluster {deaf[0]} has no override_host", cause=cause, fix=_to_the_pool(case))
    if any(proxy.upstreams[one].follows == "header" for one in live.clusters if one in proxy.upstreams):
        cause = "a client that sends the header itself chooses any address when the picker fails open; go by metadata"
        return warned(
            name, "it goes by the header x-gateway-destination-endpoint", cause=cause, fix=_list_filters(case)
        )
    return ok(name, ", ".join(live.clusters))


def _to_the_pool(case: Case) -> str | Repair:
    """Return the change that leads the rule to the pool of the same Pods, when there is exactly one."""
    route = case.path.route
    namespaces = {str((case.path.backend or {}).get("namespace"))}
    pools = [one for one in case.objects.all("InferencePool") if key_of(one).namespace in namespaces]
    if route is None or len(pools) != 1 or is_pool(case.path.backend or {}):
        return _list_filters(case)
    pool = pools[0]
    backend = {
        "group": str(pool["apiVersion"]).partition("/")[0],
        "kind": "InferencePool",
        "name": key_of(pool).name,
        "namespace": key_of(pool).namespace,
    }
    body = [{"op": "replace", "path": f"/spec/rules/{case.path.rule}/backendRefs", "value": [backend]}]
    return Repair(kind=kind_of(route), key=key_of(route), how="json", body=body)


def members_are_the_servers(case: Case) -> Finding:
    """Whether Envoy knows the Pods that may be picked."""
    name = "Envoy has the Pods that may be picked"
    live, proxy = case.path.live_route, case.proxy
    if live is None or proxy is None or not case.path.servers:
        return skipped(name)
    known = {host.address.rpartition(":")[0] for one in live.clusters for host in proxy.members.get(one, ())}
    missing = [key_of(p).name for p in case.path.servers if pod_ready(p) and str(at(p, "status", "podIP")) not in known]
    if missing and not any(
        proxy.upstreams[one].kind == "ORIGINAL_DST" for one in live.clusters if one in proxy.upstreams
    ):
        cause = "a pick of it would be ignored and another Pod would answer"
        fix = "kubectl get endpointslices -A -l kubernetes.io/service-name"
        return failed(name, f"not in {', '.join(live.clusters)}: {', '.join(missing)}", cause=cause, fix=fix)
    return ok(name, f"{len(known)} members")


def _list_filters(case: Case) -> str:
    """Return the command that shows, or takes away, what someone changed in this gateway's configuration."""
    ours = [one for one in case.path.filters if concerns_picking(one)]
    home = key_of(case.path.gateway).namespace if case.path.gateway else ""
    if len(ours) == 1 and is_pool(case.path.backend or {}):
        return f"kubectl delete envoyfilter -n {key_of(ours[0]).namespace} {key_of(ours[0]).name}"
    return f"kubectl get envoyfilters -n {home} -o yaml"
