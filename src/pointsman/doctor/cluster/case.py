"""What every check is given: the facts, and who leads to whom in them."""

from collections.abc import Callable
from dataclasses import dataclass

from pointsman.core.kinds import Object, key_of
from pointsman.doctor.cluster.facts import Cluster, Proxy
from pointsman.doctor.cluster.objects import Objects, at, each, mapping
from pointsman.doctor.cluster.path import Path, trace
from pointsman.doctor.findings import Finding


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cluster, and the way of a request through it."""

    cluster: Cluster
    path: Path

    @property
    def objects(self) -> Objects:
        return self.cluster.objects

    @property
    def proxy(self) -> Proxy | None:
        return self.cluster.proxy

    @property
    def istio(self) -> bool:
        """Whether Istio makes the gateway."""
        return "istio" in controller(self)

    @property
    def uses_pool(self) -> bool:
        """Whether the rule leads to a pool, or the picker follows one."""
        backend = self.path.backend or {}
        return backend.get("kind") == "InferencePool" or "--pool-name" in str(self.path.arguments)


Check = Callable[[Case], Finding]


def case(cluster: Cluster) -> Case:
    """Return the case of a cluster."""
    return Case(cluster=cluster, path=trace(cluster.objects, cluster.focus, cluster.proxy))


def controller(one: Case) -> str:
    """Return who makes the gateway, by its class."""
    name = str(at(one.path.gateway, "spec", "gatewayClassName") or "")
    found = next((c for c in one.objects.all("GatewayClass") if key_of(c).name == name), None)
    return str(at(found, "spec", "controllerName") or name)


def command(verb: str, document: Object, *words: str) -> str:
    """Return a kubectl command about one object."""
    key = key_of(document)
    where = f" -n {key.namespace}" if key.namespace else ""
    return " ".join([f"kubectl {verb} {str(document['kind']).lower()}{where} {key.name}", *words])


def told(reason: Object | None) -> str:
    """Return what a condition says, in one line."""
    if reason is None:
        return "nobody has said anything about it"
    message = " ".join(str(reason.get("message", "")).split())
    return f"{reason.get('type')}={reason.get('status')}/{reason.get('reason')}{': ' if message else ''}{message}"


def status_of_parent(document: Object, gateway: Object | None) -> list[Object]:
    """Return the conditions that an object has from the side of one Gateway."""
    if gateway is None:
        return []
    key, home = key_of(gateway), key_of(document).namespace
    for parent in each(document, "status", "parents"):
        reference = mapping(parent, "parentRef")
        if (reference.get("namespace") or home, reference.get("name")) == key:
            return each(parent, "conditions")
    return []
