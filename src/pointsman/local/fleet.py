"""The simulators of a stack: which there are, in which process and at which address each is.

It starts, stops and asks nothing: it tells its owner which processes to start, what to wait for and which to stop.
Who leaves a process that others need becomes a spare in it. Only the youngest leave and the oldest spares return
first, so names always count up without a gap, and only the youngest process has spares.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pointsman.local import programs, replicas
from pointsman.local.ports import free_span
from pointsman.local.processes import Process, Program, State
from pointsman.local.programs import Settings
from pointsman.local.state import Replica
from pointsman.render.addresses import Address


class Seat(NamedTuple):
    """Where a simulator is."""

    process: Process
    address: Address


class Fleet:
    """Every simulator of one stack."""

    def __init__(self, settings: Settings, *, process: Callable[[Program], Process]) -> None:
        self._settings = settings
        self._process = process
        self._seats: dict[str, Seat] = {}
        self._spare: dict[str, Seat] = {}
        self._leaving: list[str] = []

    def __len__(self) -> int:
        return len(self._seats)

    def processes(self) -> set[Process]:
        """Return the processes that somebody needs."""
        return {seat.process for seat in self._seats.values()}

    def grow(self, wanted: int) -> list[Process]:
        """Have at least so many simulators; return the processes to start."""
        names = replicas.next_names(self._seats, wanted=wanted)
        new = [name for name in names if name not in self._spare]
        self._seats |= {name: self._spare.pop(name) for name in names if name in self._spare}
        return [self._add(share) for share in replicas.shares(new, wanted=wanted)]

    def leave(self, wanted: int) -> list[Address]:
        """Let all above so many leave; return where they finish what they have."""
        self._leaving = replicas.surplus(list(self._seats), wanted=wanted)
        return [self._seats[name].address for name in self._leaving]

    def release(self) -> set[Process]:
        """Forget who was leaving; return the processes to stop."""
        self._spare |= {name: self._seats.pop(name) for name in reversed(self._leaving)}
        self._leaving = []
        needed = self.processes()
        gone = {seat.process for seat in self._spare.values()} - needed
        self._spare = {name: seat for name, seat in self._spare.items() if seat.process in needed}
        return gone

    def members(self) -> list[replicas.Member]:
        """Return what decides who may know of each."""
        return [
            replicas.Member(
                name=name,
                address=seat.address,
                healthy=seat.process.state is State.READY,
                leaving=name in self._leaving,
            )
            for name, seat in self._seats.items()
        ]

    def records(self) -> tuple[Replica, ...]:
        """Return what people are told of each."""
        return tuple(
            Replica(
                name=name,
                address=str(seat.address),
                state="leaving" if name in self._leaving else str(seat.process.state),
                pid=seat.process.pid,
            )
            for name, seat in self._seats.items()
        )

    def _add(self, names: Sequence[str]) -> Process:
        settings = self._settings
        host = settings.gateway.host
        used = {seat.address.port for seat in (*self._seats.values(), *self._spare.values())}
        used.update(address.port for address in settings.addresses())
        port = free_span(settings.first_simulator_port, count=len(names), host=host, given_out=used)
        process = self._process(programs.simulators(settings, names=names, first=Address(host, port)))
        self._seats |= {name: Seat(process, Address(host, port + at)) for at, name in enumerate(names)}
        return process
