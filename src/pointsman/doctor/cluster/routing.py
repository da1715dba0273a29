"""From the client to the backend: Gateway, listener, HTTPRoute, its filters, its references and the grants for them."""

from pointsman.core.kinds import Key, Kind, Object, key_of
from pointsman.doctor.cluster.case import Case, command, controller, status_of_parent, told
from pointsman.doctor.cluster.envoyfilters import GATEWAY_LABEL
from pointsman.doctor.cluster.objects import (
    GATEWAY_API,
    at,
    condition,
    each,
    kind_of,
    mapping,
    number,
    pod_ready,
    pod_trouble,
)
from pointsman.doctor.cluster.path import ANNOTATION, EXT_PROC, is_pool, leads_to_models, routes_of
from pointsman.doctor.findings import Finding, failed, ok, skipped, warned
from pointsman.doctor.repairs import Repair

_SERVICE_TYPE = "networking.istio.io/service-type"


def gateway_is_there(case: Case) -> Finding:
    """Whether the Gateway that is meant exists."""
    name = "the Gateway is there"
    if case.cluster.unreachable:
        return skipped(name)
    focus, gateway = case.cluster.focus, case.path.gateway
    if case.path.own_envoy is not None:
        return ok(name, f"no Gateway, but Deployment {key_of(case.path.own_envoy)}, an Envoy of its own")
    if gateway is None:
        wanted = f"Gateway {focus.gateway or 'of any name'} in {focus.namespace or 'any namespace'}"
        others = ", ".join(str(key_of(one)) for one in case.objects.all("Gateway")) or "there is none"
        cause = f"requests have no way in; Gateways of this cluster: {others}"
        return failed(name, f"no {wanted}", cause=cause, fix="kubectl get gateways -A")
    rest = ", ".join(str(key_of(one)) for one in leads_to_models(case.objects, focus)[1:])
    return ok(name, f"{key_of(gateway)}{'; not looked at: ' + rest if rest else ''}")


def gateway_has_a_class(case: Case) -> Finding:
    """Whether someone makes the Gateway."""
    name = "a controller makes the Gateway"
    gateway = case.path.gateway
    if gateway is None:
        return skipped(name)
    wanted = str(at(gateway, "spec", "gatewayClassName"))
    classes = {key_of(one).name: one for one in case.objects.all("GatewayClass")}
    accepted = [n for n, one in classes.items() if _is_true(each(one, "status", "conditions"), "Accepted")]
    if wanted not in classes:
        evidence = f"gatewayClassName is {wanted}; there is {', '.join(classes) or 'no GatewayClass at all'}"
        return failed(name, evidence, cause="no controller feels responsible", fix=_class(gateway, accepted))
    if wanted not in accepted:
        said = told(condition(each(classes[wanted], "status", "conditions"), "Accepted"))
        cause = f"the controller {at(classes[wanted], 'spec', 'controllerName')} does not run, or refuses the class"
        return failed(
            name, f"GatewayClass {wanted}: {said}", cause=cause, fix=f"kubectl describe gatewayclass {wanted}"
        )
    return ok(name, f"{wanted} ({controller(case)})")


def _class(gateway: Object, accepted: list[str]) -> str | Repair:
    if len(accepted) != 1:
        return "kubectl get gatewayclasses"
    body = {"spec": {"gatewayClassName": accepted[0]}}
    return Repair(kind=kind_of(gateway), key=key_of(gateway), how="merge", body=body)


def gateway_is_programmed(case: Case) -> Finding:
    """Whether the controller says that the proxy has the Gateway's configuration."""
    name = "the Gateway is programmed"
    gateway = case.path.gateway
    if gateway is None:
        return skipped(name)
    said = condition(each(gateway, "status", "conditions"), "Programmed")
    if said is None or said.get("status") != "True":
        reason = str((said or {}).get("reason"))
        fix = command("annotate", gateway, f"{_SERVICE_TYPE}=ClusterIP")
        if reason != "AddressNotAssigned":
            fix = command("describe", gateway)
        cause = (
            "it waits for a load balancer that nobody brings"
            if reason == "AddressNotAssigned"
            else "no proxy serves it yet"
        )
        return failed(name, told(said), cause=cause, fix=fix)
    if _is_old(said, gateway):
        return failed(
            name,
            _generations(said, gateway),
            cause="its last change has not been taken up",
            fix=command("describe", gateway),
        )
    return ok(name, told(said))


