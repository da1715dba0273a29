"""The picker's port for Envoy, as a client finds it: TLS as the gateway speaks it, ALPN h2, dates, gRPC health.

gRPC over TLS needs ALPN `h2` on both sides: a server that offers none is refused by every client of today with "missing
selected ALPN property", and nothing else looks wrong. TLS or not is a matter between two: what counts is that picker
and gateway agree.
"""

import shlex
from datetime import timedelta

from pointsman.core import flags
from pointsman.core.kinds import Key, Kind, Object, key_of
from pointsman.doctor.cluster.case import Case, command
from pointsman.doctor.cluster.envoyfilters import Endpoint
from pointsman.doctor.cluster.facts import Port
from pointsman.doctor.cluster.objects import ISTIO, at, command_line, each, kind_of, mapping, words
from pointsman.doctor.findings import Finding, failed, ok, skipped, warned
from pointsman.doctor.repairs import Repair

_SOON = timedelta(days=7)
_KNOWN_BY = ("pool-name", "endpoint-selector", "config-file", "config-text")


def port_is_open(case: Case) -> Finding:
    """Whether the picker takes connections."""
    name = "the picker takes connections"
    if not case.cluster.ports:
        return skipped(name, case.cluster.ports_why or "what it looks at is missing")
    away = [one for one in case.cluster.ports if not one.reached]
    if not away:
        return ok(name, ", ".join(one.address for one in case.cluster.ports))
    pod = key_of(case.path.picker_pods[0])
    fix = f"kubectl logs -n {pod.namespace} {pod.name} --all-containers --tail=50"
    cause = "the process is dead or hangs although its Pod is called ready, or it listens elsewhere"
    return failed(name, f"{away[0].address}: {away[0].why}", cause=cause, fix=fix)


def both_speak_tls(case: Case) -> Finding:
    """Whether the gateway speaks TLS to the picker exactly when the picker does."""
    name = "gateway and picker agree on TLS"
    port, picker = _reached(case), case.path.picker
    if port is None or picker is None:
        return skipped(name)
    speaks = _gateway_speaks_tls(case, picker)
    if speaks is None:
        return skipped(name, "how the gateway dials the picker cannot be seen")
    if speaks == port.tls:
        return ok(name, "both do" if speaks else "both do without")
    host = f"{picker.name}.{picker.namespace}.svc.cluster.local"
    rule = _rule(case, picker)
    if port.tls:
        evidence = f"the picker at {port.address} serves TLS, the gateway speaks plaintext to {host}"
        cause = "no handshake, no answer: every request gets 500. Istio needs a DestinationRule to speak TLS to it"
        return failed(name, evidence, cause=cause, fix=_speak_tls(picker, rule))
    evidence = f"the gateway speaks TLS to {host}, the picker at {port.address} serves plaintext"
    cause = "no handshake, no answer: every request gets 500"
    if rule is None:
        return failed(name, evidence, cause=cause, fix=_tls_rule(picker, {"mode": "DISABLE"}))
    fix = _speak_plaintext(picker, rule)
    return failed(name, f"{evidence}; DestinationRule {key_of(rule)} says so", cause=cause, fix=fix)


def alpn_is_h2(case: Case) -> Finding:
    """Whether the picker's TLS settles on HTTP/2, and the port speaks it."""
    name = "the picker's port settles on HTTP/2"
    port = _reached(case)
    if port is None:
        return skipped(name)
    if port.tls and port.alpn != "h2":
        evidence = f"{port.address} was offered ALPN h2 and chose {port.alpn or 'nothing'}"
        cause = (
            "gRPC clients refuse such a server with `missing selected ALPN property`: its TLS must offer h2. "
            "Use a picker that does, or let it serve plaintext and Istio encrypt"
        )
        return failed(name, evidence, cause=cause, fix=_plaintext(case))
    if not port.http2:
        evidence = f"{port.address} answered the HTTP/2 preface with {port.why or 'something else'}"
        cause = "nobody listens there, or no gRPC server: the picker is dead or hangs, or the port is another one's"
        pod = key_of(case.path.picker_pods[0])
        return failed(name, evidence, cause=cause, fix=f"kubectl get pod -n {pod.namespace} {pod.name} -o yaml")
    return ok(name, "ALPN h2" if port.tls else "in plaintext")


