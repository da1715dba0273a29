"""The objects of a cluster, as the API server has them, and the few questions that every check asks of one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pointsman.core.kinds import Key, Kind, Object, key_of

GATEWAY_API = "gateway.networking.k8s.io"
INFERENCE = "inference.networking.k8s.io"
INFERENCE_OLD = "inference.networking.x-k8s.io"
ISTIO = "networking.istio.io"

WANTED: Mapping[str, tuple[str, str]] = {
    "Gateway": (GATEWAY_API, "gateways"),
    "GatewayClass": (GATEWAY_API, "gatewayclasses"),
    "HTTPRoute": (GATEWAY_API, "httproutes"),
    "ReferenceGrant": (GATEWAY_API, "referencegrants"),
    "InferencePool": (INFERENCE, "inferencepools"),
    "EnvoyFilter": (ISTIO, "envoyfilters"),
    "DestinationRule": (ISTIO, "destinationrules"),
    "Service": ("", "services"),
    "EndpointSlice": ("discovery.k8s.io", "endpointslices"),
    "Pod": ("", "pods"),
    "Deployment": ("apps", "deployments"),
    "CustomResourceDefinition": ("apiextensions.k8s.io", "customresourcedefinitions"),
}
"""Group and plural of each kind that is looked at."""


@dataclass(frozen=True, kw_only=True)
class Objects:
    """What is there, by kind, and why of some kinds nothing could be seen."""

    found: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)

    def all(self, kind: str) -> tuple[Object, ...]:
        """Return every object of a kind."""
        return self.found.get(kind, ())

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return one object."""
        wanted = Key(namespace, name)
        return next((one for one in self.all(kind) if key_of(one) == wanted), None)


def at(document: Any, *path: str) -> Any:
    """Return what stands at a path, None where the path ends early."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def each(document: Any, *path: str) -> list[Object]:
    """Return the documents of a list at a path."""
    found = at(document, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def words(document: Any, *path: str) -> list[str]:
    """Return the texts of a list at a path."""
    found = at(document, *path)
    return [str(one) for one in found] if isinstance(found, list) else []


def number(document: Any, *path: str, otherwise: int = 0) -> int:
    """Return the whole number at a path."""
    found = at(document, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else otherwise


def mapping(document: Any, *path: str) -> dict[str, Any]:
    """Return the mapping at a path, empty when there is none."""
    found = at(document, *path)
    return found if isinstance(found, dict) else {}


def kind_of(document: Object) -> Kind:
    """Return the kind of an object that was gathered."""
    group, _, version = str(document["apiVersion"]).rpartition("/")
    kind = str(document["kind"])
    plural = WANTED[kind][1] if kind in WANTED else f"{kind.lower()}s"
    return Kind(group, version, kind, plural, namespaced=bool(document["metadata"].get("namespace")))


def condition(conditions: Iterable[Object], type_: str) -> Object | None:
    """Return the condition of a type."""
    return next((one for one in conditions if one.get("type") == type_), None)


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether labels are selected; an empty selector selects nothing here."""
    return bool(selector) and all(labels.get(name) == value for name, value in selector.items())


def pod_ready(pod: Object) -> bool:
    """Tell whether a Pod takes requests."""
    found = condition(each(pod, "status", "conditions"), "Ready")
    return bool(found and found.get("status") == "True") and not at(pod, "metadata", "deletionTimestamp")


def pod_trouble(pod: Object) -> str:
    """Return why a Pod is not ready, in the words of its containers."""
    for status in (*each(pod, "status", "initContainerStatuses"), *each(pod, "status", "containerStatuses")):
        for state in ("waiting", "terminated"):
            said = mapping(status, "state", state)
            if said:
                return f"{said.get('reason', state)}: {said.get('message', '')}".rstrip(": ")
    if at(pod, "metadata", "deletionTimestamp"):
        return "it is being deleted"
    blocked = [one for one in each(pod, "status", "conditions") if one.get("status") != "True" and one.get("message")]
    return str(blocked[0]["message"]) if blocked else str(at(pod, "status", "phase") or "not ready")


def arguments(pod: Object) -> list[str]:
    """Return the command lines of all containers, one after the other."""
    return [word for one in each(pod, "spec", "containers") for word in command_line(one)]


def command_line(container: Object) -> list[str]:
    """Return all that a container is started with: flags may be in its command, as KServe's presets have them."""
    return [*words(container, "command"), *words(container, "args")]


def container_ports(pod: Object) -> dict[str, int]:
    """Return the ports that a Pod declares, by name; those without one under their number."""
    beside = [one for one in each(pod, "spec", "initContainers") if one.get("restartPolicy") == "Always"]
    return {
        str(port.get("name") or port.get("containerPort")): number(port, "containerPort")
        for one in (*each(pod, "spec", "containers"), *beside)
        for port in each(one, "ports")
    }
