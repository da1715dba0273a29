"""Gateway, HTTPRoute and what permits it; and what other people's routes to our pool come to.

Our route's rules have no names, because a name becomes all that Istio calls the route by. Where the gateway does not
understand pools, a second route asks whether it does by now: it leads to the pool, for a host that nobody can have, so
its status is the answer and no request ever takes it. As long as it is there, the answer was no.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pointsman.api.scheduler import SchedulerGateway, Way
from pointsman.render.envoy.paths import INFERENCE
from pointsman.render.manifests import objects
from pointsman.render.manifests.mesh import GATEWAY_API, GATEWAY_LABEL, SERVICE_TYPE, path_rules
from pointsman.render.manifests.names import COMPONENT
from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.picker import POOL_GROUP
from pointsman.render.scheduler.places import GATEWAY_COMPONENT, Places

_GROUP = GATEWAY_API.partition("/")[0]
POOLED: tuple[Way, ...] = ("Native", "EndpointSlice", "RoutePatch")
"""The ways on which the route leads to the pool."""
# Of a real gateway Pod these are hidden, and they are what tells whether the picker is asked.
_STATISTICS = r".*ext_proc.*,cluster\.outbound.*upstream_rq_total"
_NOBODY = "pointsman-asks.invalid"
_LABELS = {COMPONENT: GATEWAY_COMPONENT, "component": "gateway"}


def gateway(wanted: SchedulerGateway, *, places: Places) -> Object:
    """Return the Gateway; listeners of other names are somebody else's, and stay."""
    listener = {
        "name": "default",
        "port": wanted.listener_port,
        "protocol": wanted.listener_protocol,
        "allowedRoutes": {"namespaces": {"from": wanted.routes_from}},
    }
    labels = places.here.labels(**_LABELS, **{GATEWAY_LABEL: wanted.name})
    head = objects.head("Gateway", wanted.name, names=places.here, labels=_LABELS, api=GATEWAY_API)
    head["metadata"]["annotations"] = {SERVICE_TYPE: wanted.service_type}
    infrastructure = {"labels": labels, "annotations": {"sidecar.istio.io/statsInclusionRegexps": _STATISTICS}}
    return {
        **head,
        "spec": {
            "gatewayClassName": wanted.class_name,
            "infrastructure": infrastructure,
            "listeners": [listener],
        },
    }


def route(way: Way | None, *, places: Places, pooled: bool) -> Object:
    """Return our route, to the pool where the way says so; with no way at all, as the resource says."""
    to_pool = way in POOLED if way else pooled
    backend = _pool(places) if to_pool else _service(places)
    return _route(places.route, path_rules(INFERENCE, backend), places=places)


def probe(*, places: Places) -> Object:
    """Return the route whose status says whether the gateway understands pools."""
    made = _route(places.probe, [{"backendRefs": [_pool(places)]}], places=places)
    made["spec"]["hostnames"] = [_NOBODY]
    return made


def grants(documents: Iterable[Object], *, places: Places) -> list[Object]:
    """Return what lets our routes lead to where they lead, for each other namespace exactly that."""
    targets: dict[str, dict[tuple[str, str, str], None]] = {}
    for one in documents:
        for backend in (ref for rule in one["spec"]["rules"] for ref in rule["backendRefs"]):
            if backend["namespace"] != places.here.namespace:
                to = (backend["group"], backend["kind"], backend["name"])
                targets.setdefault(backend["namespace"], {})[to] = None
    return [_grant(namespace, list(found), places=places) for namespace, found in targets.items()]


def _grant(namespace: str, targets: Sequence[tuple[str, str, str]], *, places: Places) -> Object:
    # Named after the resource: of two installs for one namespace, each has its own.
    name = f"allow-scheduler-httproute-{places.home}-{places.here.stack}"
    metadata = {"name": name, "namespace": namespace, "labels": places.here.labels()}
    source = {"group": _GROUP, "kind": "HTTPRoute", "namespace": places.here.namespace}
    to = [{"group": group, "kind": kind, "name": one} for group, kind, one in targets]
    return {
        "apiVersion": f"{_GROUP}/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": metadata,
        "spec": {"from": [source], "to": to},
    }


