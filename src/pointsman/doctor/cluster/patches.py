"""EnvoyFilters that someone wrote to have a picker asked, and why the usual ones cannot work.

The manual that many start from replaces Istio's filter with one whose modes are all off, adds a cluster with the
Service's address of that day, and turns it on per route by means that do not exist. Each of these mistakes is looked
for by itself, so that one that was half repaired is still explained.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pointsman.core.kinds import Object, key_of
from pointsman.doctor import envoy
from pointsman.doctor.cluster.case import Case, command
from pointsman.doctor.cluster.envoyfilters import (
    GATEWAY_LABEL,
    aims_elsewhere,
    concerns_picking,
    endpoint_of_cluster,
    patches,
)
from pointsman.doctor.cluster.objects import at, each, kind_of, mapping, selects
from pointsman.doctor.cluster.path import EXT_PROC, is_pool, routes_of
from pointsman.doctor.findings import Finding, failed, ok, skipped, warned
from pointsman.doctor.repairs import Repair

DUPLEX = "FULL_DUPLEX_STREAMED"
SEND = frozenset({"SEND"})
_FILTER_TYPE = "ext_proc.v3.ExternalProcessor"
_ROUTE_TYPE = "ExtProcPerRoute"
_PLACEHOLDER = "EPP_SERVICE_CLUSTER_IP"


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One patch of an EnvoyFilter."""

    owner: Object
    place: int
    document: Object

    @property
    def where(self) -> str:
        return f"EnvoyFilter {key_of(self.owner)}, patch {self.place} ({self.document.get('applyTo')})"

    @property
    def operation(self) -> str:
        return str(at(self.document, "patch", "operation"))

    @property
    def value(self) -> Object:
        return mapping(self.document, "patch", "value")


def filters_are_in_reach(case: Case) -> Finding:
    """Whether an EnvoyFilter that means this Gateway stands where it is applied."""
    name = "EnvoyFilters reach the gateway"
    gateway = case.path.gateway
    if gateway is None:
        return skipped(name)
    astray = [one for one in case.objects.all("EnvoyFilter") if concerns_picking(one) and aims_elsewhere(one, gateway)]
    if astray and not any(map(concerns_picking, case.path.filters)):
        home = key_of(gateway).namespace
        evidence = f"EnvoyFilter {key_of(astray[0])} means Gateway {key_of(gateway)}"
        cause = f"an EnvoyFilter is applied to proxies of its own namespace only: it must be in {home}"
        key = key_of(astray[0])
        fix = (
            f"kubectl get envoyfilter -n {key.namespace} {key.name} -o yaml | "
            f"sed 's/namespace: {key.namespace}/namespace: {home}/' | kubectl create -f - && "
            f"kubectl delete envoyfilter -n {key.namespace} {key.name}"
        )
        return failed(name, evidence, cause=cause, fix=fix)
    return _lost(name, case, gateway) or ok(name, f"{len(_ours(case))} about the picker")


def _lost(name: str, case: Case, gateway: Object) -> Finding | None:
    """Return that an EnvoyFilter is applied to nobody: its labels, or its patches' context, are no gateway's."""
    pods = [mapping(one, "metadata", "labels") for one in case.path.gateway_pods]
    for one in filter(concerns_picking, case.objects.all("EnvoyFilter")):
        labels = mapping(one, "spec", "workloadSelector", "labels")
        here = key_of(one).namespace == key_of(gateway).namespace
        if here and labels and not _selects_any(case, labels, key_of(one).namespace, pods):
            shown = ",".join(f"{key}={value}" for key, value in labels.items())
            evidence = f"EnvoyFilter {key_of(one)} selects {shown}, which no Pod in {key_of(one).namespace} has"
            change = {**dict.fromkeys(labels), GATEWAY_LABEL: key_of(gateway).name}
            body = {"spec": {"workloadSelector": {"labels": change}}}
            fix = Repair(kind=kind_of(one), key=key_of(one), how="merge", body=body)
            return failed(name, evidence, cause="it is applied to no proxy at all: the picker is not asked", fix=fix)
    for patch in _patches(case, "HTTP_FILTER", "HTTP_ROUTE", "VIRTUAL_HOST"):
        context = str(at(patch.document, "match", "context") or "ANY")
        if context not in {"ANY", "GATEWAY"} and "ext_proc" in str(patch.value):
            body_ = [{"op": "replace", "path": f"/spec/configPatches/{patch.place}/match/context", "value": "GATEWAY"}]
            cause = "a gateway's configuration is of the context GATEWAY: the patch changes nothing there"
            return failed(name, f"{patch.where} is for {context}", cause=cause, fix=_repair(patch, body_))
    return None


