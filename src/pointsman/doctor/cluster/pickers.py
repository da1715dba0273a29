"""The picker's Service and Pods: found, running, reached under a port that Envoy speaks HTTP/2 to, about this pool."""

import json
import shlex
from collections.abc import Sequence

from pointsman.core import flags
from pointsman.core.kinds import Key, Object, key_of
from pointsman.core.numbers import whole
from pointsman.doctor.cluster.case import Case, command
from pointsman.doctor.cluster.envoyfilters import Endpoint
from pointsman.doctor.cluster.facts import Right
from pointsman.doctor.cluster.objects import (
    arguments,
    at,
    container_ports,
    each,
    kind_of,
    mapping,
    number,
    pod_ready,
    pod_trouble,
    selects,
    words,
)
from pointsman.doctor.cluster.path import is_pool, slice_addresses, slices
from pointsman.doctor.findings import Finding, failed, ok, skipped, warned
from pointsman.doctor.repairs import Repair

_LEADS = "ha-enable-leader-election"
HTTP2 = ("grpc", "http2", "h2c", "grpc-web")


def picker_is_named(case: Case) -> Finding:
    """Whether anyone says who the picker is."""
    name = "a picker is named"
    if case.path.route is None and case.path.own_envoy is None:
        return skipped(name)
    if case.path.picker is None:
        cause = "neither the gateway, nor an EnvoyFilter, nor a pool says whom to ask: requests are spread evenly"
        fix = command("edit", case.path.pool) if case.path.pool else "kubectl get inferencepools,envoyfilters -A"
        evidence = "no endpointPickerRef, no EnvoyFilter with ext_proc, no Deployment with --pool-name"
        return failed(name, evidence, cause=cause, fix=fix)
    return ok(name, f"{case.path.picker}, by {case.path.picker_named_by}")


def service_is_there(case: Case) -> Finding:
    """Whether the picker's Service exists, and is one."""
    name = "the picker's Service is there"
    picker, service = case.path.picker, case.path.picker_service
    if picker is None:
        return skipped(name)
    if service is None:
        there = [key_of(one).name for one in case.objects.all("Service") if key_of(one).namespace == picker.namespace]
        evidence = f"no {picker.namespace}/{picker.name}; Services there: {', '.join(there) or 'none'}"
        cause = f"{case.path.picker_named_by} names it; a pool's picker must be in the pool's own namespace"
        return failed(name, evidence, cause=cause, fix=_the_only_picker(case, picker))
    if at(service, "spec", "type") == "ExternalName":
        evidence = f"{key_of(service)} is of type ExternalName ({at(service, 'spec', 'externalName')})"
        cause = "Istio makes no cluster for it, although the pool says ResolvedRefs=True: every request gets 500"
        return failed(name, evidence, cause=cause, fix=_with_addresses(case, service))
    return ok(name, f"{key_of(service)} at {at(service, 'spec', 'clusterIP')}")


def _the_only_picker(case: Case, picker: Endpoint) -> str | Repair:
    """Return the change of the pool to the one Service of its namespace that leads to a picker, when there is one."""
    homes = [d for d in case.objects.all("Deployment") if key_of(d).namespace == picker.namespace and _is_picker(d)]
    labels = [mapping(one, "spec", "template", "metadata", "labels") for one in homes]
    found = [
        key_of(one).name
        for one in case.objects.all("Service")
        if key_of(one).namespace == picker.namespace
        and any(selects(mapping(one, "spec", "selector"), wanted) for wanted in labels)
    ]
    if case.path.pool is None or len(found) != 1 or at(case.path.pool, "spec", "endpointPickerRef", "name") == found[0]:
        return f"kubectl get services -A | grep -i {shlex.quote(picker.name)}"
    body = {"spec": {"endpointPickerRef": {"name": found[0]}}}
    return Repair(kind=kind_of(case.path.pool), key=key_of(case.path.pool), how="merge", body=body)


def _with_addresses(case: Case, alias: Object) -> str:
    """Return the commands that put a Service with the picker's own addresses in the place of an alias."""
    key, target = key_of(alias), str(at(alias, "spec", "externalName")).split(".")
    found = case.objects.get("Service", target[1], target[0]) if len(target) > 1 else None
    addresses = slice_addresses(case.objects, found) if found else []
    port = {"name": "grpc-ext-proc", "port": 9002, "appProtocol": "http2"}
    labels = {"kubernetes.io/service-name": key.name}
    documents = [
        {"apiVersion": "v1", "kind": "Service", "metadata": key._asdict(), "spec": {"ports": [port]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**key._asdict(), "labels": labels},
            "addressType": "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": addresses}],
        },
    ]
    text = shlex.quote(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}, separators=(",", ":")))
    return f"kubectl delete service -n {key.namespace} {key.name} && printf %s {text} | kubectl apply -f -"