def gateway_runs(case: Case) -> Finding:
    """Whether the proxy's Pods are ready."""
    name = "the gateway's Pods are ready"
    gateway = case.path.gateway or case.path.own_envoy
    if gateway is None:
        return skipped(name)
    key = key_of(gateway)
    pods = case.path.gateway_pods
    if not pods:
        if case.path.own_envoy is not None:
            return failed(name, f"Deployment {key} has no Pod", cause="no proxy runs", fix=command("describe", gateway))
        if not case.istio:
            return skipped(name, f"no Pod has the label {GATEWAY_LABEL}={key.name}")
        fix = f"kubectl get deployments,replicasets,events -n {key.namespace} -l {GATEWAY_LABEL}={key.name}"
        return failed(
            name, f"no Pod with {GATEWAY_LABEL}={key.name} in {key.namespace}", cause="no proxy runs", fix=fix
        )
    ready = [pod for pod in pods if pod_ready(pod)]
    if not ready:
        first = pods[0]
        fix = f"kubectl describe pod -n {key.namespace} {key_of(first).name}"
        return failed(
            name, f"{key_of(first).name}: {pod_trouble(first)}", cause="no proxy of this Gateway is ready", fix=fix
        )
    return ok(name, f"{len(ready)} of {len(pods)}")


def route_is_there(case: Case) -> Finding:
    """Whether a route hangs on the Gateway."""
    name = "a route leads from the Gateway"
    gateway = case.path.gateway
    if gateway is None:
        return skipped(name)
    if case.path.route is None:
        others = ", ".join(str(key_of(one)) for one in case.objects.all("HTTPRoute")) or "there is none"
        wanted = f"HTTPRoute {case.cluster.focus.route} " if case.cluster.focus.route else "HTTPRoute "
        evidence = f"no {wanted}names {key_of(gateway)} in parentRefs; HTTPRoutes of this cluster: {others}"
        return failed(name, evidence, cause="every request gets 404", fix="kubectl get httproutes -A -o wide")
    rest = ", ".join(str(key_of(one)) for one in routes_of(case.objects, gateway) if one is not case.path.route)
    more = f"; not looked at (--route): {rest}" if rest else ""
    return ok(name, f"HTTPRoute {key_of(case.path.route)}, rule {case.path.rule}{more}")


def no_extension_refs(case: Case) -> Finding:
    """Whether the route tries to name an EnvoyFilter by ExtensionRef, as a manual for ext_proc has it."""
    name = "the route has no ExtensionRef that Istio refuses"
    route = case.path.route
    if route is None:
        return skipped(name)
    for nth, rule in enumerate(each(route, "spec", "rules")):
        for place, one in enumerate(each(rule, "filters")):
            if one.get("type") == "ExtensionRef" and case.istio:
                reference = mapping(one, "extensionRef")
                what = f"{reference.get('kind')} {reference.get('name')} ({reference.get('group')})"
                cause = (
                    "Istio knows no ExtensionRef, neither to an EnvoyFilter nor to anything else: it takes the whole "
                    "rule out, and every request gets 404. An EnvoyFilter is applied by its targetRefs, not by a route"
                )
                body = [{"op": "remove", "path": f"/spec/rules/{nth}/filters/{place}"}]
                fix = Repair(kind=kind_of(route), key=key_of(route), how="json", body=body)
                return failed(name, f"rule {nth} has an ExtensionRef to {what}", cause=cause, fix=fix)
    return ok(name, "none")


def no_override_annotation(case: Case) -> Finding:
    """Whether someone relies on an annotation that exists in a manual only."""
    name = "nobody relies on the annotation ext-proc-override"
    route = case.path.route
    if route is None:
        return skipped(name)
    if ANNOTATION not in mapping(route, "metadata", "annotations"):
        return ok(name, "it is not there")
    cause = (
        "no version of Istio reads it: Envoy's configuration is the same with and without it. What it asks for, "
        "headers without a body, could not work either"
    )
    body = {"metadata": {"annotations": {ANNOTATION: None}}}
    fix = Repair(kind=kind_of(route), key=key_of(route), how="merge", body=body, safe=True)
    return warned(name, f"HTTPRoute {key_of(route)} has {ANNOTATION}", cause=cause, fix=fix)


