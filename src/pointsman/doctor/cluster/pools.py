"""The pool: which Pods it selects, whether they serve on its port, and whether its status is about what it says now."""

from collections import Counter
from typing import Any

from pointsman.core.kinds import Object, key_of
from pointsman.doctor.cluster.case import Case, command, status_of_parent, told
from pointsman.doctor.cluster.objects import (
    at,
    condition,
    container_ports,
    each,
    kind_of,
    mapping,
    number,
    pod_ready,
    pod_trouble,
)
from pointsman.doctor.findings import Finding, failed, ok, skipped, warned
from pointsman.doctor.repairs import Repair


def selects_pods(case: Case) -> Finding:
    """Whether anything is selected."""
    name = "the backend selects Pods"
    backend = case.path.pool or case.path.service
    if backend is None:
        return skipped(name)
    if case.path.servers:
        return ok(name, f"{len(case.path.servers)} Pods")
    selector = _selector(backend)
    shown = ",".join(f"{key}={value}" for key, value in selector.items()) or "nothing"
    near = _candidates(case, backend)
    evidence = f"{backend['kind']} {key_of(backend)} selects {shown}; no Pod in {key_of(backend).namespace} has that"
    likely = _likely(selector, near)
    if not likely:
        cause = "there is nobody to pick: the model servers are not there, or are labelled differently"
        fix = f"kubectl get pods -n {key_of(backend).namespace} --show-labels"
        return failed(name, evidence, cause=cause, fix=fix)
    wanted = ",".join(f"{key}={value}" for key, value in likely.items())
    cause = f"there is nobody to pick: the Pods that serve on its port have {wanted}"
    gone = dict.fromkeys(set(selector) - set(likely))
    change = {**likely, **gone}
    nested = {"matchLabels": change} if case.path.pool is not None else change
    fix_ = Repair(kind=kind_of(backend), key=key_of(backend), how="merge", body={"spec": {"selector": nested}})
    return failed(name, evidence, cause=cause, fix=fix_)


def pods_are_ready(case: Case) -> Finding:
    """Whether the selected Pods take requests."""
    name = "the selected Pods are ready"
    pods = case.path.servers
    if not pods:
        return skipped(name)
    away = [pod for pod in pods if not pod_ready(pod)]
    if not away:
        return ok(name, f"{len(pods)} of {len(pods)}")
    first = away[0]
    evidence = f"{len(pods) - len(away)} of {len(pods)}; {key_of(first).name}: {pod_trouble(first)}"
    fix = f"kubectl describe pod -n {key_of(first).namespace} {key_of(first).name}"
    tell = failed if len(away) == len(pods) else warned
    return tell(name, evidence, cause="a Pod that is not ready is not picked", fix=fix)


def ports_are_served(case: Case) -> Finding:
    """Whether the Pods declare the port that the pool names."""
    name = "the Pods serve on the pool's port"
    pool = case.path.pool
    if pool is None or not case.path.servers:
        return skipped(name)
    wanted = _target_ports(pool)
    declared = sorted({port for pod in case.path.servers for port in container_ports(pod).values()})
    if not declared:
        return skipped(name, "the Pods declare no ports")
    missing = [port for port in wanted if port not in declared]
    if not missing:
        return _strangers(name, case, pool, wanted) or ok(name, ", ".join(map(str, wanted)))
    evidence = (
        f"the pool's targetPorts are {', '.join(map(str, wanted))}, the Pods declare {', '.join(map(str, declared))}"
    )
    field = "targetPorts" if at(pool, "spec", "targetPorts") else "targetPortNumber"
    value = [{"number": declared[0]}] if field == "targetPorts" else declared[0]
    fix: str | Repair = command("edit", pool)
    if len(declared) == 1:
        fix = Repair(kind=kind_of(pool), key=key_of(pool), how="merge", body={"spec": {field: value}})
    return failed(name, evidence, cause="a picked Pod refuses the connection", fix=fix)


def _strangers(name: str, case: Case, pool: Object, wanted: list[int]) -> Finding | None:
    """Return that Pods are selected which serve something else, if there are any."""
    ports = {key_of(pod).name: set(container_ports(pod).values()) for pod in case.path.servers}
    others = [one for one, found in ports.items() if found and not found & set(wanted)]
    if not others:
        return None
    shown = ", ".join(f"{key}={value}" for key, value in _selector(pool).items())
    evidence = f"{shown} selects {', '.join(others)} too, which does not declare {', '.join(map(str, wanted))}"
    cause = "a Pod that is no model server is picked like one, and refuses the connection: select by a label of theirs"
    better = _of_all(case, others)
    gone = dict.fromkeys(set(_selector(pool)) - set(better))
    body = {"spec": {"selector": {"matchLabels": {**gone, **better}}}}
    fix = Repair(kind=kind_of(pool), key=key_of(pool), how="merge", body=body) if better else command("edit", pool)
    return failed(name, evidence, cause=cause, fix=fix)


