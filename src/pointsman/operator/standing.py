"""How an install stands: from its rendering and what the cluster shows to conditions. Pure.

`Ready` holds only while a request is answered by who was picked: every component is up, the way is one that can be
taken, and there is somebody behind the proxy Service. What is wrong with other people's routes is said, and is no fault
of the install.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pointsman.kube import Condition, Object
from pointsman.operator.findings import Observed, component_condition, progressing
from pointsman.render.manifests.stack import Component
from pointsman.render.scheduler.install import Installed
from pointsman.render.scheduler.routes import verdict

_DECIDING = ("PickHonoured", "Pool", "GatewayReady")
"""Notices on which requests depend."""


@dataclass(frozen=True, kw_only=True)
class InstallSight:
    """What the caches hold of one install."""

    parts: Observed
    route: Object | None
    slices: Sequence[Object]
    """Where the proxy Service finds its Pods; the picker's own are not among them."""
    sees_slices: bool = True


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What status will say."""

    conditions: tuple[Condition, ...]
    endpoints: tuple[str, ...]
    gateway_url: str


def stand(installed: Installed, seen: InstallSight) -> Standing:
    """Return how the install stands."""
    parts = [_part(one, seen) for one in installed.components]
    notices = [Condition(n.type, "True" if n.holds else "False", n.reason, n.message) for n in installed.notices]
    endpoints = tuple(sorted(_addresses(seen.slices)))
    if seen.sees_slices:
        parts.append(_served(endpoints, installed))
    deployments = [one for one in installed.components if one.kind == "Deployment"]
    deciding = [*parts, *(one for one in notices if one.type in _DECIDING)]
    return Standing(
        conditions=(_ready(deciding), progressing(deployments, seen.parts), *parts, *notices),
        endpoints=endpoints,
        gateway_url=_url(installed, seen),
    )


def _ready(parts: Sequence[Condition]) -> Condition:
    missing = [part for part in parts if part.status != "True"]
    if not missing:
        return Condition("Ready", "True", "AllComponentsReady", "requests are answered by who was picked")
    message = "; ".join(f"{part.type} is {part.status}: {part.message}" for part in missing)
    return Condition("Ready", "False", missing[0].reason, message)


def _part(component: Component, seen: InstallSight) -> Condition:
    if component.kind != "HTTPRoute":
        return component_condition(component, seen.parts)
    if seen.route is None:
        return Condition(component.condition, "False", "Missing", f"HTTPRoute {component.name} does not exist yet")
    for type_ in ("Accepted", "ResolvedRefs"):
        told = verdict(seen.route, type_)
        if told is None:
            message = f"HTTPRoute {component.name} waits for the controller of its Gateway"
            return Condition(component.condition, "False", "NotAccepted", message)
        if not told.holds:
            message = f"HTTPRoute {component.name}: {told.message}"
            return Condition(component.condition, "False", told.reason or f"Not{type_}", message)
    message = f"HTTPRoute {component.name} is accepted, and leads somewhere"
    return Condition(component.condition, "True", "Accepted", message)


def _served(endpoints: Sequence[str], installed: Installed) -> Condition:
    places = installed.places
    where = f"Service {places.there.namespace}/{places.service}"
    if endpoints:
        return Condition("EndpointsReady", "True", "Found", f"{len(endpoints)} Pods are ready behind {where}")
    labels = ",".join(f"{name}={value}" for name, value in places.selector.items())
    message = f"no Pod is ready behind {where}: is there one with the labels {labels}?"
    return Condition("EndpointsReady", "False", "NoEndpoints", message)


def _addresses(slices: Iterable[Object]) -> Iterable[str]:
    for one in slices:
        number = next((port["port"] for port in one.get("ports") or () if port.get("port")), 0)
        for found in one.get("endpoints") or ():
            if found.get("conditions", {}).get("ready", True):
                for address in found["addresses"]:
                    yield f"[{address}]:{number}" if ":" in address else f"{address}:{number}"


def _url(installed: Installed, seen: InstallSight) -> str:
    """Return the gateway's URL; a Gateway's own address, when its controller gave it one, is better than a name."""
    live = seen.parts.gateways.get(installed.places.gateway) if installed.way != "OwnEnvoy" else None
    addresses = (live or {}).get("status", {}).get("addresses", [])
    if live and addresses:
        return f"http://{addresses[0]['value']}:{live['spec']['listeners'][0]['port']}"
    return installed.gateway_url