def route_is_accepted(case: Case) -> Finding:
    """Whether the Gateway takes the route."""
    name = "the Gateway accepts the route"
    route, gateway = case.path.route, case.path.gateway
    if route is None or gateway is None:
        return skipped(name)
    conditions = status_of_parent(route, gateway)
    said = condition(conditions, "Accepted")
    if said is None:
        cause = "no controller has looked at the route"
        return failed(name, told(said), cause=cause, fix=command("get", route, "-o yaml"))
    if said.get("status") == "True" and not _is_old(said, route):
        return ok(name, told(said))
    if said.get("status") == "True":
        cause = "its last change has not been taken up: the controller is behind, or does not run"
        return failed(
            name, _generations(said, route), cause=cause, fix="kubectl -n istio-system get pods -l app=istiod"
        )
    if said.get("reason") == "NotAllowedByListeners":
        return _not_allowed(name, said, gateway)
    cause = {
        "NoMatchingListenerHostname": "none of the route's hostnames is one of a listener",
        "NoMatchingParent": "parentRefs name a sectionName or port that the Gateway does not have",
    }.get(str(said.get("reason")), "the Gateway refuses the route")
    return failed(name, told(said), cause=cause, fix=command("get", gateway, "-o yaml"))


def _not_allowed(name: str, said: Object, gateway: Object) -> Finding:
    body = [
        {"op": "add", "path": f"/spec/listeners/{n}/allowedRoutes", "value": {"namespaces": {"from": "All"}}}
        for n, _ in enumerate(each(gateway, "spec", "listeners"))
    ]
    cause = "the listeners take routes of their own namespace only, and the route is in another one"
    fix = Repair(kind=kind_of(gateway), key=key_of(gateway), how="json", body=body)
    return failed(name, told(said), cause=cause, fix=fix)


def references_are_granted(case: Case) -> Finding:
    """Whether another namespace lets the route refer to what is in it."""
    name = "references to other namespaces are granted"
    route = case.path.route
    if route is None:
        return skipped(name)
    home = key_of(route).namespace
    foreign = [
        one for one in each(case.path.rule_document, "backendRefs") if one.get("namespace") and one["namespace"] != home
    ]
    for one in foreign:
        if not any(_grants(grant, home, one) for grant in case.objects.all("ReferenceGrant")):
            group, kind = _target(one)
            cause = f"without a ReferenceGrant in {one['namespace']} the reference is refused and requests get 500"
            evidence = (
                f"HTTPRoute {key_of(route)} refers to {kind} {one['namespace']}/{one.get('name')}, which nothing there "
                "allows"
            )
            return failed(name, evidence, cause=cause, fix=_grant(home, one, group=group, kind=kind))
    return ok(name, f"{len(foreign)} of {len(foreign)}" if foreign else "there is none")


def _target(reference: Object) -> tuple[str, str]:
    return str(reference.get("group") or ""), str(reference.get("kind") or "Service")


def _grants(grant: Object, home: str, reference: Object) -> bool:
    if key_of(grant).namespace != reference["namespace"]:
        return False
    wanted = (GATEWAY_API, "HTTPRoute", home)
    sources = [(one.get("group"), one.get("kind"), one.get("namespace")) for one in each(grant, "spec", "from")]
    targets = [
        one
        for one in each(grant, "spec", "to")
        if (one.get("group") or "", one.get("kind")) == _target(reference)
        and one.get("name") in {None, "", reference.get("name")}
    ]
    return wanted in sources and bool(targets)


def _grant(home: str, reference: Object, *, group: str, kind: str) -> Repair:
    namespace, name = str(reference["namespace"]), f"from-{home}"
    body = {
        "apiVersion": f"{GATEWAY_API}/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "from": [{"group": GATEWAY_API, "kind": "HTTPRoute", "namespace": home}],
            "to": [{"group": group, "kind": kind, "name": reference.get("name")}],
        },
    }
    kind_ = Kind(GATEWAY_API, "v1beta1", "ReferenceGrant", "referencegrants")
    return Repair(kind=kind_, key=Key(namespace, name), how="apply", body=body)


def backend_is_there(case: Case) -> Finding:
    """Whether the rule leads to something that exists."""
    name = "the rule leads to something that exists"
    route, backend = case.path.route, case.path.backend
    if route is None:
        return skipped(name)
    if backend is None:
        cause = "every request gets 500 or 404"
        return failed(name, f"rule {case.path.rule} has no backendRefs", cause=cause, fix=command("edit", route))
    kind = "InferencePool" if is_pool(backend) else "Service"
    what = f"{kind} {backend['namespace']}/{backend.get('name')}"
    if (case.path.pool or case.path.service) is not None:
        return ok(name, what)
    if kind in case.objects.unseen or (
        kind == "InferencePool" and not case.objects.found.get(kind) and _no_pools(case)
    ):
        return skipped(name, f"no {kind} can be seen")
    there = ", ".join(str(key_of(one)) for one in case.objects.all(kind)) or "there is none"
    fix = _only(case, route, kind)
    return failed(
        name,
        f"{what} is missing; there is: {there}",
        cause="its name or namespace is wrong, or it was deleted",
        fix=fix,
    )