def _route(name: str, rules: Sequence[Object], *, places: Places) -> Object:
    parent = {"group": _GROUP, "kind": "Gateway", "name": places.gateway, "namespace": places.gates.namespace}
    return {
        **objects.head("HTTPRoute", name, names=places.here, labels=_LABELS, api=GATEWAY_API),
        "spec": {"parentRefs": [parent], "rules": list(rules)},
    }


def _pool(places: Places) -> Object:
    found = {"name": places.pool, "namespace": places.pools.namespace}
    return {"group": POOL_GROUP, "kind": "InferencePool", **found, "weight": 1}


def _service(places: Places) -> Object:
    found = {"name": places.service, "namespace": places.there.namespace, "port": places.port}
    return {"group": "", "kind": "Service", **found, "weight": 1}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a gateway's controller says of a route."""

    holds: bool
    reason: str
    message: str


def verdict(document: Object, type_: str) -> Verdict | None:
    """Return what is said of a route as it is now; None when nothing is."""
    generation = document["metadata"].get("generation", 0)
    for parent in document.get("status", {}).get("parents", []):
        for told in parent.get("conditions", []):
            if told.get("type") == type_ and told.get("observedGeneration", generation) == generation:
                holds = told.get("status") == "True"
                return Verdict(holds=holds, reason=told.get("reason", ""), message=told.get("message", ""))
    return None


def understanding(main: Object | None, asking: Object | None) -> Verdict | None:
    """Return whether pools are understood, from the routes as they are; None when that is not known."""
    if asking is not None:
        return verdict(asking, "ResolvedRefs") or Verdict(holds=False, reason="Asking", message="it is being asked")
    leads = main is not None and any(ref.get("kind") == "InferencePool" for ref in _backends(main))
    if main is None or not leads:
        return None
    told = verdict(main, "ResolvedRefs")
    # Every other complaint is about this route, and not about routes to pools.
    return told if told is None or told.holds or told.reason == "InvalidKind" else None


def _backends(document: Object) -> Iterable[Object]:
    for rule in document.get("spec", {}).get("rules") or ():
        yield from rule.get("backendRefs") or ()


@dataclass(frozen=True, kw_only=True)
class RouteProblem:
    """A rule of somebody's route to our pool for which picks do not count."""

    route: str
    reason: str
    message: str
    repair: str = ""
    """What Istio calls the route, where a patch of ours can put it right."""


def troubles(found: Iterable[Object], *, places: Places) -> list[RouteProblem]:
    """Return what is wrong with routes on our gateway that lead to our pool."""
    return [
        one
        for document in found
        if not _is_ours(document, places) and _is_attached(document, places)
        for number, rule in enumerate(document["spec"].get("rules") or ())
        for one in _troubles(document, number, rule, places)
    ]


def _is_ours(document: Object, places: Places) -> bool:
    metadata = document["metadata"]
    return metadata["namespace"] == places.here.namespace and metadata["name"] in (places.route, places.probe)


def _is_attached(document: Object, places: Places) -> bool:
    own = document["metadata"]["namespace"]
    return any(
        parent.get("name") == places.gateway and parent.get("namespace", own) == places.gates.namespace
        for parent in document.get("spec", {}).get("parentRefs") or ()
    )


def _troubles(document: Object, number: int, rule: Object, places: Places) -> Iterable[RouteProblem]:
    metadata = document["metadata"]
    pools = [ref for ref in rule.get("backendRefs") or () if ref.get("kind") == "InferencePool"]
    ours = {"name": places.pool, "namespace": places.pools.namespace}
    if not any(
        {"name": one["name"], "namespace": one.get("namespace", metadata["namespace"])} == ours for one in pools
    ):
        return
    what = f"rule {number} of HTTPRoute {metadata['namespace']}/{metadata['name']}"
    name = f"{metadata['namespace']}.{metadata['name']}.{number}"
    if len(pools) > 1:
        text = f"{what} leads to {len(pools)} pools, and the gateway asks the picker of the last one for all of them"
        yield RouteProblem(route=name, reason="WeightedPools", message=f"{text}: make a rule for each pool")
        return
    if any(one.get("type") == "CORS" for one in rule.get("filters") or ()):
        text = f"{what} has a CORS filter, with which Istio does not ask the picker at all, not even in FailClose"
        if "name" in rule:
            yield RouteProblem(route=name, reason="CORS", message=f"{text}: remove the filter, or the rule's name")
        else:
            yield RouteProblem(route=name, reason="CORS", message=f"{text}: remove the filter", repair=name)
