"""Ways to break a cluster that is well, and what must hold of whatever is found then."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.unit.doctor.scene import (
    EXT_PROC,
    PICKER_CLUSTER,
    POOL_CLUSTER,
    SCHED,
    SIM,
    Scene,
    broken,
    eds,
    envoyfilter,
    listener,
    live_route,
    native_filter,
    per_route,
)

from pointsman.doctor.cluster.chain import examine
from pointsman.doctor.cluster.facts import Port, Probe
from pointsman.doctor.findings import first_cause
from pointsman.doctor.report import document, exit_code, lines

Document = dict[str, Any]
Break = Callable[[Scene], None]


def assert_first_cause(breaks: tuple[Break, ...], check: str, evidence: str, fix: str) -> None:
    """See that what was broken is the first cause, named with what was found, and that there is a command to copy."""
    findings = examine(broken(*breaks).cluster())
    cause = first_cause(findings)
    assert cause is not None
    assert (cause.check, cause.verdict) == (check, "failed"), cause
    assert evidence in cause.evidence
    assert fix in cause.fix
    assert cause.cause
    assert exit_code(findings) == 1
    assert document(findings)["firstCause"] == check
    json.dumps(document(findings))
    assert list(lines(findings))[-1] == f"try:         {cause.fix}"
    assert shlex.split(cause.fix)[0] in {"kubectl", "pointsman", "printf", "istioctl"}, "nothing to copy"


def change(kind: str, name: str, *path: str | int, to: Any = None) -> Break:
    """Set, or remove, one field of an object."""

    def break_(scene: Scene) -> None:
        at: Any = scene.get(kind, name)
        for step in path[:-1]:
            at = at[step]
        if to is None:
            del at[path[-1]]
        else:
            at[path[-1]] = to

    return break_


def drop(kind: str, name: str) -> Break:
    return lambda scene: scene.drop(kind, name)


def add(*documents: Document) -> Break:
    return lambda scene: scene.add(*documents)


def pages(**changes: Any) -> Break:
    def break_(scene: Scene) -> None:
        assert scene.pages is not None
        for name, value in changes.items():
            setattr(scene.pages, name, value)

    return break_


def unseen(scene: Scene) -> None:
    scene.pages = None


def says(kind: str, name: str, type_: str, reason: str, message: str = "", *, status: str = "False") -> Break:
    """Let a condition say something else."""

    def break_(scene: Scene) -> None:
        holder = scene.get(kind, name)["status"]
        for one in (holder, *holder.get("parents", ())):
            for condition in one.get("conditions", ()):
                if condition["type"] == type_:
                    condition |= {"status": status, "reason": reason, "message": message}

    return break_


def probes(*, status: int | None = 200, seconds: float = 0.01, **changes: Any) -> Break:
    def break_(scene: Scene) -> None:
        one = Probe(status=status, answered="sim-1", picked="sim-1", seconds=seconds)
        scene.probes = [scene.probes[0], replace(one, **changes)]

    return break_


def unready(name: str, why: str) -> Break:
    def break_(scene: Scene) -> None:
        status = scene.get("Pod", name)["status"]
        status["conditions"][0]["status"] = "False"
        status["containerStatuses"] = [{"state": {"waiting": {"reason": why, "message": "back-off"}}}]

    return break_


def tls(**changes: Any) -> Break:
    """Let gateway and picker speak TLS, with something about it changed."""

    def break_(scene: Scene) -> None:
        assert scene.pages is not None
        verifies = bool(changes.pop("verifies", True))
        scene.tls(**changes)
        scene.pages.clusters[0] = eds(PICKER_CLUSTER, http2=True, tls=True, verifies=verifies)

    return break_


def ports(*found: Port) -> Break:
    return lambda scene: setattr(scene, "ports", list(found))


NO_POOLS = "InferencePool is not enabled. To enable, set ENABLE_GATEWAY_API_INFERENCE_EXTENSION to true in istiod"
POOLS = "inferencepools.inference.networking.k8s.io"


def patch(apply_to: str, operation: str, value: Document, **match: Any) -> Document:
    return {
        "applyTo": apply_to,
        "match": {"context": "GATEWAY", **match},
        "patch": {"operation": operation, "value": value},
    }


def manual_filter(**changes: Any) -> Document:
    """The manual's filter: everything off."""
    off = {"request_header_mode": "SKIP", "request_body_mode": "NONE"}
    off |= {"response_header_mode": "SKIP", "response_body_mode": "NONE"}
    config = native_filter()["typed_config"]
    config = {key: config[key] for key in ("@type",)} | {
        "grpc_service": {"envoy_grpc": {"cluster_name": "epp-cluster"}, "timeout": "2s"},
        "processing_mode": off,
    }
    return {"name": EXT_PROC, "typed_config": {**config, **changes}}


def manual_cluster(address: str = "10.96.0.9") -> Document:
    place = {"endpoint": {"address": {"socket_address": {"address": address, "port_value": 9002}}}}
    assignment = {"cluster_name": "epp-cluster", "endpoints": [{"lb_endpoints": [place]}]}
    value = {"name": "epp-cluster", "type": "STATIC", "http2_protocol_options": {}, "load_assignment": assignment}
    return patch("CLUSTER", "ADD", value)


SUB_FILTER = {"filterChain": {"filter": {"name": "hcm", "subFilter": {"name": EXT_PROC}}}}
REPLACE = patch("HTTP_FILTER", "REPLACE", manual_filter(), listener=SUB_FILTER)
MANUAL = envoyfilter(REPLACE, manual_cluster())
SERVICE_BACKEND = {"name": "sim", "namespace": SIM, "port": 8200}


def as_replaced(scene: Scene) -> None:
    """Let Envoy have what the manual's filter makes of Istio's, on a route to a pool."""
    assert scene.pages is not None
    scene.pages.listeners = [listener(ext_proc=[manual_filter()])]
    scene.probes = [Probe(status=200, answered=f"sim-{n}", picked="sim-1") for n in (1, 2, 3, 1)]


def by_service(scene: Scene) -> None:
    """Lead the rule to the Service, as without the inference extension; Envoy then has no filter."""
    scene.get("HTTPRoute", "llm")["spec"]["rules"][0]["backendRefs"] = [SERVICE_BACKEND]
    assert scene.pages is not None
    name = f"outbound|8200||sim.{SIM}.svc.cluster.local"
    scene.pages.listeners = [listener(ext_proc=[])]
    scene.pages.routes = [live_route(f"{SCHED}.llm.0", name, {})]
    scene.pages.members[name] = [f"10.244.0.{n}:8200" for n in (1, 2, 3)]
    scene.counts = {"streams_started": 0}
    scene.probes = [Probe(status=200, answered=f"sim-{n}", picked="") for n in (1, 2, 3)]


def own_route_patch(modes: Document | None, *, name: str = f"{SCHED}.llm.0", **changes: Any) -> Document:
    match = {"routeConfiguration": {"vhost": {"route": {"name": name}}}} if name else {}
    return patch("HTTP_ROUTE", "MERGE", {"typed_per_filter_config": {EXT_PROC: per_route(modes, **changes)}}, **match)


def half(modes: Document) -> Break:
    """An EnvoyFilter that overrides the route's modes, as Envoy has it then."""

    def break_(scene: Scene) -> None:
        scene.add(envoyfilter(own_route_patch(modes)))
        assert scene.pages is not None
        scene.pages.routes = [live_route(f"{SCHED}.llm.0", POOL_CLUSTER, {EXT_PROC: per_route(modes)})]

    return break_