def _of_all(case: Case, others: list[str]) -> dict[str, str]:
    """Return the labels that all servers have but those others; nothing where the others have all of them, too."""
    labels = {
        key_of(pod).name: {(key, str(value)) for key, value in mapping(pod, "metadata", "labels").items()}
        for pod in case.path.servers
    }
    servers = [found for one, found in labels.items() if one not in others]
    shared = set.intersection(*servers) if servers else set()
    shared = {pair for pair in shared if pair[0] != "pod-template-hash"}
    return dict(sorted(shared)) if all(not shared <= labels[one] for one in others) else {}


def status_is_current(case: Case) -> Finding:
    """Whether what the pool says of itself is about what it asks for now, on this Gateway."""
    name = "the pool's status is current"
    pool, gateway = case.path.pool, case.path.gateway
    if pool is None or gateway is None or not case.istio:
        return skipped(name, "no pool behind a gateway of Istio")
    conditions = status_of_parent(pool, gateway)
    restart = "kubectl -n istio-system rollout restart deployment/istiod"
    if not conditions:
        cause = "the gateway's controller has not taken notice of the pool"
        return failed(name, f"nothing is said about Gateway {key_of(gateway)}", cause=cause, fix=restart)
    for one in conditions:
        generation = number(pool, "metadata", "generation")
        seen = number(one, "observedGeneration", otherwise=generation)
        if seen < generation:
            evidence = f"{told(one)} is about generation {seen}, the spec is {generation}"
            cause = "the status is stale: whoever wrote it does not follow the pool any more"
            return failed(name, evidence, cause=cause, fix=restart)
    refused = condition(conditions, "Accepted")
    if refused and refused.get("status") != "True":
        return failed(name, told(refused), cause="no accepted route leads to the pool", fix=command("describe", pool))
    return _picker_found(name, case, conditions)


def _picker_found(name: str, case: Case, conditions: list[Object]) -> Finding:
    resolved = condition(conditions, "ResolvedRefs")
    if resolved is None or resolved.get("status") == "True":
        return ok(name, told(resolved) if resolved else "Accepted=True")
    assert case.path.pool is not None
    reference = at(case.path.pool, "spec", "endpointPickerRef", "name")
    service = f"{key_of(case.path.pool).namespace}/{reference}"
    if case.path.asked is not None and case.path.picker is not None and case.path.picker.name != reference:
        return ok(name, f"its own picker {service} is missing, but the gateway asks {case.path.picker}")
    cause = f"Service {service}, which endpointPickerRef names, is not there; it must be in the pool's own namespace"
    fix = f"kubectl get services -n {key_of(case.path.pool).namespace}"
    return failed(name, told(resolved), cause=cause, fix=fix)


def _selector(backend: Object) -> dict[str, str]:
    found = mapping(backend, "spec", "selector", "matchLabels") or mapping(backend, "spec", "selector")
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _target_ports(pool: Object) -> list[int]:
    listed = [number(one, "number") for one in each(pool, "spec", "targetPorts")]
    old = number(pool, "spec", "targetPortNumber")
    return listed or ([old] if old else [])


def _candidates(case: Case, backend: Object) -> list[Object]:
    """Return the Pods of the namespace that declare the port."""
    wanted: list[Any] = [*_target_ports(backend)]
    wanted += [one.get("targetPort", one.get("port")) for one in each(backend, "spec", "ports")]
    return [
        pod
        for pod in case.objects.all("Pod")
        if key_of(pod).namespace == key_of(backend).namespace
        and {*container_ports(pod).values(), *container_ports(pod)} & set(wanted)
    ]


def _likely(selector: dict[str, str], pods: list[Object]) -> dict[str, str]:
    """Return the selector that was probably meant: same labels, with the values that Pods on that port have."""
    meant: dict[str, str] = {}
    labels = [mapping(pod, "metadata", "labels") for pod in pods]
    for key, value in selector.items():
        values = Counter(one[key] for one in labels if key in one)
        if values:
            meant[key] = value if value in values else values.most_common(1)[0][0]
    if not meant:
        shared = Counter((k, v) for one in labels for k, v in one.items() if k != "pod-template-hash")
        meant = dict(pair for pair, count in shared.items() if count == len(labels))
    return meant if meant != selector else {}
