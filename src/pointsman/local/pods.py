"""The Pods of a stack: a fleet for each revision of each Deployment, and where on this machine each Pod finds room.

It starts and stops nothing. A revision that no plan wants any more is kept until its last Pod has left.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, partial

from pointsman.core.documents import parse_yaml
from pointsman.local import envoys
from pointsman.local.envoys import Backend
from pointsman.local.fleet import Fleet
from pointsman.local.plan import Deployment, Ports, Role
from pointsman.local.ports import free_span
from pointsman.local.processes import Process
from pointsman.local.replicas import PodMember
from pointsman.render.envoy.addresses import Address

HOST = "127.0.0.1"

MakeProcess = Callable[[Deployment, Sequence[str], Sequence[Ports]], Process]


class Pods:
    """Every Pod of one stack."""

    def __init__(self, *, process: MakeProcess, taken: Callable[[], Iterable[int]]) -> None:
        self._process = process
        self._taken = taken
        self._fleets: dict[str, Fleet] = {}

    def have(self, deployments: Iterable[Deployment]) -> None:
        """Create an empty fleet for each Deployment that has none."""
        for each in deployments:
            if each.group not in self._fleets:
                place, process = partial(self._place, each), partial(self._process, each)
                self._fleets[each.group] = Fleet(each, place=place, process=process)

    def fleet(self, deployment: Deployment) -> Fleet:
        """Return the fleet of this revision."""
        return self._fleets[deployment.group]

    def fleets(self, role: Role) -> list[Fleet]:
        """Return the fleets of a role, of all revisions."""
        return [fleet for fleet in self._fleets.values() if fleet.deployment.role == role]

    def forget(self, *, wanted: Collection[str]) -> None:
        """Forget the revisions that nobody wants and that have no Pod left."""
        self._fleets = {name: fleet for name, fleet in self._fleets.items() if len(fleet) or name in wanted}

    def members(self) -> list[PodMember]:
        """Return all Pods."""
        return [member for fleet in self._fleets.values() for member in fleet.members()]

    def of(self, role: Role) -> list[PodMember]:
        """Return the Pods of a role."""
        return [member for fleet in self.fleets(role) for member in fleet.members()]

    def processes(self, role: Role) -> list[Process]:
        """Return the processes of a role."""
        return [process for fleet in self.fleets(role) for process in fleet.processes()]

    def ports(self) -> set[int]:
        """Return the ports of this machine that are in use, or will be because a person chose them."""
        fleets = self._fleets.values()
        pinned = (address.port for fleet in fleets for address in fleet.deployment.pinned.values())
        return {*pinned, *(port for fleet in fleets for port in fleet.ports())}

    def backends(self) -> list[Backend]:
        """Return whose Pods the gateways ask for."""
        texts = [text for fleet in self.fleets("gateway") for text in fleet.deployment.files.values()]
        return [backend for text in texts for backend in _backends(text)]

    def _place(self, deployment: Deployment, count: int) -> Sequence[Ports]:
        taken = self.ports() | set(self._taken())
        if deployment.role == "simulator":
            (port,) = deployment.ports
            first = free_span(deployment.first_port, count=count, host=HOST, given_out=taken)
            return [{port: Address(HOST, first + at)} for at in range(count)]
        found = {port: deployment.pinned[port] for port in deployment.ports if port in deployment.pinned}
        for port in (port for port in deployment.ports if port not in found):
            found[port] = Address(HOST, free_span(0, host=HOST, given_out=taken))
            taken.add(found[port].port)
        return [{port: found[port] for port in deployment.ports}]


@lru_cache(maxsize=16)  # asked at every change of any Pod
def _backends(text: str) -> tuple[Backend, ...]:
    return tuple(envoys.backends(parse_yaml(text, name="envoy")))
