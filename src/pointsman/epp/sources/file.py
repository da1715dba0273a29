"""Endpoints from a YAML file: no Kubernetes at all.

    endpoints:
    - {name: sim-0, address: 127.0.0.1, port: 8200, namespace: default, labels: {llm-d.ai/role: decode}}

The file is the Go picker's `file-discovery` format, plus IPv6. It is watched; a version that is wrong is reported and
not used, the endpoints of the last good one stay.
"""

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pointsman.core.documents import parse_yaml
from pointsman.core.errors import UserError
from pointsman.core.logs import get_logger
from pointsman.core.watch import watch_files
from pointsman.epp.endpoint import Endpoint

log = get_logger(__name__)

_FIELDS = ("name", "namespace", "address", "port", "labels")
_MAX_BYTES = 1 << 20


def parse_endpoints(text: bytes, *, name: str) -> tuple[Endpoint, ...]:
    """Return the endpoints in the file's text.

    Raises UserError naming file, entry and field when one is wrong.
    """
    if len(text) > _MAX_BYTES:
        raise UserError(f"{name}: {len(text)} bytes are too many, at most {_MAX_BYTES}: split the pool")
    document = parse_yaml(text, name=name)
    if document is None:
        return ()
    if not isinstance(document, dict) or not isinstance(document.get("endpoints") or [], list):
        raise UserError(f"{name}: expected a mapping with a list `endpoints`")
    unknown = sorted(set(document) - {"endpoints"})
    if unknown:
        raise UserError(f"{name}: unknown field {unknown[0]!r}: only `endpoints` is known")
    entries = document.get("endpoints") or []
    endpoints = tuple(_entry(entry, where=f"{name}: endpoints[{at}]") for at, entry in enumerate(entries))
    seen: dict[str, int] = {}
    for at, endpoint in enumerate(endpoints):
        if seen.setdefault(endpoint.target, at) != at:
            raise UserError(
                f"{name}: endpoints[{at}]: {endpoint.target} is endpoints[{seen[endpoint.target]}] already: remove one"
            )
    return endpoints


def _entry(entry: Any, *, where: str) -> Endpoint:
    if not isinstance(entry, dict):
        raise UserError(f"{where}: expected a mapping with {', '.join(_FIELDS)}")
    unknown = sorted(set(map(str, entry)) - set(_FIELDS))
    if unknown:
        raise UserError(f"{where}.{unknown[0]}: unknown field: use {', '.join(_FIELDS)}")
    port = entry.get("port")
    if type(port) is not int and not (isinstance(port, str) and port.isdigit()):
        raise UserError(f"{where}.port: {port!r} is not a port: write a number from 1 to 65535")
    if not 1 <= int(port) <= 65_535:
        raise UserError(f"{where}.port: {port} is out of range: write a number from 1 to 65535")
    labels = entry.get("labels") or {}
    if not isinstance(labels, dict):
        raise UserError(f"{where}.labels: expected a mapping of strings")
    address = _address(entry.get("address"), where=where)
    return Endpoint(
        name=str(entry.get("name") or f"{address}:{port}"),
        namespace=str(entry.get("namespace") or "default"),
        address=address,
        port=int(port),
        labels={str(key): str(value) for key, value in labels.items()},
    )


def _address(value: Any, *, where: str) -> str:
    try:
        return ipaddress.ip_address(str(value)).compressed
    except ValueError:
        raise UserError(f"{where}.address: {value!r} is not an IPv4 or IPv6 address") from None


async def follow_file(path: Path, *, use: Callable[[tuple[Endpoint, ...]], None], failed: Callable[[], None]) -> None:
    """Hand over the file's endpoints now and after each change, until cancelled."""
    async for (text,) in watch_files([path]):
        try:
            if text is None:
                raise UserError(f"{path}: cannot be read")  # noqa: TRY301 - the same report as for a bad file
            endpoints = parse_endpoints(text, name=str(path))
        except UserError as error:
            failed()
            log.warning("endpoints: file not used", reason=str(error))
        else:
            use(endpoints)
            log.info("endpoints: file read", file=str(path), endpoints=len(endpoints))