def certificate_is_valid(case: Case) -> Finding:
    """Whether the picker's certificate is one for today."""
    name = "the picker's certificate is valid today"
    port, now = _reached(case), case.cluster.now
    if port is None or not port.tls:
        return skipped(name, "the picker serves plaintext" if port else "what it looks at is missing")
    if port.ends is None or port.starts is None:
        return skipped(name, "it could not be read")
    dates = f"from {port.starts:%Y-%m-%d %H:%M} to {port.ends:%Y-%m-%d %H:%M} UTC"
    if port.starts <= now <= port.ends - _SOON:
        return ok(name, dates)
    if now <= port.ends and port.starts <= now:
        return warned(name, dates, cause="it ends within a week", fix=_renew(case))
    word = "expired" if now > port.ends else "not valid yet"
    upstream = case.proxy.upstreams.get(case.path.asked.cluster) if case.proxy and case.path.asked else None
    if upstream is not None and not upstream.verifies:
        cause = f"it is {word}; this gateway does not look at it, others will"
        return warned(name, dates, cause=cause, fix=_renew(case))
    return failed(name, dates, cause=f"it is {word}: a gateway that verifies it refuses the picker", fix=_renew(case))


def health_serves(case: Case) -> Finding:
    """Whether the picker says that it can serve."""
    name = "the picker's gRPC health says SERVING"
    if not case.cluster.health:
        return skipped(name)
    well = [one for one in case.cluster.health if one.status == "SERVING"]
    if well:
        away = f"; not serving: {len(case.cluster.health) - len(well)} (of several, only the leader serves)"
        return ok(name, f"{well[0].address}{away if len(well) < len(case.cluster.health) else ''}")
    first = case.cluster.health[0]
    if not first.status and not case.path.declares("grpc-health-port"):
        return skipped(name, f"{first.address}: {first.why}; its Pod declares no such port")
    pod = key_of(case.path.picker_pods[0])
    fix = f"kubectl logs -n {pod.namespace} {pod.name} --all-containers --tail=50"
    cause = "it has not synced its pool, or drains: its log says which"
    return failed(name, f"{first.address}: {first.status or first.why}", cause=cause, fix=fix)


def _reached(case: Case) -> Port | None:
    return next((one for one in case.cluster.ports if one.reached), None)


def _gateway_speaks_tls(case: Case, picker: Endpoint) -> bool | None:
    if case.proxy is not None and case.path.asked is not None:
        upstream = case.proxy.upstreams.get(case.path.asked.cluster)
        return upstream.tls if upstream else None
    if not case.istio:
        return None
    return _says_tls(_rule(case, picker), picker.port)


def _says_tls(rule: Object | None, port: int) -> bool:
    """Tell whether a DestinationRule has a gateway speak TLS to a port; what it says of the port goes first."""
    policy = mapping(rule, "spec", "trafficPolicy")
    levels = [one for one in each(policy, "portLevelSettings") if at(one, "port", "number") == port]
    said = (levels or [policy])[0]
    return at(said, "tls", "mode") in {"SIMPLE", "MUTUAL"}


def _rule(case: Case, picker: Endpoint) -> Object | None:
    """Return the DestinationRule about the picker: one for its very host, else the narrowest for many."""
    host = f"{picker.name}.{picker.namespace}.svc.cluster.local"
    about = [(str(at(one, "spec", "host")), one) for one in case.objects.all("DestinationRule")]
    own = [one for said, one in about if _is_host(said, one, picker)]
    wide = sorted((len(said), n) for n, (said, _) in enumerate(about) if said[:1] == "*" and host.endswith(said[1:]))
    return own[0] if own else about[wide[-1][1]][1] if wide else None


