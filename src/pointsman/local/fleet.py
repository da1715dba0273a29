"""The Pods of one Deployment: which there are, in which process and where each listens.

It starts, stops and asks nothing: it tells its owner which processes to start, what to wait for and which to stop.
Who leaves a process that others need becomes a spare in it. Only the youngest leave and the oldest spares return
first, so names always count up without a gap, and only the youngest process has spares.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pointsman.local import replicas
from pointsman.local.plan import Deployment, Ports
from pointsman.local.processes import Process, ProcessState
from pointsman.local.replicas import PodMember


class Seat(NamedTuple):
    """Where a Pod is."""

    process: Process
    ports: Ports


class Fleet:
    """Every Pod of one revision of a Deployment."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        place: Callable[[int], Sequence[Ports]],
        process: Callable[[Sequence[str], Sequence[Ports]], Process],
    ) -> None:
        self.deployment = deployment
        self._place = place
        self._process = process
        self._seats: dict[str, Seat] = {}
        self._spare: dict[str, Seat] = {}
        self._leaving: list[str] = []

    def __len__(self) -> int:
        return len(self._seats)

    def processes(self) -> set[Process]:
        """Return the processes that somebody needs."""
        return {seat.process for seat in self._seats.values()}

    def ports(self) -> Iterator[int]:
        """Yield the ports of this machine that are in use."""
        for seat in (*self._seats.values(), *self._spare.values()):
            yield from (address.port for address in seat.ports.values())

    def grow(self, wanted: int) -> list[Process]:
        """Add Pods until there are at least so many; return the processes to start."""
        names = replicas.next_names(self._seats, wanted=wanted, name=self.deployment.pod)
        new = [name for name in names if name not in self._spare]
        self._seats |= {name: self._spare.pop(name) for name in names if name in self._spare}
        shared = self.deployment.role == "simulator" and wanted > replicas.ALONE_UP_TO
        return [self._add(share) for share in replicas.shares(new, together=shared)]

    def leave(self, wanted: int) -> list[PodMember]:
        """Let all above so many leave; return who finish what they have."""
        self._leaving = replicas.surplus(list(self._seats), wanted=wanted)
        members = {member.name: member for member in self.members()}
        return [members[name] for name in self._leaving]

    def release(self) -> set[Process]:
        """Forget who was leaving; return the processes to stop."""
        self._spare |= {name: self._seats.pop(name) for name in reversed(self._leaving)}
        self._leaving = []
        needed = self.processes()
        gone = {seat.process for seat in self._spare.values()} - needed
        self._spare = {name: seat for name, seat in self._spare.items() if seat.process in needed}
        return gone

    def members(self) -> list[PodMember]:
        """Return what decides who may know of each."""
        return [self._member(name, seat) for name, seat in self._seats.items()]

    def _member(self, name: str, seat: Seat) -> PodMember:
        return PodMember(
            name=name,
            role=self.deployment.role,
            namespace=self.deployment.namespace,
            labels=self.deployment.labels,
            address=seat.ports[self.deployment.ports[0]],
            ports=seat.ports,
            healthy=seat.process.state is ProcessState.READY,
            leaving=name in self._leaving,
            state=str(seat.process.state),
            pid=seat.process.pid,
        )

    def _add(self, names: Sequence[str]) -> Process:
        homes = self._place(len(names))
        process = self._process(names, homes)
        self._seats |= {name: Seat(process, ports) for name, ports in zip(names, homes, strict=True)}
        return process
