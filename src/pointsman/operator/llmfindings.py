"""How an LLMInferenceService stands: KServe's conditions, from its rendering and what the cluster shows. Pure.

`Ready` holds while a request can be answered by the Pod that is picked for it: the model servers are there, the picker
is ready and speaks HTTP/2 over TLS, route, pool and gateway have been accepted by whoever makes them true; where the
gateway is our own, a request has been answered.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pointsman.kube import Condition, Object
from pointsman.kube.conditions import truth_of
from pointsman.operator.findings import Observed, component_condition, progressing
from pointsman.render.manifests.stack import Component
from pointsman.render.serving.service import LLMStack

WORKLOADS = ("MainWorkloadReady", "PrefillWorkloadReady")
ROUTER = ("GatewaysReady", "HTTPRoutesReady", "InferencePoolReady", "SchedulerWorkloadReady", "CertificateReady")
ALL = ("PresetsCombined", "WorkloadsReady", "RouterReady")


@dataclass(frozen=True, kw_only=True)
class ObservedService:
    """What the caches hold of one service, and what was asked of it."""

    deployments: Mapping[str, Object]
    pods: Sequence[Object]
    gateways: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    routes: Mapping[str, Object] = field(default_factory=dict)
    pools: Mapping[str, Object] = field(default_factory=dict)
    handshake: str = ""
    """What is wrong with TLS to the picker."""
    answer: str = ""
    """What is wrong with a request through our own gateway."""
    certificate: Condition | None = None


@dataclass(frozen=True, kw_only=True)
class LLMFindings:
    """What status will say."""

    conditions: tuple[Condition, ...]
    url: str = ""
    addresses: tuple[tuple[str, str], ...] = ()
    """Kind and URL of each way in."""

    @property
    def ready(self) -> bool:
        return any(found.type == "Ready" and found.status == "True" for found in self.conditions)


def look(stack: LLMStack, sight: ObservedService) -> LLMFindings:
    """Return how a service stands."""
    parts = [*_components(stack, sight), *_networking(stack, sight)]
    if sight.certificate is not None:
        parts.append(sight.certificate)
    combined = Condition("PresetsCombined", "True", "Combined", f"made of {', '.join(stack.applied) or 'nothing'}")
    groups = [combined, _group("WorkloadsReady", WORKLOADS, parts), _group("RouterReady", ROUTER, parts)]
    notices = [Condition(n.type, "True" if n.holds else "False", n.reason, n.message) for n in stack.notices]
    told = {each.type for each in parts}
    rest = [notice for notice in notices if notice.type not in told]
    ready = _ready(groups)
    observed = Observed(deployments=sight.deployments, gateways={}, pods=sight.pods)
    moving = progressing([_counted(one, sight) for one in stack.components], observed)
    addresses = tuple(_addresses(stack, sight))
    return LLMFindings(
        conditions=(ready, *groups, moving, *parts, *rest),
        url=next((url for _, url in addresses), ""),
        addresses=addresses,
    )


def stopped(stack: LLMStack) -> LLMFindings:
    """Return what is said of a service that is told to stop."""
    message = "the annotation serving.kserve.io/stop is true: take it away to have the service back"
    types = ("Ready", "WorkloadsReady", "RouterReady", "MainWorkloadReady")
    combined = Condition("PresetsCombined", "True", "Combined", f"made of {', '.join(stack.applied) or 'nothing'}")
    return LLMFindings(conditions=(*(Condition(each, "False", "Stopped", message) for each in types), combined))


def failed(reason: str, message: str, *, known: Iterable[Mapping[str, Any]], combined: bool) -> LLMFindings:
    """Return what is said when there is nothing to act on: parts stay as they were, since nothing was changed."""
    kept = [
        Condition(str(one["type"]), one["status"], str(one.get("reason", "")), str(one.get("message", "")))
        for one in known
        if one["type"] not in {"Ready", "PresetsCombined"}
    ]
    presets = [] if combined else [Condition("PresetsCombined", "False", reason, message)]
    return LLMFindings(conditions=(Condition("Ready", "False", reason, message), *presets, *kept))


def _ready(groups: Sequence[Condition]) -> Condition:
    missing = [group for group in groups if group.status != "True"]
    if not missing:
        return Condition("Ready", "True", "Serving", "requests are answered by the Pods that are picked")
    message = "; ".join(f"{group.type}: {group.message}" for group in missing)
    return Condition("Ready", "False", missing[0].reason, message)


def _group(type_: str, names: Sequence[str], parts: Sequence[Condition]) -> Condition:
    wrong = [part for part in parts if part.type in names and part.status != "True"]
    if not wrong:
        return Condition(type_, "True", "Ready", "all of its parts are ready")
    message = "; ".join(f"{part.type} is {part.status}: {part.message}" for part in wrong)
    return Condition(type_, "False", wrong[0].reason, message)


def _components(stack: LLMStack, sight: ObservedService) -> list[Condition]:
    observed = Observed(deployments=sight.deployments, gateways={}, pods=sight.pods)
    found = [component_condition(component, observed) for component in stack.components]
    return [_asked(part, sight) for part in found]


def _counted(component: Component, sight: ObservedService) -> Component:
    """Return a component with as many Pods as somebody scaled it to."""
    live = sight.deployments.get(component.name, {})
    return replace(component, replicas=live.get("spec", {}).get("replicas", component.replicas))


def _asked(part: Condition, sight: ObservedService) -> Condition:
    """Return a finding with what was asked of the part itself: Pods that are ready need not be of use."""
    if part.status != "True":
        return part
    if part.type == "SchedulerWorkloadReady" and sight.handshake:
        return Condition(part.type, "False", "HandshakeFailed", sight.handshake)
    if part.type == "GatewaysReady" and sight.answer:
        return Condition(part.type, "False", "NoAnswer", sight.answer)
    return part


def _networking(stack: LLMStack, sight: ObservedService) -> list[Condition]:
    found = []
    if stack.gateways:
        found.append(_gateways(stack, sight))
    if stack.routes:
        found.append(_routes(stack, sight))
    if stack.pool:
        found.append(_pool(stack, sight))
    return found


def _gateways(stack: LLMStack, sight: ObservedService) -> Condition:
    for namespace, name in stack.gateways:
        live = sight.gateways.get((namespace, name))
        if live is None:
            message = (
                f"Gateway {namespace}/{name} does not exist: create it, or name another in spec.router.gateway.refs"
            )
            return Condition("GatewaysReady", "False", "GatewayNotFound", message)
        if truth_of(live, "Programmed") != "True":
            message = f"Gateway {namespace}/{name} is not programmed: see its own conditions"
            return Condition("GatewaysReady", "False", "GatewaysNotReady", message)
    return Condition("GatewaysReady", "True", "Programmed", "all Gateways are programmed")


def _routes(stack: LLMStack, sight: ObservedService) -> Condition:
    type_ = "HTTPRoutesReady"
    for name in stack.routes:
        live = sight.routes.get(name)
        if live is None:
            return Condition(type_, "False", "HTTPRouteNotFound", f"HTTPRoute {name} does not exist")
        parents = live.get("status", {}).get("parents") or []
        if not parents:
            return Condition(type_, "False", "HTTPRoutesNotReady", f"no Gateway has accepted HTTPRoute {name} yet")
        wrong = _unmet(live, parents, ("Accepted", "ResolvedRefs"))
        if wrong:
            return Condition(type_, "False", "HTTPRoutesNotReady", f"HTTPRoute {name}: {wrong}")
    return Condition(type_, "True", "Accepted", "all routes are accepted")


def _pool(stack: LLMStack, sight: ObservedService) -> Condition:
    type_ = "InferencePoolReady"
    if not stack.has_pools:
        message = "InferencePool is not defined, so the route leads around the picker: pointsman crds install"
        return Condition(type_, "False", "DefinitionMissing", message)
    live = sight.pools.get(stack.pool)
    if live is None:
        return Condition(type_, "False", "InferencePoolNotFound", f"InferencePool {stack.pool} does not exist")
    parents = [one for one in live.get("status", {}).get("parents") or [] if not _is_placeholder(one)]
    if not parents:
        message = f"InferencePool {stack.pool} exists and no Gateway has accepted it yet"
        return Condition(type_, "False", "WaitingForGateway", message)
    wrong = _unmet(live, parents, ("Accepted",))
    if wrong:
        return Condition(type_, "False", "InferencePoolNotReady", f"InferencePool {stack.pool}: {wrong}")
    return Condition(type_, "True", "Accepted", f"InferencePool {stack.pool} is accepted")


def _is_placeholder(parent: Mapping[str, Any]) -> bool:
    """Tell whether a parent is the one that the definition itself writes before anybody has looked."""
    reference = parent.get("parentRef") or {}
    return reference.get("kind") == "Status" and reference.get("name") == "default"


def _unmet(live: Mapping[str, Any], parents: Iterable[Mapping[str, Any]], types: Sequence[str]) -> str:
    """Return what a Gateway has against an object as it is now; nothing when it has nothing."""
    generation = live.get("metadata", {}).get("generation", 0)
    for parent in parents:
        name = (parent.get("parentRef") or {}).get("name", "a Gateway")
        found = [one for one in parent.get("conditions") or [] if one.get("type") in types]
        if not any(one["type"] == "Accepted" for one in found):
            return f"{name} has not accepted it yet"
        for told in found:
            if told.get("status") != "True":
                return f"{name} says {told['type']}={told.get('status')}: {told.get('message') or told.get('reason')}"
            if told.get("observedGeneration", generation) < generation:
                return f"{name} has not looked at its last change yet"
    return ""


def _addresses(stack: LLMStack, sight: ObservedService) -> Iterable[tuple[str, str]]:
    """Yield the ways in: through Gateways that have addresses, or through our own."""
    for key in stack.gateways:
        live = sight.gateways.get(key) or {}
        listeners = live.get("spec", {}).get("listeners") or []
        web = next((one for one in listeners if one.get("protocol") in {"HTTP", "HTTPS"}), None)
        if web is None:
            continue
        scheme, usual = ("https", 443) if web["protocol"] == "HTTPS" else ("http", 80)
        port = "" if web["port"] == usual else f":{web['port']}"
        for address in live.get("status", {}).get("addresses") or []:
            host = f"[{address['value']}]" if ":" in address["value"] else address["value"]
            yield "gateway", f"{scheme}://{host}{port}{stack.names.prefix}"
    if stack.gateway_url:
        yield "gateway-internal", stack.gateway_url