def service_has_the_port(case: Case) -> Finding:
    """Whether the port that is asked for exists."""
    name = "the picker's Service has the port"
    picker, service = case.path.picker, case.path.picker_service
    if picker is None or service is None:
        return skipped(name)
    if _port(case) is not None:
        return ok(name, str(picker.port))
    there = [number(one, "port") for one in each(service, "spec", "ports")]
    evidence = f"{case.path.picker_named_by} asks for port {picker.port}, the Service has {', '.join(map(str, there))}"
    fix: str | Repair = command("edit", service)
    grpc = [one for one in each(service, "spec", "ports") if _speaks_http2(one)] or each(service, "spec", "ports")
    named = at(case.path.pool, "spec", "endpointPickerRef", "port", "number")
    if case.path.pool is not None and grpc and named == picker.port:
        body = {"spec": {"endpointPickerRef": {"port": {"number": grpc[0].get("port")}}}}
        fix = Repair(kind=kind_of(case.path.pool), key=key_of(case.path.pool), how="merge", body=body)
    return failed(name, evidence, cause="there is no cluster with that port: every request gets 500", fix=fix)


def port_speaks_http2(case: Case) -> Finding:
    """Whether Istio knows that the port speaks HTTP/2, which gRPC needs."""
    name = "the picker's port is known to speak HTTP/2"
    service, port = case.path.picker_service, _port(case)
    if service is None or port is None or not case.istio:
        return skipped(name)
    if _speaks_http2(port):
        return ok(name, f"name {port.get('name')}, appProtocol {port.get('appProtocol', 'unset')}")
    place = each(service, "spec", "ports").index(port)
    evidence = (
        f"port {port.get('port')} of Service {key_of(service)} is named {port.get('name') or 'nothing'} and has "
        f"appProtocol {port.get('appProtocol', 'unset')}"
    )
    cause = "Istio takes the protocol from that and dials HTTP/1.1, which is no gRPC: every request gets 500"
    body = [{"op": "add", "path": f"/spec/ports/{place}/appProtocol", "value": "http2"}]
    fix = Repair(kind=kind_of(service), key=key_of(service), how="json", body=body, safe=True)
    return failed(name, evidence, cause=cause, fix=fix)


def picker_runs(case: Case) -> Finding:
    """Whether a Pod of the picker is ready."""
    name = "the picker's Pods are ready"
    service = case.path.picker_service
    if service is None:
        return skipped(name)
    pods, deployment = case.path.picker_pods, case.path.picker_deployment
    if not pods and deployment is not None:
        if at(deployment, "spec", "replicas") == 0:
            key = key_of(deployment)
            fix = f"kubectl scale deployment -n {key.namespace} {key.name} --replicas=1"
            return failed(name, f"Deployment {key} has 0 replicas", cause="nobody is there to be asked", fix=fix)
        said = "; ".join(
            str(one.get("message"))
            for one in each(deployment, "status", "conditions")
            if one.get("status") == "True" and one.get("type") == "ReplicaFailure"
        )
        fix = command("describe", deployment)
        return failed(
            name, f"Deployment {key_of(deployment)} has no Pod {said}".strip(), cause="its Pods cannot be made", fix=fix
        )
    if not pods:
        return _selects_nobody(name, case, service)
    ready = [pod for pod in pods if pod_ready(pod)]
    if not ready:
        first = pods[0]
        key = key_of(first)
        fix = f"kubectl logs -n {key.namespace} {key.name} --all-containers --tail=50"
        return failed(
            name,
            f"{key.name}: {pod_trouble(first)}",
            cause="the picker does not run, or says that it cannot serve",
            fix=fix,
        )
    line = case.path.arguments
    if len(ready) > 1 and flags.value(line, "pool-name") and not flags.switch(line, _LEADS, default=False):
        cause = (
            f"each decides by itself: without --{_LEADS} none leads, so each counts a part of the requests and knows a "
            "part of the prefixes"
        )
        fix = command("scale", deployment, "--replicas=1") if deployment else "kubectl get deployments -A"
        return warned(name, f"{len(ready)} are ready at once", cause=cause, fix=fix)
    return ok(name, f"{len(ready)} of {len(pods)}")


