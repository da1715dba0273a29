"""Writes the files by which Envoys and pickers know of Pods, in the order that `replicas` asks for.

One task owns these files. Whoever changes something calls `notice`; the task then makes the files true: first the
pickers lose who must go, then the Envoys get their lists, then, when Envoy has them, the pickers gain who is new.

A file that cannot be written is told (`problems`) and tried again every second, and so is one that someone else has
changed. Until then its readers have the last version: a Pod that died comes back where it was, so that stays usable.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.core.documents import to_yaml
from pointsman.core.errors import Unavailable
from pointsman.core.files import read_regular, replace
from pointsman.local import envoys
from pointsman.local.envoys import Backend
from pointsman.local.http import get
from pointsman.local.plan import Service
from pointsman.local.programs import endpoint
from pointsman.local.replicas import PodMember, behind, for_envoy, for_picker
from pointsman.render.envoy import clusters
from pointsman.render.envoy.addresses import Address

_ENVOY_READS_WITHIN = 5.0
_LOOK_AGAIN = 0.02
_CHECK_EVERY = 1.0


@dataclass(frozen=True, kw_only=True)
class Outlets:
    """Who wants to know of what, and where they read it."""

    services: Sequence[Service] = ()
    backends: Mapping[Backend, Path] = field(default_factory=dict)
    pickers: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)
    """The labels that a picker picks among, by its file."""
    pool: Path | None = None
    """The file of an Envoy that must have read of a simulator before a picker does."""
    admin: Address | None = None
    """That Envoy's admin, once it runs; before that it has nothing to read the file with."""


class Publisher:
    """Keeps the files true."""

    def __init__(self, *, members: Callable[[], Sequence[PodMember]], outlets: Callable[[], Outlets]) -> None:
        self._members = members
        self._outlets = outlets
        self._dirty = asyncio.Event()
        self._clean = asyncio.Event()
        self._known: list[Address] = []
        self._written: dict[Path, str] = {}
        self._failed: dict[Path, str] = {}
        self._version = 0

    def notice(self) -> None:
        """Say that a Pod came, went or changed, or who wants to know."""
        self._clean.clear()
        self._dirty.set()

    @property
    def problems(self) -> list[str]:
        """What could not be written, and why."""
        return [f"{path} cannot be written: {why}" for path, why in self._failed.items()]

    async def settled(self) -> None:
        """Wait until all files are true.

        Raises Unavailable when one cannot be written.
        """
        await self._clean.wait()
        if self._failed:
            raise Unavailable("; ".join(self.problems))

    async def run(self) -> None:
        """Follow the changes for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_EVERY):
                    await self._dirty.wait()
            if not self._dirty.is_set() and not self._failed:
                self._mend()
                continue
            self._dirty.clear()
            await self.publish()
            if not self._dirty.is_set():
                self._clean.set()

    async def publish(self) -> None:
        """Make all files true once."""
        self._tell_pickers(known=self._known)
        wanted = for_envoy(self._members())
        if wanted != self._known or not self._version:
            await self._tell_envoy(wanted)
        self._tell_services()
        self._tell_pickers(known=self._known)

    async def _tell_envoy(self, addresses: list[Address]) -> None:
        self._version += 1
        outlets = self._outlets()
        if outlets.pool is not None:
            document = clusters.endpoints(addresses, version=str(self._version))
            self._write(outlets.pool, json.dumps(document))
            if outlets.pool in self._failed:
                return  # nobody may be picked whom Envoy does not know
            await self._envoy_has(addresses, admin=outlets.admin)
        self._known = addresses

    def _tell_services(self) -> None:
        outlets, members = self._outlets(), self._members()
        for backend, path in outlets.backends.items():
            hosts = behind(backend, services=outlets.services, members=members)
            self._write(path, json.dumps(envoys.assignment(backend, hosts)))

    def _tell_pickers(self, *, known: Collection[Address]) -> None:
        for path, selects in self._outlets().pickers.items():
            ready = for_picker(self._members(), known_to_envoy=known, selects=selects)
            rows = [endpoint(m.name, m.address, labels=m.labels, namespace=m.namespace) for m in ready]
            self._write(path, to_yaml({"endpoints": rows}))

    def _write(self, path: Path, text: str) -> None:
        if self._written.get(path) != text or path in self._failed:
            self._written[path] = text
            self._put(path)

    def _put(self, path: Path) -> None:
        try:
            replace(path, self._written[path])
            self._failed.pop(path, None)
        except OSError as error:
            self._failed[path] = error.strerror or str(error)

    def _mend(self) -> None:
        """Write again what is not as we wrote it."""
        for path, text in self._written.items():
            try:
                same = read_regular(path, most=len(text.encode())) == text.encode()
            except OSError:
                same = False
            if not same:
                self._put(path)

    async def _envoy_has(self, addresses: Collection[Address], *, admin: Address | None) -> None:
        if admin is None:
            return
        wanted = {str(address) for address in addresses}
        deadline = asyncio.get_running_loop().time() + _ENVOY_READS_WITHIN
        while asyncio.get_running_loop().time() < deadline:
            answer = await get(admin, "/clusters")
            if answer is not None and hosts(answer.body.decode()) == wanted:
                return
            await asyncio.sleep(_LOOK_AGAIN)


def hosts(listing: str, *, cluster: str = clusters.MODEL_SERVERS, healthy: bool = False) -> set[str]:
    """Return the hosts of a cluster in the text of Envoy's `/clusters`, all or those that are healthy."""
    prefix, mark = f"{cluster}::", "::health_flags::"
    lines = (line for line in listing.splitlines() if line.startswith(prefix) and mark in line)
    rows = (line.removeprefix(prefix).partition(mark) for line in lines)
    return {host for host, _, flags in rows if not healthy or flags == "healthy"}
