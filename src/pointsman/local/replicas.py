"""The Pods of a stack, and who may know of them when. Pure: no process, no file.

The rule that keeps requests from failing while simulators come and go: Envoy knows an endpoint before the picker may
pick it, and for as long as a request of it may be under way. So a new replica goes to Envoy first and to the picker
once Envoy has it; one that is leaving goes from the picker first and from Envoy when it has nothing left to do; one
that died leaves the picker at once and stays with Envoy, whose retries then go to the next in the pick.

Behind a Service are the Pods that are healthy and not leaving. Pickers stay when they are not healthy: the gateway
asks them about that itself.

A few replicas are a process each, so that one can be killed; many share one, because a process costs what a hundred
replicas cost. A replica that leaves a process which others still need stays in it as a spare, known to nobody, and is
the first to be used again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pointsman.local.envoys import Backend, Host
from pointsman.local.plan import Ports, Role, Service, matches
from pointsman.render.envoy.addresses import Address

ALONE_UP_TO = 8
"""Simulators of a Deployment in which each is a process."""


@dataclass(frozen=True, kw_only=True)
class PodMember:
    """One Pod, as far as others need to know."""

    name: str
    address: Address
    """Where it serves."""
    healthy: bool
    leaving: bool
    role: Role = "simulator"
    namespace: str = "local"
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Ports = field(default_factory=dict)
    state: str = ""
    pid: int | None = None

    @property
    def admin(self) -> Address:
        """Of a gateway: where its Envoy is asked and told things, the last of its ports."""
        return list(self.ports.values())[-1]


def for_envoy(members: Sequence[PodMember]) -> list[Address]:
    """Return the endpoints that Envoy may send to."""
    return [member.address for member in members if member.role == "simulator"]


def for_picker(
    members: Sequence[PodMember], *, known_to_envoy: Collection[Address], selects: Mapping[str, str] | None = None
) -> list[PodMember]:
    """Return the endpoints that the picker may pick."""
    simulators = [m for m in members if m.role == "simulator" and matches(selects or {}, m.labels)]
    return [m for m in simulators if m.healthy and not m.leaving and m.address in known_to_envoy]


def behind(backend: Backend, *, services: Sequence[Service], members: Sequence[PodMember]) -> list[Host]:
    """Return the Pods behind a port of a Service."""
    service = next((each for each in services if each.name == backend.service), None)
    if service is None:
        return []
    target, health = service.ports[backend.port], service.ports.get(backend.health, 0)
    return [
        Host(member.ports[target], member.ports[health].port if health else 0)
        for member in members
        if service.selects(member.labels) and not member.leaving and (member.healthy or member.role == "picker")
    ]


def surplus(names: Sequence[str], *, wanted: int) -> list[str]:
    """Return who has to leave, the youngest first."""
    return list(reversed(names[wanted:]))


def next_names(names: Collection[str], *, wanted: int, name: Callable[[int], str]) -> list[str]:
    """Return the names to add, filling the gaps from the lowest number."""
    missing = wanted - len(names)
    numbers = (n for n in range(len(names) + wanted) if name(n) not in names)
    return [name(next(numbers)) for _ in range(max(missing, 0))]


def shares(new: Sequence[str], *, together: bool) -> list[list[str]]:
    """Return the new replicas by process."""
    if not together:
        return [[name] for name in new]
    return [list(new)] if new else []