def _is_host(said: str, rule: Object, picker: Endpoint) -> bool:
    longer = f"{picker.name}.{picker.namespace}"
    near = key_of(rule).namespace == picker.namespace and said == picker.name
    return near or said == longer or said.startswith(f"{longer}.svc")


def _speak_tls(picker: Endpoint, rule: Object | None) -> Repair:
    tls = {"mode": "SIMPLE", "insecureSkipVerify": True}
    if rule is not None and _is_host(str(at(rule, "spec", "host")), rule, picker):
        body = {"spec": {"trafficPolicy": {"tls": tls}}}
        return Repair(kind=kind_of(rule), key=key_of(rule), how="merge", body=body)
    return _tls_rule(picker, tls)


def _speak_plaintext(picker: Endpoint, rule: Object) -> Repair:
    """Return the change of the picker's own rule; one for many hosts stays, and the picker gets its own."""
    policy = mapping(rule, "spec", "trafficPolicy")
    if not _is_host(str(at(rule, "spec", "host")), rule, picker):
        return _tls_rule(picker, {"mode": "DISABLE"})
    start = "/spec/trafficPolicy"
    spots = [f"{start}/tls"] if "tls" in policy else []
    spots += [
        f"{start}/portLevelSettings/{n}/tls" for n, one in enumerate(each(policy, "portLevelSettings")) if "tls" in one
    ]
    body = [{"op": "remove", "path": spot} for spot in spots]
    return Repair(kind=kind_of(rule), key=key_of(rule), how="json", body=body)


def _tls_rule(picker: Endpoint, tls: Object) -> Repair:
    body = {
        "apiVersion": f"{ISTIO}/v1",
        "kind": "DestinationRule",
        "metadata": {"name": picker.name, "namespace": picker.namespace},
        "spec": {
            "host": f"{picker.name}.{picker.namespace}.svc.cluster.local",
            "trafficPolicy": {"tls": tls},
        },
    }
    kind = Kind(ISTIO, "v1", "DestinationRule", "destinationrules")
    return Repair(kind=kind, key=Key(picker.namespace, picker.name), how="apply", body=body, safe=True)


def _plaintext(case: Case) -> str | Repair:
    """Return what lets the picker serve plaintext, and the gateway speak it."""
    deployment = case.path.picker_deployment
    if deployment is None:
        return "kubectl get deployments -A -o wide | grep -i epp"
    body: list[Object] = []
    for place, container in enumerate(each(deployment, "spec", "template", "spec", "containers")):
        if any(flags.value(command_line(container), name) for name in _KNOWN_BY):
            kept = flags.without(words(container, "args"), (), switches=("secure-serving",))
            value = [*kept, "--secure-serving=false"]  # of a flag in both, the last counts
            body.append({"op": "add", "path": f"/spec/template/spec/containers/{place}/args", "value": value})
    if not body:
        return command("edit", deployment)
    change = Repair(kind=kind_of(deployment), key=key_of(deployment), how="json", body=body)
    rule = _rule(case, case.path.picker) if case.path.picker and case.istio else None
    if case.path.picker is None or rule is None or not _says_tls(rule, case.path.picker.port):
        return change
    return f"{change.command()} && {_speak_plaintext(case.path.picker, rule).command()}"


def _renew(case: Case) -> str:
    """Return how the certificate gets a new date: a self-signed one by a restart, a Secret's by whoever fills it."""
    deployment = case.path.picker_deployment
    if deployment is None:
        return "kubectl get pods -A -o wide | grep -i epp"
    key = key_of(deployment)
    folder = flags.value(case.path.arguments, "cert-path")
    secrets = [
        str(at(one, "secret", "secretName"))
        for one in each(deployment, "spec", "template", "spec", "volumes")
        if mapping(one, "secret")
    ]
    if folder and secrets:
        return (
            f"kubectl create secret tls -n {key.namespace} {shlex.quote(secrets[0])} --cert=tls.crt --key=tls.key "
            "--dry-run=client -o yaml | kubectl apply -f -"
        )
    return f"kubectl rollout restart deployment -n {key.namespace} {key.name}"