def _selects_any(case: Case, labels: Object, namespace: str, gateways: list[Object]) -> bool:
    """Tell whether labels select a Pod; without any Pod of the gateway nobody can tell, so they may."""
    found = [
        mapping(one, "metadata", "labels") for one in case.objects.all("Pod") if key_of(one).namespace == namespace
    ]
    return not gateways or any(selects(labels, one) for one in found)


def nothing_is_replaced(case: Case) -> Finding:
    """Whether a REPLACE of Istio's own filter hits nothing, or takes away what makes it work."""
    name = "no EnvoyFilter replaces Istio's filter"
    if not _ours(case):
        return skipped(name, _NONE)
    for patch in _patches(case, "HTTP_FILTER"):
        if patch.operation != "REPLACE" or EXT_PROC not in str(patch.document):
            continue
        received = mapping(patch.value, "typed_config", "metadata_options", "receiving_namespaces").get("untyped") or ()
        if not _native(case):
            cause = (
                f"REPLACE changes a filter that is there, and this gateway has no {EXT_PROC}: Istio adds one only "
                "for routes to an InferencePool. The picker is never asked"
            )
            return failed(name, f"{patch.where} is a REPLACE", cause=cause, fix=_delete(patch))
        if envoy.METADATA not in received:
            cause = (
                f"it throws away Istio's metadata_options (receiving_namespaces {envoy.METADATA}) and its timeout of "
                "1000 s: the picker is asked, all statistics are clean, and its pick is ignored. A route to an "
                "InferencePool needs no EnvoyFilter"
            )
            return failed(name, f"{patch.where} is a REPLACE without metadata_options", cause=cause, fix=_delete(patch))
    return ok(name, "none does")


def the_filter_is_switched_on(case: Case) -> Finding:
    """Whether a filter that is off for all routes is on for ours."""
    name = "the filter is switched on for the route"
    if not _ours(case):
        return skipped(name, _NONE)
    for patch in _patches(case, "HTTP_FILTER"):
        if not _is_filter(patch.value):
            continue
        modes = envoy.read_modes(mapping(patch.value, "typed_config", "processing_mode"))
        off = modes["request_header_mode"] == "SKIP" and modes["request_body_mode"] in {"NONE", "DEFAULT"}
        named = str(patch.value.get("name"))
        native = named == EXT_PROC and _native(case)
        if (off or patch.value.get("disabled") is True) and not native and not _activated(case, named):
            cause = (
                "with every mode off and no route that says otherwise the picker is never asked (rq_total stays 0). "
                "Neither an annotation nor an ExtensionRef can say so: it takes an HTTP_ROUTE patch with a complete "
                f"{_ROUTE_TYPE} on route {case.path.route_name}"
            )
            evidence = (
                f"{patch.where}: {named} has request_header_mode {modes['request_header_mode']}, request_body_mode "
                f"{modes['request_body_mode']}, and no route turns it on"
            )
            return failed(name, evidence, cause=cause, fix=_delete(patch))
    return ok(name, "it is, or needs not be")


def bodies_are_duplex(case: Case) -> Finding:
    """Whether the picker gets the body in the one mode in which it may read it before it answers."""
    name = "the picker is shown bodies in full duplex"
    if not _ours(case):
        return skipped(name, _NONE)
    for patch, modes in _modes(case):
        headers, body = modes["request_header_mode"], modes["request_body_mode"]
        if headers == "SKIP" and body in {"NONE", "DEFAULT"}:
            continue  # off, which is judged elsewhere
        if body == DUPLEX and headers in {"SEND", "DEFAULT"}:
            continue
        return failed(
            name,
            f"{patch.where}: request_header_mode {headers}, request_body_mode {body}",
            cause=_why(headers, body),
            fix=_right_modes(patch),
        )
    return ok(name, DUPLEX)


def _why(headers: str, body: str) -> str:
    if headers == "SKIP":
        return (
            "with headers skipped Envoy has chosen the backend before the picker is asked, and the pick, which is in "
            "the answer to the headers, comes as a message that Envoy did not ask for: it gives up, and lets the "
            "request go if failure_mode_allow is true"
        )
    if body in {"NONE", "DEFAULT"}:
        return (
            "the picker reads model and prompt from the body and answers when it has all of it; it never comes, so "
            "after message_timeout (0.2 s unless set) every POST gets 504, or goes anywhere if failure_mode_allow is "
            "true"
        )
    return (
        f"in {body} Envoy waits for the answer to the headers before it sends the body, and the picker waits for the "
        f"body before it answers: only {DUPLEX} does not deadlock"
    )


