"""Services as loopback ports: one Envoy that passes bytes from each port of each Service to the Pods behind it.

A Service has its own number as its port here when that is free, and keeps what it got for as long as it is there.
Envoy follows its two files, so Services come and go without a restart.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from pointsman.core.errors import Unavailable
from pointsman.core.files import replace
from pointsman.local import envoys, programs
from pointsman.local.envoys import Backend
from pointsman.local.plan import Service
from pointsman.local.pods import HOST
from pointsman.local.ports import Wish, free_span, settle
from pointsman.local.processes import Process, Program
from pointsman.local.state import Folder
from pointsman.render.envoy.addresses import Address


class Relay:
    """The Envoy of the Services, and their places."""

    def __init__(
        self, folder: Folder, *, envoy: Path, process: Callable[[Program], Process], any_ports: bool = False
    ) -> None:
        self._folder = folder
        self._envoy = envoy
        self._process = process
        self._any_ports = any_ports
        self._places: dict[Backend, Address] = {}
        self._admin = 0
        self.processes: list[Process] = []

    def settle(self, services: Iterable[Service], *, taken: Collection[int]) -> None:
        """Choose an address for each port of these Services and drop all others; Envoy is not told yet."""
        wanted = [Backend(service=s.name, port=port) for s in services if not s.headless for port in s.ports]
        given = set(taken)
        self._places = {each: self._places.get(each) or self._settle(each, given) for each in wanted}

    def tell(self) -> list[Process]:
        """Tell Envoy; return the process if it is new and has to be started.

        The files of all its backends must be there: Envoy refuses a cluster that reads from nowhere.
        """
        if not self._places and not self.processes:
            return []
        try:
            self._write()
        except OSError as error:
            raise Unavailable(f"{error.filename} cannot be written: {error.strerror}") from None
        if self.processes:
            return []
        self._admin = free_span(0, host=HOST, given_out=self.ports())
        program = programs.relay(admin=Address(HOST, self._admin), folder=self._folder, envoy=self._envoy)
        self.processes = [self._process(program)]
        return self.processes

    def address(self, service: str, port: int) -> Address:
        """Return where a port of a Service is."""
        return self._places[Backend(service=service, port=port)]

    def backends(self) -> Sequence[Backend]:
        """Return whose Pods it has to know."""
        return list(self._places)

    def ports(self) -> set[int]:
        """Return the ports of this machine that are in use."""
        return {self._admin, *(place.port for place in self._places.values())}

    def places(self) -> dict[str, str]:
        """Return where each Service is, for people."""
        return {f"{each.service}:{each.port}": str(place) for each, place in self._places.items()}

    def pids(self) -> dict[str, int | None]:
        """Return the process, for people."""
        return {process.program.name: process.pid for process in self.processes}

    def _settle(self, backend: Backend, given: set[int]) -> Address:
        number = 0 if self._any_ports else backend.port
        wish = Wish(port=number, flag="", what=f"Service {backend.service}", named=False)
        port = settle(wish, host=HOST, given_out=given)
        given.add(port)
        return Address(HOST, port)

    def _write(self) -> None:
        clusters = envoys.relay_clusters(
            self.backends(), file=lambda backend: self._folder.endpoints_file(backend.name)
        )
        replace(self._folder.clusters_file, json.dumps(clusters))
        replace(self._folder.listeners_file, json.dumps(envoys.relay_listeners(self._places)))
