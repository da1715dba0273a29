"""Endpoints from a YAML file: no Kubernetes at all.

    endpoints:
    - {name: sim-0, address: 127.0.0.1, port: 8200, namespace: default, labels: {llm-d.ai/role: decode}}
    - {name: gpu-7, address: gpu-7.example.org, port: 8000}
    objectives:
    - {name: batch, priority: -1}
    modelRewrites:
    - {name: canary, rules: [{matches: [{model: {value: m}}], targets: [{modelRewrite: m-2, weight: 10}]}]}

The file is the Go picker's `file-discovery` format, plus IPv6, host names, objectives and rewrites. A host name stands
for all its addresses, one endpoint each, and is looked up again every few seconds; where a look-up fails, the addresses
of the last one stay. The file is watched; a version that is wrong is reported and not used, the last good one stays.
"""

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.core.documents import parse_yaml
from pointsman.core.errors import UserError
from pointsman.core.files import read_regular
from pointsman.core.logs import get_logger
from pointsman.core.numbers import SAFE, whole
from pointsman.core.watch import watch_files
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.request.objectives import Objective
from pointsman.epp.request.rewrites import Rewrite
from pointsman.epp.sources.pool import read_rule

log = get_logger(__name__)

_SECTIONS = ("endpoints", "objectives", "modelRewrites")
_FIELDS = ("name", "namespace", "address", "port", "labels")
_MAX_BYTES = 1 << 20
_LOOKUP_SECONDS = 5.0
_HOST = re.compile(
    r"(?=.{1,253}$)[a-zA-Z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?)*\.?"
)