def _right_modes(patch: Patch) -> Repair:
    right = {
        "request_header_mode": "SEND",
        "request_body_mode": DUPLEX,
        "request_trailer_mode": "SEND",
        "response_header_mode": "SEND",
        "response_body_mode": DUPLEX,
        "response_trailer_mode": "SEND",
    }
    start = f"/spec/configPatches/{patch.place}/patch/value"
    body = [
        {
            "op": "add",
            "path": f"{start}/typed_per_filter_config/{_escaped(name)}/overrides/processing_mode",
            "value": right,
        }
        for name, one in mapping(patch.value, "typed_per_filter_config").items()
        if _ROUTE_TYPE in str(one)
    ] or [{"op": "add", "path": f"{start}/typed_config/processing_mode", "value": right}]
    return _repair(patch, body)


def overrides_are_complete(case: Case) -> Finding:
    """Whether a route's entry says everything: it replaces what Istio says, it does not add to it."""
    name = "per-route entries are complete"
    if not _ours(case):
        return skipped(name, _NONE)
    for patch in _patches(case, "HTTP_ROUTE", "VIRTUAL_HOST"):
        for filter_name, one in mapping(patch.value, "typed_per_filter_config").items():
            said = mapping(one, "overrides")
            if _ROUTE_TYPE in str(one) and said and "processing_mode" not in said and filter_name == EXT_PROC:
                cause = (
                    "the entry replaces Istio's whole entry, so its modes are gone and the picker is never asked, "
                    "although no request fails and no statistic shows it: repeat processing_mode in full"
                )
                return failed(name, f"{patch.where} has no processing_mode", cause=cause, fix=_right_modes(patch))
    return ok(name, "they are")


def route_names_match(case: Case) -> Finding:
    """Whether the route that a patch is for exists under that name."""
    name = "patches name routes that exist"
    gateway = case.path.gateway
    if not _ours(case) or gateway is None:
        return skipped(name, _NONE)
    known = {label: (route, number) for route in routes_of(case.objects, gateway) for label, number in _names(route)}
    for patch in _patches(case, "HTTP_ROUTE"):
        wanted = str(at(patch.document, "match", "routeConfiguration", "vhost", "route", "name") or "")
        if not wanted or wanted in known:
            continue
        evidence = f"{patch.where} is for route {wanted}; routes of this gateway: {', '.join(known) or 'none'}"
        return _shifted(name, case, patch, wanted, evidence)
    wide = [one for one in _patches(case, "HTTP_ROUTE") if _aims_at_all(one)]
    if wide and len(known) > 1:
        cause = "it has no route name, so every route of this gateway asks the picker, also those that lead elsewhere"
        return warned(
            name, f"{wide[0].where} matches {', '.join(known)}", cause=cause, fix=_aim(wide[0], case.path.route_name)
        )
    return ok(name, "they do")


def _shifted(name: str, case: Case, patch: Patch, wanted: str, evidence: str) -> Finding:
    for route in routes_of(case.objects, case.path.gateway or {}):
        for number, rule in enumerate(each(route, "spec", "rules")):
            key = key_of(route)
            if rule.get("name") and wanted == f"{key.namespace}.{key.name}.{number}":
                cause = (
                    f"rule {number} of HTTPRoute {key} has the name {rule['name']}, and Istio calls its route just "
                    "that: the patch hits nothing"
                )
                body = [{"op": "remove", "path": f"/spec/rules/{number}/name"}]
                return failed(
                    name, evidence, cause=cause, fix=Repair(kind=kind_of(route), key=key, how="json", body=body)
                )
    return failed(name, evidence, cause="the patch hits nothing", fix=_aim(patch, case.path.route_name))