def _selects_nobody(name: str, case: Case, service: Object) -> Finding:
    selector = mapping(service, "spec", "selector")
    shown = ",".join(f"{key}={value}" for key, value in selector.items())
    namespace = key_of(service).namespace
    if not selector:
        addresses = ", ".join(slice_addresses(case.objects, service, ready=False)) or "no address"
        evidence = (
            f"Service {key_of(service)} has no selector, and its EndpointSlices name {addresses}, which no Pod has"
        )
        cause = "the picker's Pods have other addresses now, and nobody keeps the EndpointSlice equal to them"
        return failed(
            name,
            evidence,
            cause=cause,
            fix=_slices(service),
        )
    evidence = f"Service {key_of(service)} selects {shown}; no Pod in {namespace} has that"
    pickers = [d for d in case.objects.all("Deployment") if key_of(d).namespace == namespace and _is_picker(d)]
    if len(pickers) != 1:
        cause = "the picker does not run, or is labelled differently"
        return failed(name, evidence, cause=cause, fix=f"kubectl get pods -n {namespace} --show-labels")
    wanted = mapping(pickers[0], "spec", "selector", "matchLabels")
    labels = ",".join(f"{key}={value}" for key, value in wanted.items())
    body = {"spec": {"selector": {**dict.fromkeys(set(selector) - set(wanted)), **wanted}}}
    fix = Repair(kind=kind_of(service), key=key_of(service), how="merge", body=body)
    return failed(
        name, evidence, cause=f"Deployment {key_of(pickers[0])} is the picker, its Pods have {labels}", fix=fix
    )


def target_port_is_served(case: Case) -> Finding:
    """Whether the Service leads to the port on which the picker listens."""
    name = "the Service leads to the picker's port"
    service, port, pods = case.path.picker_service, _port(case), case.path.picker_pods
    if service is None or port is None or not pods:
        return skipped(name)
    target = port.get("targetPort", port.get("port"))
    listens = case.path.port("grpc-port")
    declared = container_ports(pods[0])
    found = (
        declared.get(target) if isinstance(target, str) and not target.isdigit() else whole(str(target), most=65_535)
    )
    if found == listens:
        return ok(name, f"{port.get('port')} to {target}")
    names = ", ".join(f"{key}={value}" for key, value in declared.items()) or "none"
    what = f"is the name {target}, which no container has (ports: {names})" if found is None else f"is {found}"
    evidence = f"targetPort of port {port.get('port')} {what}; the picker listens on {listens}"
    place = each(service, "spec", "ports").index(port)
    body = [{"op": "add", "path": f"/spec/ports/{place}/targetPort", "value": listens}]
    fix = Repair(kind=kind_of(service), key=key_of(service), how="json", body=body, safe=True)
    return failed(name, evidence, cause="connections of the gateway are refused", fix=fix)


def service_has_endpoints(case: Case) -> Finding:
    """Whether the Service has an address that is ready."""
    name = "the picker's Service has endpoints"
    service = case.path.picker_service
    if service is None or not case.path.picker_pods:
        return skipped(name)
    if not slices(case.objects, service):
        fix = _slices(service)
        return failed(
            name, "there is no EndpointSlice of it", cause="the gateway knows no address of the picker", fix=fix
        )
    ready = slice_addresses(case.objects, service)
    running = {str(at(pod, "status", "podIP")) for pod in case.path.picker_pods if pod_ready(pod)}
    gone = [one for one in ready if one not in {str(at(p, "status", "podIP")) for p in case.objects.all("Pod")}]
    if not ready:
        cause = "no address of the picker is ready: its readiness probe fails"
        fix = (
            f"kubectl describe pod -n {key_of(case.path.picker_pods[0]).namespace} "
            f"{key_of(case.path.picker_pods[0]).name}"
        )
        return failed(name, "no address is ready", cause=cause, fix=fix)
    if gone and not set(ready) & running:
        cause = "the EndpointSlice names an address that no Pod has any more"
        fix = _slices(service)
        return failed(name, f"{', '.join(gone)} is no Pod's address", cause=cause, fix=fix)
    return ok(name, ", ".join(ready))