def _no_pools(case: Case) -> bool:
    return not any("inferencepools" in key_of(one).name for one in case.objects.all("CustomResourceDefinition"))


def _only(case: Case, route: Object, kind: str) -> str | Repair:
    """Return the change to the only candidate, when there is one."""
    namespace = str((case.path.backend or {}).get("namespace"))
    near = [key_of(one).name for one in case.objects.all(kind) if key_of(one).namespace == namespace]
    if len(near) != 1:
        return command("edit", route)
    body = [{"op": "replace", "path": f"/spec/rules/{case.path.rule}/backendRefs/0/name", "value": near[0]}]
    return Repair(kind=kind_of(route), key=key_of(route), how="json", body=body)


def one_pool_per_rule(case: Case) -> Finding:
    """Whether a rule divides requests among pools, which one picker would decide for."""
    name = "the rule has one pool"
    pools = [one for one in each(case.path.rule_document, "backendRefs") if is_pool(one)]
    if case.path.route is None:
        return skipped(name)
    if len(pools) > 1 and case.istio:
        names = ", ".join(f"{one.get('name')} (weight {one.get('weight', 1)})" for one in pools)
        cause = (
            f"Istio asks the picker of the last one, {pools[-1].get('name')}, for all of them: its picks mean nothing "
            "in the other pools"
        )
        body = [{"op": "replace", "path": f"/spec/rules/{case.path.rule}/backendRefs", "value": [pools[-1]]}]
        fix = Repair(kind=kind_of(case.path.route), key=key_of(case.path.route), how="json", body=body)
        return failed(name, f"rule {case.path.rule} has {names}", cause=cause, fix=fix)
    return ok(name, str(len(pools)))


def no_cors(case: Case) -> Finding:
    """Whether CORS on the rule takes the picker away, which no condition tells."""
    name = "no CORS filter takes the picker away"
    route = case.path.route
    if route is None:
        return skipped(name)
    places = [n for n, one in enumerate(each(case.path.rule_document, "filters")) if one.get("type") == "CORS"]
    if not places:
        return ok(name, "there is none")
    live = case.path.live_route
    if live is not None and EXT_PROC in live.overrides:
        return ok(name, "there is one, but Envoy's route still asks the picker")
    if not case.istio or not is_pool(case.path.backend or {}):
        return ok(name, "there is one, on a route that does not ask a picker by itself")
    cause = (
        "Istio forgets the picker on a rule with CORS: every condition stays True, requests are spread evenly, and "
        "FailClose does not fail. Let the application answer CORS, or put the picker back with an EnvoyFilter"
    )
    body = [{"op": "remove", "path": f"/spec/rules/{case.path.rule}/filters/{places[0]}"}]
    fix = Repair(kind=kind_of(route), key=key_of(route), how="json", body=body)
    return failed(name, f"rule {case.path.rule} of HTTPRoute {key_of(route)} has a CORS filter", cause=cause, fix=fix)


def references_are_resolved(case: Case) -> Finding:
    """Whether the controller found what the route refers to."""
    name = "the route's references are resolved"
    route, gateway = case.path.route, case.path.gateway
    if route is None or gateway is None:
        return skipped(name)
    said = condition(status_of_parent(route, gateway), "ResolvedRefs")
    if said is None:
        return failed(
            name, told(said), cause="no controller has looked at the route", fix=command("get", route, "-o yaml")
        )
    if said.get("status") != "True":
        return failed(name, told(said), cause="the rule is not served as written", fix=command("describe", route))
    if _is_old(said, route):
        cause = "its last change has not been taken up: the controller is behind, or does not run"
        return failed(name, _generations(said, route), cause=cause, fix=command("describe", route))
    return ok(name, told(said))


def _is_true(conditions: list[Object], type_: str) -> bool:
    found = condition(conditions, type_)
    return found is not None and found.get("status") == "True"


def _is_old(said: Object, document: Object) -> bool:
    generation = number(document, "metadata", "generation")
    return number(said, "observedGeneration", otherwise=generation) < generation


def _generations(said: Object, document: Object) -> str:
    spec = at(document, "metadata", "generation")
    return f"{said.get('type')} is about generation {said.get('observedGeneration')}, the spec is {spec}"
