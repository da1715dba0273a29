"""Writes the two endpoint files, in the order that `replicas` asks for, and waits until Envoy has read its own.

One task owns both files. Whoever changes something calls `notice`; the task then makes the files true: first the
picker loses who must go, then Envoy gets the list, then, when Envoy has it, the picker gains who is new.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Sequence

from pointsman.core.documents import to_yaml
from pointsman.local.http import get
from pointsman.local.programs import picker_endpoints
from pointsman.local.replicas import Member, for_envoy, for_picker
from pointsman.local.state import Folder, replace
from pointsman.render import clusters
from pointsman.render.addresses import Address

_ENVOY_READS_WITHIN = 5.0
_LOOK_AGAIN = 0.02


class Publisher:
    """Keeps Envoy's and the picker's endpoints true."""

    def __init__(self, folder: Folder, *, members: Callable[[], Sequence[Member]]) -> None:
        self._folder = folder
        self._members = members
        self._dirty = asyncio.Event()
        self._clean = asyncio.Event()
        self._envoy: list[Address] = []
        self._picker: list[Member] | None = None
        self._version = 0
        self.admin: Address | None = None
        """Envoy's admin, once Envoy runs; before that it has nothing to read the file with."""

    def notice(self) -> None:
        """Say that a replica came, went or changed."""
        self._clean.clear()
        self._dirty.set()

    async def settled(self) -> None:
        """Wait until both files are true."""
        await self._clean.wait()

    async def run(self) -> None:
        """Follow the changes for ever."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self.publish()
            if not self._dirty.is_set():
                self._clean.set()

    async def publish(self) -> None:
        """Make both files true once."""
        self._tell_picker(known=self._envoy)
        wanted = for_envoy(self._members())
        if wanted != self._envoy or not self._version:
            self._tell_envoy(wanted)
            await self._envoy_has(wanted)
        self._tell_picker(known=wanted)

    def _tell_envoy(self, addresses: list[Address]) -> None:
        self._version += 1
        self._envoy = addresses
        document = clusters.endpoints(addresses, version=str(self._version))
        replace(self._folder.envoy_endpoints_file, json.dumps(document))

    def _tell_picker(self, *, known: Collection[Address]) -> None:
        ready = for_picker(self._members(), known_to_envoy=known)
        if ready != self._picker:
            self._picker = ready
            rows = [(member.name, member.address) for member in ready]
            replace(self._folder.picker_endpoints_file, to_yaml(picker_endpoints(rows)))

    async def _envoy_has(self, addresses: Collection[Address]) -> None:
        if self.admin is None:
            return
        wanted = {str(address) for address in addresses}
        deadline = asyncio.get_running_loop().time() + _ENVOY_READS_WITHIN
        while asyncio.get_running_loop().time() < deadline:
            answer = await get(self.admin, "/clusters")
            if answer is not None and hosts(answer.body.decode()) == wanted:
                return
            await asyncio.sleep(_LOOK_AGAIN)


def hosts(listing: str) -> set[str]:
    """Return the model servers in the text of Envoy's `/clusters`."""
    prefix, mark = f"{clusters.MODEL_SERVERS}::", "::health_flags::"
    lines = (line for line in listing.splitlines() if line.startswith(prefix) and mark in line)
    return {line.removeprefix(prefix).partition(mark)[0] for line in lines}
