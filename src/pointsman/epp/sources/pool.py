"""From Kubernetes' watch events to endpoints, objectives and rewrites. Pure: no client, no clock, no await.

`Cluster` is fed one event after the other (or a whole list after a gap) and says at any moment what follows from all of
them. What follows never depends on the order in which kinds arrive: pods may come before their pool. Objects are plain
mappings as the API server sends them; one that is not shaped as its kind should be counts as not there, because a
resource of a newer version must not stop traffic.

An InferencePool (v1 or v1alpha2) says which pods and which ports; without one a selector and ports from the command
line do. A pod is an endpoint per port while it is Ready and not being deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pointsman.core.numbers import is_count, whole
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.request.objectives import Objective
from pointsman.epp.request.rewrites import Rewrite, RewriteRule, Target
from pointsman.epp.sources.selector import Selector, match_labels

Kind = Literal["InferencePool", "Pod", "InferenceObjective", "InferenceModelRewrite"]
Object = Mapping[str, Any]

POOL_GROUP = "inference.networking.k8s.io"
OLD_GROUP = "inference.networking.x-k8s.io"
OUR_GROUP = "llm-d.ai"
ACTIVE_PORTS = ("llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports")
_MOST_PORTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Which pods, on which ports."""

    selector: Selector
    ports: tuple[int, ...]
    app_protocol: str = ""  # nothing where there is no pool to say it


def read_pool(pool: Object) -> PoolSpec | None:
    """Return what an InferencePool of either version says; None when it says nothing usable or is being deleted."""
    if _of(pool, "metadata").get("deletionTimestamp"):
        return None
    spec = _of(pool, "spec")
    selector = _of(spec, "selector")
    labels = selector.get("matchLabels", selector)  # v1alpha2 has the labels themselves
    if not isinstance(labels, Mapping) or not labels:
        return None
    ports = spec.get("targetPorts")
    numbers = [_of({"port": port}, "port").get("number") for port in ports] if isinstance(ports, list) else []
    if not numbers:
        numbers = [spec.get("targetPortNumber")]
    usable = tuple(dict.fromkeys(port for port in numbers if type(port) is int and 0 < port < 65_536))
    if not usable:
        return None
    return PoolSpec(
        selector=match_labels({str(key): str(value) for key, value in labels.items()}),
        ports=usable[:_MOST_PORTS],
        app_protocol=str(spec.get("appProtocol") or "http"),
    )


def read_pod(pod: Object, spec: PoolSpec) -> tuple[Endpoint, ...]:
    """Return the endpoints that a pod is: one per port, none while it is not ready."""
    metadata, status = _of(pod, "metadata"), _of(pod, "status")
    labels = {str(key): str(value) for key, value in _of(metadata, "labels").items()}
    address = status.get("podIP")
    if metadata.get("deletionTimestamp") or not address or not _is_ready(status) or not spec.selector.matches(labels):
        return ()
    active = _active_ports(_of(metadata, "annotations"))
    return tuple(
        Endpoint(
            name=f"{metadata.get('name', '')}-rank-{rank}",
            pod=str(metadata.get("name", "")),
            namespace=str(metadata.get("namespace") or "default"),
            address=str(address),
            port=port,
            labels=labels,
            node=str(status.get("hostIP") or ""),
        )
        for rank, port in enumerate(spec.ports)
        if active is None or port in active
    )


def read_objective(resource: Object, *, pool: str, group: str) -> Objective | None:
    """Return the objective in a resource; None when it is another pool's or not one."""
    name, spec = _of(resource, "metadata").get("name"), _of(resource, "spec")
    priority = spec.get("priority") or 0
    if not isinstance(name, str) or type(priority) is not int or not _refers_to(spec, pool=pool, group=group):
        return None
    return Objective(name=name, priority=priority)


def read_rewrite(resource: Object, *, pool: str, group: str) -> Rewrite | None:
    """Return the rules in a resource; None when it is another pool's or not one."""
    metadata, spec = _of(resource, "metadata"), _of(resource, "spec")
    if not isinstance(metadata.get("name"), str) or not _refers_to(spec, pool=pool, group=group):
        return None
    return Rewrite(
        name=metadata["name"],
        created=str(metadata.get("creationTimestamp") or ""),
        rules=tuple(rule for rule in map(read_rule, _list(spec, "rules")) if rule.targets),
    )


def read_rule(rule: Object) -> RewriteRule:
    """Return one rule; a match that is not `Exact` names nothing, because we cannot know what it would match."""
    matches = [_of(match, "model") for match in _list(rule, "matches")]
    exact = tuple(str(match.get("value")) for match in matches if match.get("type", "Exact") == "Exact")
    targets = [
        Target(model=str(target["modelRewrite"]), weight=_weight(target.get("weight")))
        for target in _list(rule, "targets")
        if target.get("modelRewrite")
    ]
    usable = not matches or bool(exact)
    return RewriteRule(models=exact, targets=tuple(targets) if usable else ())