def picker_follows_this_pool(case: Case) -> Finding:
    """Whether the picker decides about the Pods behind this route."""
    name = "the picker follows this pool"
    pool, deployment = case.path.pool, case.path.picker_deployment
    if pool is None or not is_pool(case.path.backend or {}) or not case.path.arguments:
        return skipped(name)
    wanted = {"pool-name": key_of(pool).name, "pool-namespace": key_of(pool).namespace}
    said = {flag: flags.value(case.path.arguments, flag) for flag in wanted}
    if not said["pool-name"]:
        return skipped(name, "its flags name no pool")
    said["pool-namespace"] = said["pool-namespace"] or case.path.home
    wrong = [flag for flag in wanted if said[flag] != wanted[flag]]
    group, used = flags.value(case.path.arguments, "pool-group"), str(pool["apiVersion"]).partition("/")[0]
    if not wrong and group and group != used:
        wrong, wanted, said = ["pool-group"], {"pool-group": used}, {"pool-group": group}
    if not wrong:
        return ok(name, f"{said['pool-namespace']}/{said['pool-name']}")
    told = ", ".join(f"--{flag}={said[flag]} instead of {wanted[flag]}" for flag in wrong)
    cause = "it picks among the Pods of another pool, which the gateway does not know behind this route"
    fix: str | Repair = command("edit", deployment) if deployment else "kubectl get deployments -A"
    if deployment is not None:
        fix = _arguments(deployment, {flag: wanted[flag] for flag in wrong}) or fix
    return failed(name, told, cause=cause, fix=fix)


def _arguments(deployment: Object, wanted: dict[str, str]) -> Repair | None:
    """Return the change of a Deployment's command line."""
    body = []
    for place, container in enumerate(each(deployment, "spec", "template", "spec", "containers")):
        for field in ("command", "args"):
            for at_, word in enumerate(words(container, field)):
                flag, equals, _ = word.removeprefix("--").partition("=")
                if flag in wanted:
                    spot, value = (at_, f"--{flag}={wanted[flag]}") if equals else (at_ + 1, wanted[flag])
                    path = f"/spec/template/spec/containers/{place}/{field}/{spot}"
                    body.append({"op": "replace", "path": path, "value": value})
    return Repair(kind=kind_of(deployment), key=key_of(deployment), how="json", body=body) if body else None


def account_may(case: Case) -> Finding:
    """Whether the picker's account may see what the picker decides by."""
    name = "the picker's account may follow Pods and pools"
    rights, account = case.cluster.rights, case.path.account
    if account is None or not rights:
        return skipped(name)
    refused = [right for right, allowed in rights.items() if allowed is False]
    if not refused:
        unknown = [right for right, allowed in rights.items() if allowed is None]
        return (
            skipped(name, f"it could not be asked for: {unknown[0]}") if unknown else ok(name, f"{len(rights)} rights")
        )
    told = "; ".join(map(str, refused))
    cause = (
        f"ServiceAccount {account} may not: the picker knows no endpoints, or old ones, and says that it cannot serve"
    )
    return failed(name, told, cause=cause, fix=_permit(account, list(rights), [one.namespace for one in refused]))


def _permit(account: Key, rights: Sequence[Right], namespaces: Sequence[str]) -> str:
    """Return the command that gives an account, where something is missing, all that a picker needs there."""
    documents = [one for where in dict.fromkeys(namespaces) for one in _permissions(account, rights, where)]
    text = shlex.quote(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}, separators=(",", ":")))
    return f"printf %s {text} | kubectl apply -f -"


def _permissions(account: Key, rights: Sequence[Right], namespace: str) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    name = f"{account.namespace}-{account.name}-missing"
    verbs: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for right in rights:
        if right.namespace == namespace:
            verbs.setdefault((right.group, right.resource, right.names), []).append(right.verb)
    rules = [
        {"apiGroups": [api], "resources": [what], "verbs": found, **({"resourceNames": list(names)} if names else {})}
        for (api, what, names), found in verbs.items()
    ]
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": name, "namespace": namespace}}
    role = {"apiGroup": group, "kind": "Role", "name": name}
    return [
        {**head, "kind": "Role", "rules": rules},
        {**head, "kind": "RoleBinding", "roleRef": role, "subjects": [{"kind": "ServiceAccount", **account._asdict()}]},
    ]


def _slices(service: Object) -> str:
    key = key_of(service)
    return f"kubectl get endpointslices -n {key.namespace} -l kubernetes.io/service-name={key.name} -o yaml"


def _port(case: Case) -> Object | None:
    wanted = case.path.picker.port if case.path.picker else 0
    return next((one for one in each(case.path.picker_service, "spec", "ports") if one.get("port") == wanted), None)


def _speaks_http2(port: Object) -> bool:
    said = port.get("appProtocol")
    if said:
        return str(said).removeprefix("kubernetes.io/").lower() in HTTP2
    return str(port.get("name") or "").split("-")[0].lower() in HTTP2


def _is_picker(deployment: Object) -> bool:
    words = arguments(mapping(deployment, "spec", "template"))
    return any(flags.value(words, name) for name in ("pool-name", "endpoint-selector"))