def addresses_are_live(case: Case) -> Finding:
    """Whether an address that was written down is still the one it was."""
    name = "addresses in EnvoyFilters are live"
    if not _ours(case):
        return skipped(name, _NONE)
    services = {str(at(one, "spec", "clusterIP")): one for one in case.objects.all("Service")}
    pods = {str(at(one, "status", "podIP")) for one in case.objects.all("Pod")}
    for patch in _patches(case, "CLUSTER"):
        for address in envoy.addresses(patch.value):
            host = address.rpartition(":")[0]
            if not _literal(host):
                continue
            if host not in services and host not in pods:
                return failed(
                    name,
                    f"{patch.where}: cluster {patch.value.get('name')} has {address}, which no Service and no Pod has",
                    cause=_gone(host),
                    fix=_follow(case, patch, host),
                )
            if patch.value.get("name") in _asked_clusters(case):
                return warned(
                    name,
                    f"{patch.where}: cluster {patch.value.get('name')} has {address} written into it",
                    cause=_LITERAL,
                    fix=_by_name(case, patch),
                )
    return ok(name, "none is written down, or all are")


_LITERAL = (
    "it is the Service's address of today: recreated, it has another one and requests fail. And it pins all requests "
    "to one Pod of the picker. Istio has a cluster of its own for every Service, which follows it"
)


def _gone(host: str) -> str:
    if host == _PLACEHOLDER:
        return "the placeholder was not replaced: no connection to the picker is possible"
    return "the Service was recreated with another address: the gateway dials nobody"


def _follow(case: Case, patch: Patch, host: str) -> str | Repair:
    live = at(case.path.picker_service, "spec", "clusterIP") or _nearest_picker(case)
    if not live:
        return "kubectl get services -A | grep -i epp"
    ends = list(_spots(patch, host))
    body = [{"op": "replace", "path": spot, "value": live} for spot in ends]
    return Repair(kind=kind_of(patch.owner), key=key_of(patch.owner), how="json", body=body, safe=True)


def _nearest_picker(case: Case) -> str:
    """Return the address of the one Service that looks like a picker's in the EnvoyFilter's namespace."""
    homes = {key_of(one).namespace for one in _ours(case)}
    found = [
        str(at(one, "spec", "clusterIP"))
        for one in case.objects.all("Service")
        if key_of(one).namespace in homes and any(port.get("port") == 9002 for port in each(one, "spec", "ports"))
    ]
    return found[0] if len(found) == 1 else ""


def _spots(patch: Patch, host: str) -> Iterator[str]:
    start = f"/spec/configPatches/{patch.place}/patch/value/load_assignment/endpoints"
    for n, group in enumerate(each(patch.value, "load_assignment", "endpoints")):
        for m, member in enumerate(each(group, "lb_endpoints")):
            if at(member, "endpoint", "address", "socket_address", "address") == host:
                yield f"{start}/{n}/lb_endpoints/{m}/endpoint/address/socket_address/address"


def _by_name(case: Case, patch: Patch) -> str | Repair:
    """Return the change by which the EnvoyFilter asks Istio's own cluster of the picker's Service."""
    picker = case.path.picker
    if picker is None:
        return command("edit", patch.owner)
    istios = f"outbound|{picker.port}||{picker.name}.{picker.namespace}.svc.cluster.local"
    theirs = str(patch.value.get("name"))
    mine = [Patch(owner=patch.owner, place=place, document=one) for place, one in patches(patch.owner)]
    body = [{"op": "replace", "path": spot, "value": istios} for one in mine for spot in _asking(one, theirs)]
    return _repair(patch, body)


def _asking(patch: Patch, cluster: str) -> Iterator[str]:
    """Yield where a patch names a cluster as the picker's."""
    start, end = f"/spec/configPatches/{patch.place}/patch/value", "grpc_service/envoy_grpc/cluster_name"
    if envoy.grpc_cluster(mapping(patch.value, "typed_config")) == cluster:
        yield f"{start}/typed_config/{end}"
    for name, one in mapping(patch.value, "typed_per_filter_config").items():
        if envoy.grpc_cluster(mapping(one, "overrides")) == cluster:
            yield f"{start}/typed_per_filter_config/{_escaped(name)}/overrides/{end}"


def timeout_is_long_enough(case: Case) -> Finding:
    """Whether Envoy waits for the picker longer than a long prompt takes."""
    name = "the filter waits long enough"
    if not _ours(case):
        return skipped(name, _NONE)
    for patch in _patches(case, "HTTP_FILTER"):
        if not _is_filter(patch.value):
            continue
        config = mapping(patch.value, "typed_config")
        if patch.operation == "MERGE" and "message_timeout" not in config:
            continue
        said = envoy.seconds(config.get("message_timeout"))
        if (envoy.MESSAGE_TIMEOUT if said is None else said) >= 1:
            continue
        shown = f"message_timeout is {said:g} s" if said is not None else "message_timeout is not set: 0.2 s"
        cause = (
            "a prompt that takes longer to arrive, or a picker that is busy for a moment, is given up: 504, or any "
            "Pod if failure_mode_allow is true"
        )
        spot = f"/spec/configPatches/{patch.place}/patch/value/typed_config/message_timeout"
        fix = _repair(patch, [{"op": "add", "path": spot, "value": "1000s"}], safe=True)
        return failed(name, f"{patch.where}: {shown}", cause=cause, fix=fix)
    return ok(name, "it does")


