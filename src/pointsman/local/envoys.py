"""Envoy's configuration for Pods, as it must be for processes of one machine. Pure.

What listens on all addresses of a Pod listens on loopback, each port where this machine has room for it. A cluster that
asks DNS for a Service reads the Service's Pods from a file (`Backend`), which the publisher keeps true; so does the
one Envoy that stands for all Services (`relay`), with a TCP listener for each port of each.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.local.plan import Ports
from pointsman.render.envoy.addresses import Address, socket_address
from pointsman.render.envoy.types import duration, typed

Document = dict[str, Any]

_OWN = ("0.0.0.0", "127.0.0.1")  # noqa: S104 - what is looked for, not what is bound
_OF_DNS = ("load_assignment", "dns_refresh_rate", "dns_lookup_family")


@dataclass(frozen=True, kw_only=True, order=True)
class Backend:
    """The Pods behind a port of a Service, and the port that tells their health when that is another."""

    service: str
    port: int
    health: int = 0

    @property
    def name(self) -> str:
        """Return how Envoys call it, and its file."""
        return f"{self.service}-{self.port}" + (f"-{self.health}" if self.health else "")


@dataclass(frozen=True)
class Host:
    """One Pod of a backend."""

    address: Address
    health_port: int = 0


def own_ports(document: Document) -> Iterator[int]:
    """Yield the ports on which the Envoy of such a configuration listens."""
    for where in _sockets(document):
        if where["address"] in _OWN:
            yield where["port_value"]


def backends(document: Document) -> list[Backend]:
    """Return the Services that the configuration asks DNS for."""
    return [_backend(cluster) for cluster in document["static_resources"]["clusters"] if _asks_dns(cluster)]


def localized(document: Document, *, ports: Ports, file: Callable[[Backend], Path]) -> Document:
    """Return the configuration for a process of this machine."""
    found: Document = json.loads(json.dumps(document))
    resources = found["static_resources"]
    resources["clusters"] = [
        _from_file(cluster, file=file) if _asks_dns(cluster) else cluster for cluster in resources["clusters"]
    ]
    for where in _sockets(found):
        if where["address"] in _OWN:
            here = ports[where["port_value"]]
            where.update(address=here.host, port_value=here.port)
    return found


def assignment(backend: Backend, hosts: Sequence[Host]) -> Document:
    """Return the file of a backend; its version changes with what it says."""
    endpoints = [{"endpoint": _endpoint(host)} for host in hosts]
    inside = typed(
        "config.endpoint.v3.ClusterLoadAssignment",
        cluster_name=backend.name,
        endpoints=[{"lb_endpoints": endpoints}],
    )
    return _resources([inside])


def relay(*, admin: Address, listeners_file: Path, clusters_file: Path) -> Document:
    """Return the bootstrap of the Envoy that stands for all Services."""
    return {
        "node": {"id": "services", "cluster": "services"},
        "admin": {"address": socket_address(admin)},
        "dynamic_resources": {"lds_config": _source(listeners_file), "cds_config": _source(clusters_file)},
    }


def relay_clusters(all_backends: Sequence[Backend], *, file: Callable[[Backend], Path]) -> Document:
    """Return the file with its clusters."""
    return _resources(
        [
            typed(
                "config.cluster.v3.Cluster",
                name=backend.name,
                connect_timeout=duration(2),
                lb_policy="ROUND_ROBIN",
                **_eds(backend, file=file),
            )
            for backend in all_backends
        ]
    )


def relay_listeners(places: Mapping[Backend, Address]) -> Document:
    """Return the file with its listeners: bytes in, bytes out, to any Pod that takes the connection."""
    return _resources(
        [
            typed(
                "config.listener.v3.Listener",
                name=backend.name,
                address=socket_address(place),
                filter_chains=[{"filters": [_tcp(backend)]}],
            )
            for backend, place in places.items()
        ]
    )


def _tcp(backend: Backend) -> Document:
    proxy = typed(
        "extensions.filters.network.tcp_proxy.v3.TcpProxy",
        stat_prefix=backend.name,
        cluster=backend.name,
        idle_timeout="0s",
        max_connect_attempts=3,
    )
    return {"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}


def _resources(resources: list[Document]) -> Document:
    version = hashlib.sha256(json.dumps(resources).encode()).hexdigest()[:12]
    return {"version_info": version, "resources": resources}


def _endpoint(host: Host) -> Document:
    health = {"health_check_config": {"port_value": host.health_port}} if host.health_port else {}
    return {"address": socket_address(host.address), **health}


def _asks_dns(cluster: Document) -> bool:
    return cluster.get("type") == "STRICT_DNS"


def _backend(cluster: Document) -> Backend:
    endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    where = endpoint["address"]["socket_address"]
    health = endpoint.get("health_check_config", {}).get("port_value", 0)
    return Backend(service=where["address"].partition(".")[0], port=where["port_value"], health=health)


def _from_file(cluster: Document, *, file: Callable[[Backend], Path]) -> Document:
    kept = {name: value for name, value in cluster.items() if name not in _OF_DNS}
    # Who is taken off the list is gone, healthy or not.
    return kept | _eds(_backend(cluster), file=file) | {"ignore_health_on_host_removal": True}


def _eds(backend: Backend, *, file: Callable[[Backend], Path]) -> Document:
    config = {"service_name": backend.name, "eds_config": _source(file(backend))}
    return {"type": "EDS", "eds_cluster_config": config}


def _source(path: Path) -> Document:
    return {"resource_api_version": "V3", "path_config_source": {"path": str(path)}}


def _sockets(value: Any) -> Iterator[Document]:
    if isinstance(value, dict):
        if "socket_address" in value:
            yield value["socket_address"]
        for inner in value.values():
            yield from _sockets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _sockets(inner)