class Cluster:
    """What all events so far amount to, for one pool or one selector."""

    def __init__(self, *, pool: str = "", group: str = POOL_GROUP, standalone: PoolSpec | None = None) -> None:
        self._pool = pool
        self._group = group
        self._standalone = standalone
        self._spec = standalone
        self._pods: dict[str, Object] = {}
        self._resources: dict[tuple[str, str], dict[str, Object]] = {}  # by kind and group, then by name
        self._endpoints: dict[str, tuple[Endpoint, ...]] = {}

    @property
    def spec(self) -> PoolSpec | None:
        """The pool; None while there is none, and then nobody should be sent here."""
        return self._spec

    def apply(self, kind: Kind, event: Literal["ADDED", "MODIFIED", "DELETED"], resource: Object) -> None:
        """Take one event."""
        name = str(_of(resource, "metadata").get("name", ""))
        if kind == "Pod":
            self._take_pod(name, None if event == "DELETED" else resource)
        elif kind == "InferencePool":
            if name == self._pool and self._standalone is None:
                self._take_spec(None if event == "DELETED" else read_pool(resource))
        else:
            of_kind = self._resources.setdefault((kind, _group_of(resource)), {})
            if event == "DELETED":
                of_kind.pop(name, None)
            else:
                of_kind[name] = resource

    def replace(self, kind: Kind, resources: Iterable[Object], *, group: str = "") -> None:
        """Take the whole list of a kind: after a start, after a gap in a watch, or empty when its CRD went away."""
        resources = list(resources)
        if kind == "InferencePool":
            ours = [one for one in resources if _of(one, "metadata").get("name") == self._pool]
            if self._standalone is None:
                self._take_spec(read_pool(ours[0]) if ours else None)
        elif kind == "Pod":
            self._pods = {}
            self._endpoints = {}
            for pod in resources:
                self._take_pod(str(_of(pod, "metadata").get("name", "")), pod)
        else:
            named = {str(_of(one, "metadata").get("name", "")): one for one in resources}
            self._resources[kind, group or OUR_GROUP] = named

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return who can be picked, by name so that the order is the same in every replica."""
        return tuple(endpoint for name in sorted(self._endpoints) for endpoint in self._endpoints[name])

    def objectives(self) -> tuple[Objective, ...]:
        """Return the pool's objectives; a name in both groups counts as today's."""
        found = (read_objective(one, pool=self._pool, group=self._group) for one in self._of_both("InferenceObjective"))
        return tuple(objective for objective in found if objective is not None)

    def rewrites(self) -> tuple[Rewrite, ...]:
        """Return the pool's rewrites; a name in both groups counts as today's."""
        found = (
            read_rewrite(one, pool=self._pool, group=self._group) for one in self._of_both("InferenceModelRewrite")
        )
        return tuple(rewrite for rewrite in found if rewrite is not None)

    def _of_both(self, kind: Kind) -> Iterable[Object]:
        old, ours = (self._resources.get((kind, group), {}) for group in (OLD_GROUP, OUR_GROUP))
        return {**old, **ours}.values()

    def _take_spec(self, spec: PoolSpec | None) -> None:
        if spec != self._spec:
            self._spec = spec
            self._endpoints = {}
            for name, pod in self._pods.items():
                self._place(name, pod)

    def _take_pod(self, name: str, pod: Object | None) -> None:
        if pod is None:
            self._pods.pop(name, None)
            self._endpoints.pop(name, None)
        else:
            self._pods[name] = pod
            self._place(name, pod)

    def _place(self, name: str, pod: Object) -> None:
        found = read_pod(pod, self._spec) if self._spec is not None else ()
        if found:
            self._endpoints[name] = found
        else:
            self._endpoints.pop(name, None)


def _of(resource: Object, field: str) -> Mapping[str, Any]:
    """Return a field that should be a mapping; an empty one when it is not."""
    found = resource.get(field) if isinstance(resource, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _list(resource: Object, field: str) -> list[Mapping[str, Any]]:
    found = resource.get(field)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _group_of(resource: Object) -> str:
    return str(resource.get("apiVersion", "")).partition("/")[0]


def _is_ready(status: Object) -> bool:
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in _list(status, "conditions")
    )


def _active_ports(annotations: Object) -> frozenset[int] | None:
    """Return the ports that a pod says are in use, none when it says there are none; None when it says nothing."""
    text = next((annotations[key] for key in ACTIVE_PORTS if annotations.get(key) is not None), None)
    if text is None:
        return None
    ports = (whole(port, most=65_535) for port in map(str.strip, str(text).split(",")))
    return frozenset(port for port in ports if port is not None)


def _refers_to(spec: Object, *, pool: str, group: str) -> bool:
    """Return whether a poolRef is ours; standalone there is no pool to refer to, and all count."""
    if not pool:
        return True
    reference = _of(spec, "poolRef")
    return reference.get("name") == pool and (reference.get("group") or POOL_GROUP) == group


def _weight(value: Any) -> int | None:
    return value if is_count(value) and value > 0 else None
