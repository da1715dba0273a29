"""How a stack stands: from its rendering and what the cluster shows to conditions and numbers. Pure.

A condition per component, and `Ready`, which holds only while a request can be served: every component has the Pods
that it needs, as the Deployment's own controller counts them for the generation that we asked for. What keeps Pods
from being ready is said in words (image, quota, scheduling, crash), because that is where people look next.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pointsman.kube import Condition, Object
from pointsman.kube.conditions import truth_of
from pointsman.render.manifests.names import NAME, ROLE, SERVING
from pointsman.render.manifests.stack import Component, Stack


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the caches hold of one stack."""

    deployments: Mapping[str, Object]
    gateways: Mapping[str, Object]
    pods: Sequence[Object]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What status will say."""

    conditions: tuple[Condition, ...]
    replicas: int
    ready_replicas: int
    endpoints: tuple[str, ...]
    gateway_url: str
    selector: str

    @property
    def ready(self) -> bool:
        return any(found.type == "Ready" and found.status == "True" for found in self.conditions)


def look(stack: Stack, observed: Observed) -> Findings:
    """Return how the stack stands."""
    parts = [component_condition(component, observed) for component in stack.components]
    notices = [Condition(n.type, "True" if n.holds else "False", n.reason, n.message) for n in stack.notices]
    deployments = [observed.deployments.get(one.name, {}) for one in stack.components if one.role]
    roles = [one.role for one in stack.components if one.role]
    return Findings(
        conditions=(_ready(parts), progressing(stack.components, observed), *parts, *notices),
        replicas=sum(int(one.get("status", {}).get("replicas", 0)) for one in deployments),
        ready_replicas=sum(int(one.get("status", {}).get("readyReplicas", 0)) for one in deployments),
        endpoints=tuple(sorted(_endpoints(observed.pods))),
        gateway_url=_url(stack, observed),
        selector=f"{NAME}={stack.names.stack}," + (f"{SERVING}=true" if len(roles) > 1 else f"{ROLE}={roles[0]}"),
    )


def _ready(parts: Sequence[Condition]) -> Condition:
    missing = [part for part in parts if part.status != "True"]
    if not missing:
        return Condition("Ready", "True", "AllComponentsReady", "requests can be served")
    first = missing[0]
    message = "; ".join(f"{part.type} is {part.status}: {part.message}" for part in missing)
    return Condition("Ready", "False", first.reason, message)


def component_condition(component: Component, observed: Observed) -> Condition:
    """Return how one component stands."""
    if component.kind == "Gateway":
        return _gateway(component, observed.gateways.get(component.name))
    live = observed.deployments.get(component.name)
    if live is None:
        return Condition(component.condition, "False", "Missing", f"Deployment {component.name} does not exist yet")
    if component.replicas == 0:
        return Condition(component.condition, "False", "ScaledToZero", f"{component.name} has 0 replicas: set more")
    available = _available(live)
    count = f"{available} of {component.replicas} Pods of {component.name} are available"
    if available >= component.needed and _is_current(live):
        return Condition(component.condition, "True", "Available", count)
    problem = _problem(live, observed.pods)
    reason, why = problem or ("Progressing", "waiting for Pods")
    return Condition(component.condition, "False", reason, f"{count}: {why}")


def _gateway(component: Component, live: Object | None) -> Condition:
    if live is None:
        return Condition(component.condition, "False", "Missing", f"Gateway {component.name} does not exist yet")
    for told in live.get("status", {}).get("conditions", []):
        if told.get("type") == "Programmed" and told.get("status") != "True":
            message = f"Gateway {component.name}: {told.get('message', '')}"
            return Condition(component.condition, "False", told.get("reason", "NotProgrammed"), message)
    if truth_of(live, "Programmed") == "True":
        return Condition(component.condition, "True", "Programmed", f"Gateway {component.name} is programmed")
    message = f"Gateway {component.name} waits for the controller of its class"
    return Condition(component.condition, "False", "NotProgrammed", message)


def progressing(components: Sequence[Component], observed: Observed) -> Condition:
    """Tell of a roll-out that is under way; the old Pods may well serve meanwhile."""
    for component in components:
        if component.kind != "Deployment":
            continue
        live = observed.deployments.get(component.name)
        if live is None:
            return Condition("Progressing", "True", "Missing", f"Deployment {component.name} does not exist yet")
        if _is_complete(live, component.replicas):
            continue
        updated = live.get("status", {}).get("updatedReplicas", 0)
        reason, why = _problem(live, observed.pods) or ("RollingOut", "it goes on")
        message = f"{updated} of {component.replicas} Pods of {component.name} are up to date: {why}"
        return Condition("Progressing", "True", reason, message)
    return Condition("Progressing", "False", "Complete", "every Pod is up to date")


def _is_current(live: Object) -> bool:
    """Tell whether the numbers are about the spec that we wrote."""
    seen = live.get("status", {}).get("observedGeneration", 0)
    return bool(seen >= live["metadata"].get("generation", 0))


def _is_complete(live: Object, replicas: int) -> bool:
    status = live.get("status", {})
    counts = (status.get("updatedReplicas", 0), status.get("replicas", 0))
    return _is_current(live) and counts == (replicas, replicas)


def _available(live: Object) -> int:
    return int(live.get("status", {}).get("availableReplicas", 0))


def _problem(live: Object, pods: Sequence[Object]) -> tuple[str, str] | None:
    """Return in a word and in a sentence what is wrong with a Deployment's Pods, if it shows."""
    for told in live.get("status", {}).get("conditions", []):
        if told.get("type") == "ReplicaFailure" and told.get("status") == "True":
            return str(told.get("reason", "ReplicaFailure")), str(told.get("message", "Pods cannot be created"))
    wanted = live["spec"]["selector"]["matchLabels"]
    for pod in pods:
        labels = pod["metadata"].get("labels", {})
        if all(labels.get(name) == value for name, value in wanted.items()):
            trouble = _trouble(pod)
            if trouble:
                return trouble
    return None


def _trouble(pod: Object) -> tuple[str, str] | None:
    name = pod["metadata"]["name"]
    status: dict[str, Any] = pod.get("status", {})
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason and reason not in {"ContainerCreating", "PodInitializing"}:
            said = waiting.get("message") or f"container {container.get('name')} does not start"
            return reason, f"Pod {name}: {said} (image {container.get('image')})"
    for told in status.get("conditions", []):
        if told.get("type") == "PodScheduled" and told.get("status") == "False":
            return str(told.get("reason", "Unschedulable")), f"Pod {name}: {told.get('message', 'no node takes it')}"
    return None


def _endpoints(pods: Iterable[Object]) -> Iterable[str]:
    for pod in pods:
        address = pod.get("status", {}).get("podIP")
        serving = pod["metadata"].get("labels", {}).get(SERVING) == "true"
        if serving and address and truth_of(pod, "Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
            number = pod["spec"]["containers"][0]["ports"][0]["containerPort"]
            yield f"[{address}]:{number}" if ":" in address else f"{address}:{number}"


def _url(stack: Stack, observed: Observed) -> str:
    """Return the gateway's URL; a Gateway's own address, when its controller gave it one, is better than a name."""
    own = any(one.kind == "Deployment" and one.condition == "GatewayReady" for one in stack.components)
    for component in stack.components:
        live = observed.gateways.get(component.name) if component.kind == "Gateway" and not own else None
        addresses = (live or {}).get("status", {}).get("addresses", [])
        if live and addresses:
            number = live["spec"]["listeners"][0]["port"]
            return f"http://{addresses[0]['value']}:{number}"
    return stack.gateway_url