_NONE = "no EnvoyFilter has to do with a picker"


def _ours(case: Case) -> list[Object]:
    return [one for one in case.path.filters if concerns_picking(one)]


def _patches(case: Case, *kinds: str) -> Iterator[Patch]:
    for owner in _ours(case):
        for place, document in patches(owner):
            if document.get("applyTo") in kinds:
                yield Patch(owner=owner, place=place, document=document)


def _is_filter(value: Object) -> bool:
    return str(at(value, "typed_config", "@type")).endswith(_FILTER_TYPE)


def _native(case: Case) -> bool:
    """Tell whether Istio itself puts a filter into this gateway: it does for routes to a pool."""
    if case.proxy is not None:
        return any(one.name == EXT_PROC for one in case.proxy.filters)
    gateway = case.path.gateway
    routes = routes_of(case.objects, gateway) if gateway else []
    return case.istio and any(
        is_pool(one) for route in routes for rule in each(route, "spec", "rules") for one in each(rule, "backendRefs")
    )


def _activated(case: Case, name: str) -> bool:
    """Tell whether a patch of a route turns a filter on."""
    entries = [
        mapping(one.value, "typed_per_filter_config").get(name) for one in _patches(case, "HTTP_ROUTE", "VIRTUAL_HOST")
    ]
    return any(isinstance(one, dict) and not one.get("disabled") for one in entries)


def _modes(case: Case) -> Iterator[tuple[Patch, dict[str, str]]]:
    """Yield every patch that says modes, with them; a filter's own count only where no route says others."""
    for patch in _patches(case, "HTTP_ROUTE", "VIRTUAL_HOST"):
        for one in mapping(patch.value, "typed_per_filter_config").values():
            said = mapping(one, "overrides")
            if _ROUTE_TYPE in str(one) and "processing_mode" in said:
                yield patch, envoy.read_modes(mapping(said, "processing_mode"))
    for patch in _patches(case, "HTTP_FILTER"):
        config = mapping(patch.value, "typed_config")
        silent = patch.operation == "MERGE" and "processing_mode" not in config
        if _is_filter(patch.value) and not silent and not _activated(case, str(patch.value.get("name"))):
            yield patch, envoy.read_modes(mapping(config, "processing_mode"))


def _names(route: Object) -> Iterator[tuple[str, int]]:
    key = key_of(route)
    for number, rule in enumerate(each(route, "spec", "rules")):
        yield str(rule.get("name") or f"{key.namespace}.{key.name}.{number}"), number


def _aims_at_all(patch: Patch) -> bool:
    entry = "ext" in str(patch.value.get("typed_per_filter_config"))
    return entry and not at(patch.document, "match", "routeConfiguration")


def _aim(patch: Patch, route: str) -> Repair:
    spot = f"/spec/configPatches/{patch.place}/match/routeConfiguration"
    return _repair(patch, [{"op": "add", "path": spot, "value": {"vhost": {"route": {"name": route}}}}])


def _asked_clusters(case: Case) -> set[str]:
    from_patches = {envoy.grpc_cluster(mapping(one.value, "typed_config")) for one in _patches(case, "HTTP_FILTER")} | {
        envoy.grpc_cluster(mapping(entry, "overrides"))
        for one in _patches(case, "HTTP_ROUTE", "VIRTUAL_HOST")
        for entry in mapping(one.value, "typed_per_filter_config").values()
    }
    return {one for one in from_patches if one and endpoint_of_cluster(one) is None}


def _literal(host: str) -> bool:
    return host == _PLACEHOLDER or (bool(host) and all(letter in "0123456789abcdef.:" for letter in host))


def _delete(patch: Patch) -> Repair:
    return Repair(kind=kind_of(patch.owner), key=key_of(patch.owner), how="delete")


def _repair(patch: Patch, body: list[Object], *, safe: bool = False) -> Repair:
    return Repair(kind=kind_of(patch.owner), key=key_of(patch.owner), how="json", body=body, safe=safe)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