Lookup = Callable[[str], Awaitable[tuple[str, ...]]]
"""Returns a host name's addresses; raises OSError when there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a file says. An endpoint's address may still be a host name."""

    endpoints: tuple[Endpoint, ...] = ()
    objectives: tuple[Objective, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names among the addresses."""
        return tuple(dict.fromkeys(one.address for one in self.endpoints if not _is_address(one.address)))

    def resolved(self, addresses: Mapping[str, tuple[str, ...]]) -> tuple[Endpoint, ...]:
        """Return the endpoints with addresses for names; who has none is not there, who came first keeps an address."""
        found: dict[str, Endpoint] = {}
        for one in self.endpoints:
            if _is_address(one.address):
                found.setdefault(one.target, one)
                continue
            several = addresses.get(one.address, ())
            for address in several:
                name = one.name if len(several) == 1 else f"{one.name}-{address}"
                made = Endpoint(name=name, address=address, port=one.port, namespace=one.namespace, labels=one.labels)
                found.setdefault(made.target, made)
        return tuple(found.values())


def parse_listing(text: bytes, *, name: str) -> Listing:
    """Return what the file's text says.

    Raises UserError naming file, entry and field when one is wrong.
    """
    if len(text) > _MAX_BYTES:
        raise UserError(f"{name}: {len(text)} bytes are too many, at most {_MAX_BYTES}: split the pool")
    document = parse_yaml(text, name=name)
    if document is None:
        return Listing()
    if not isinstance(document, dict):
        raise UserError(f"{name}: expected a mapping with a list `endpoints`")
    unknown = sorted(set(map(str, document)) - set(_SECTIONS))
    if unknown:
        raise UserError(f"{name}: unknown field {unknown[0]!r}: there is {', '.join(_SECTIONS)}")
    endpoints, objectives, rewrites = (_entries(document, section, name=name) for section in _SECTIONS)
    return Listing(
        endpoints=_distinct([_endpoint(entry, where=where) for where, entry in endpoints], name=name),
        objectives=tuple(_objective(entry, where=where) for where, entry in objectives),
        rewrites=tuple(_rewrite(entry, where=where) for where, entry in rewrites),
    )


def _entries(document: dict[str, Any], section: str, *, name: str) -> list[tuple[str, dict[str, Any]]]:
    entries = document.get(section) or []
    if not isinstance(entries, list):
        raise UserError(f"{name}: expected a mapping with a list `{section}`")
    for at, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise UserError(f"{name}: {section}[{at}]: expected a mapping")
    return [(f"{name}: {section}[{at}]", entry) for at, entry in enumerate(entries)]


def _known(entry: dict[str, Any], fields: tuple[str, ...], *, where: str) -> None:
    unknown = sorted(set(map(str, entry)) - set(fields))
    if unknown:
        raise UserError(f"{where}.{unknown[0]}: unknown field: use {', '.join(fields)}")


def _endpoint(entry: dict[str, Any], *, where: str) -> Endpoint:
    _known(entry, _FIELDS, where=where)
    port = entry.get("port")
    number = whole(port, most=SAFE) if isinstance(port, str) else port if type(port) is int else None
    if number is None:
        raise UserError(f"{where}.port: {port!r} is not a port: write a number from 1 to 65535")
    if not 1 <= number <= 65_535:
        raise UserError(f"{where}.port: {number} is out of range: write a number from 1 to 65535")
    labels = entry.get("labels") or {}
    if not isinstance(labels, dict):
        raise UserError(f"{where}.labels: expected a mapping of strings")
    address = _address(entry.get("address"), where=where)
    return Endpoint(
        name=str(entry.get("name") or f"{address}:{number}"),
        namespace=str(entry.get("namespace") or "default"),
        address=address,
        port=number,
        labels={str(key): str(value) for key, value in labels.items()},
    )


def _address(value: Any, *, where: str) -> str:
    text = str(value) if value is not None else ""
    try:
        return ipaddress.ip_address(text).compressed
    except ValueError:
        # a mistyped IPv4 address must not become a name that nobody can look up
        if _HOST.fullmatch(text) and not text.rstrip(".").rpartition(".")[2].isdigit():
            return text
        raise UserError(f"{where}.address: {value!r} is neither an IPv4 or IPv6 address nor a host name") from None


def _is_address(text: str) -> bool:
    return ":" in text or text.rpartition(".")[2].isdigit()


def _distinct(endpoints: list[Endpoint], *, name: str) -> tuple[Endpoint, ...]:
    seen: dict[str, int] = {}
    for at, endpoint in enumerate(endpoints):
        if seen.setdefault(endpoint.target, at) != at:
            raise UserError(
                f"{name}: endpoints[{at}]: {endpoint.target} is endpoints[{seen[endpoint.target]}] already: remove one"
            )
    return tuple(endpoints)


def _objective(entry: dict[str, Any], *, where: str) -> Objective:
    _known(entry, ("name", "priority"), where=where)
    priority = entry.get("priority", 0)
    if not isinstance(entry.get("name"), str) or not entry["name"]:
        raise UserError(f"{where}.name: missing: write the name that requests send in x-llm-d-inference-objective")
    if type(priority) is not int:
        raise UserError(f"{where}.priority: {priority!r} is not a whole number: below 0 may be shed, 0 is ordinary")
    return Objective(name=entry["name"], priority=priority)


def _rewrite(entry: dict[str, Any], *, where: str) -> Rewrite:
    _known(entry, ("name", "rules"), where=where)
    rules = entry.get("rules")
    if not isinstance(rules, list) or not rules:
        raise UserError(f"{where}.rules: expected a list of rules with matches and targets")
    read = []
    for at, rule in enumerate(rules):
        made = read_rule(rule) if isinstance(rule, dict) else None
        if made is None or not made.targets:
            raise UserError(f"{where}.rules[{at}].targets: expected a list with at least one modelRewrite")
        read.append(made)
    return Rewrite(name=str(entry.get("name") or where), rules=tuple(read))


async def look_up(host: str) -> tuple[str, ...]:
    """Return a host name's addresses, sorted so that the order of a resolver's answer changes nothing."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=1)
    return tuple(sorted({str(entry[4][0]) for entry in found}))


class FileSource:
    """Follows one file, and the names in it."""

    def __init__(
        self,
        path: Path,
        *,
        use: Callable[[Listing, tuple[Endpoint, ...]], None],
        failed: Callable[[], None],
        watch: bool = True,
        lookup: Lookup = look_up,
        lookup_seconds: float = _LOOKUP_SECONDS,
    ) -> None:
        self._path = path
        self._use = use
        self._failed = failed
        self._watch = watch
        self._lookup = lookup
        self._lookup_seconds = lookup_seconds
        self._listing = Listing()
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._lost: set[str] = set()  # names that the last look-up did not find
        self._used: tuple[Listing, tuple[Endpoint, ...]] | None = None

    async def start(self) -> None:
        """Read the file for the first time.

        Raises UserError when it is not there or wrong.
        """
        try:
            text = read_regular(self._path, most=_MAX_BYTES)
        except OSError as error:
            raise UserError(f"endpoints file {self._path}: cannot be read: {error.strerror}") from None
        await self._take(parse_listing(text, name=str(self._path)))

    async def run(self) -> None:
        """Follow the file, where that is wanted, and the names; until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._watch:
                tasks.create_task(self._follow_file())
            tasks.create_task(self._follow_names())

    async def _follow_file(self) -> None:
        async for (text,) in watch_files([self._path]):
            try:
                if text is None:
                    raise UserError(f"{self._path}: cannot be read")  # noqa: TRY301 - the same report as for a bad file
                listing = parse_listing(text, name=str(self._path))
            except UserError as error:
                self._failed()
                log.warning("endpoints: file not used", reason=str(error))
            else:
                await self._take(listing)

    async def _follow_names(self) -> None:
        while True:
            await asyncio.sleep(self._lookup_seconds)
            if self._listing.hosts:
                await self._take(self._listing)

    async def _take(self, listing: Listing) -> None:
        self._listing = listing
        async with asyncio.TaskGroup() as tasks:
            for host in listing.hosts:
                tasks.create_task(self._find(host))
        if listing is not self._listing:
            return  # a newer version came while we looked names up
        endpoints = listing.resolved(self._addresses)
        if (listing, endpoints) != self._used:
            self._used = listing, endpoints
            self._use(listing, endpoints)
            log.info("endpoints: file read", file=str(self._path), endpoints=len(endpoints))

    async def _find(self, host: str) -> None:
        try:
            async with asyncio.timeout(self._lookup_seconds):
                self._addresses[host] = await self._lookup(host)
            self._lost.discard(host)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            if host not in self._lost:  # said once, not every few seconds
                log.warning("endpoints: host name not found", host=host, reason=str(error) or "no answer in time")
            self._lost.add(host)
