"""What shall run on this machine: Deployments and Services, as Kubernetes means them, with nothing decided about ports.

A plan is made from the objects that a cluster would get (`objects.plan`). The supervisor makes one plan after another
true. Two Deployments of one name that differ in anything but the number of Pods are two revisions: the Pods of the one
replace those of the other.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from pointsman.render.envoy.addresses import Address

Role = Literal["simulator", "picker", "router", "gateway"]
Ports = Mapping[int, Address]
"""Where a Pod listens on this machine, by the port that it has in its own network on a cluster."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Pods that are alike."""

    name: str
    role: Role
    replicas: int
    ports: tuple[int, ...]
    arguments: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = "local"
    files: Mapping[str, str] = field(default_factory=dict)
    """Text by the path under which the container finds it."""
    selects: Mapping[str, str] = field(default_factory=dict)
    """Of a picker: the labels of the Pods that it picks among."""
    naming: str = ""
    """Name of a Pod with its number as `{n}`; without one, the Deployment's, the revision and the number."""
    pinned: Ports = field(default_factory=dict)
    """Ports that a person chose."""
    first_port: int = 0
    """From where on ports are looked for; 0 leaves it to the system."""

    @cached_property
    def revision(self) -> str:
        """Return what is the same for Pods that need not be replaced."""
        said = [self.role, self.ports, self.arguments, dict(self.labels), dict(self.files), dict(self.selects)]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:5]

    @property
    def group(self) -> str:
        """Return the name of these Pods as opposed to those of another revision."""
        return f"{self.name}-{self.revision}"

    def pod(self, number: int) -> str:
        """Return the name of one of its Pods."""
        return (self.naming or f"{self.group}-{{n}}").format(n=number)


@dataclass(frozen=True, kw_only=True)
class Service:
    """A port, or several, by which Pods are reached."""

    name: str
    selector: Mapping[str, str]
    ports: Mapping[int, int]
    """Ports of the Pods by ports of the Service."""
    headless: bool = False
    """Stands for the Pods' addresses and has none of its own."""

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Tell whether Pods with these labels are meant."""
        return matches(self.selector, labels)


@dataclass(frozen=True, kw_only=True)
class StackPlan:
    """A whole stack."""

    deployments: tuple[Deployment, ...]
    services: tuple[Service, ...] = ()
    entry: Address | tuple[str, int]
    """Where requests go in: an address, or a Service and its port."""
    model: str
    failure_mode: str
    models: tuple[str, ...] = ()
    """All of them, where each has a pool of its own."""
    notices: tuple[str, ...] = ()
    """What of the wish cannot be had here."""
    pool_file: Path | None = None
    """Where Envoy reads all simulators, when it has to know them before the picker may pick them."""

    def of(self, role: Role) -> tuple[Deployment, ...]:
        """Return the Deployments of one role."""
        return tuple(each for each in self.deployments if each.role == role)


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether a selector selects these labels; an empty one selects all."""
    return selector.items() <= labels.items()
