"""What was seen of a stack, as plain values. None is what could not be found out; `checks` knows what that means."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROUTER = "envoy.filters.http.router"
MODES = ("request_header_mode", "request_body_mode", "request_trailer_mode")


@dataclass(frozen=True, kw_only=True)
class Filter:
    """The filter that asks the picker, as Envoy has it."""

    listener: str
    after: tuple[str, ...]
    """The names of the filters after it."""
    modes: Mapping[str, str]
    cluster: str
    """Where the picker is."""
    receives: tuple[str, ...]
    """Namespaces of metadata that it takes from the picker."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """An address in one of Envoy's clusters."""

    address: str
    healthy: bool
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """What Envoy's admin says."""

    filters: tuple[Filter, ...]
    clusters: Mapping[str, tuple[Host, ...]]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """An endpoint as the picker knows it."""

    address: str
    age: float | None
    """Seconds since its metrics were read; None when they never were."""
    standing: str = "in"
    role: str = ""
    """The stage that it serves, such as prefill; empty for all."""


@dataclass(frozen=True, kw_only=True)
class Picker:
    """What the picker's own pages say."""

    health: str
    """`ok`, or what keeps it from serving."""
    endpoints: tuple[Seen, ...]


@dataclass(frozen=True, kw_only=True)
class Server:
    """A model server as whoever runs it sees it."""

    name: str
    address: str
    state: str


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One request through the gateway."""

    status: int | None
    """None when there was no answer."""
    answered: str = ""
    picked: str = ""
    """Address that the picker chose; empty when it was not asked."""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Everything that was seen."""

    running: bool
    admin: str = ""
    """Where Envoy is asked; empty for a stack without a gateway."""
    metrics: str = ""
    """Where the picker is asked; empty for a stack without one."""
    logs: str = ""
    gateway_log: str = "envoy"
    picker_log: str = "picker"
    problems: tuple[str, ...] = ()
    servers: tuple[Server, ...] = ()
    gateway: Gateway | None = None
    picker: Picker | None = None
    probes: tuple[Probe, ...] = ()
    """The same prompt, one request after the other."""


def read_filters(dump: Any) -> tuple[Filter, ...]:
    """Return the filters that ask a picker in Envoy's `config_dump`; what is not shaped as one is passed over."""
    return tuple(found for name, chain in _chains(dump) for found in _asking(name, chain))


def read_clusters(clusters: Any) -> dict[str, tuple[Host, ...]]:
    """Return who is in each cluster by Envoy's `clusters?format=json`."""
    return {
        str(one.get("name")): tuple(_host(host) for host in _list(one, "host_statuses"))
        for one in _list(clusters, "cluster_statuses")
    }


def _chains(dump: Any) -> list[tuple[str, list[Any]]]:
    states = [
        state
        for part in _list(dump, "configs")
        for state in (*_list(part, "static_listeners"), *_list(part, "dynamic_listeners"))
    ]
    return [
        (str(listener.get("name")), _list(_at(network, "typed_config"), "http_filters"))
        for listener in (_at(_at(state, "active_state") or state, "listener") for state in states)
        for chain in _list(listener, "filter_chains")
        for network in _list(chain, "filters")
    ]


def _asking(listener: str, chain: list[Any]) -> list[Filter]:
    names = [str(one.get("name")) for one in chain]
    return [
        _filter(listener, _at(one, "typed_config"), after=names[place + 1 :])
        for place, one in enumerate(chain)
        if str(_at(one, "typed_config").get("@type")).endswith("ext_proc.v3.ExternalProcessor")
    ]


def _filter(listener: str, config: dict[str, Any], *, after: list[str]) -> Filter:
    modes = _at(config, "processing_mode")
    received = _at(_at(config, "metadata_options"), "receiving_namespaces")
    return Filter(
        listener=listener,
        after=tuple(after),
        modes={name: str(modes.get(name, "DEFAULT")) for name in MODES},
        cluster=str(_at(_at(config, "grpc_service"), "envoy_grpc").get("cluster_name", "")),
        receives=tuple(map(str, received.get("untyped") or ())),
    )


def _host(host: dict[str, Any]) -> Host:
    place, status = _at(_at(host, "address"), "socket_address"), _at(host, "health_status")
    flags = [name for name, value in status.items() if value is True]
    told = str(status.get("eds_health_status", "HEALTHY"))
    bad = [*flags, *([told] if told not in {"HEALTHY", "UNKNOWN"} else [])]
    return Host(address=f"{place.get('address')}:{place.get('port_value')}", healthy=not bad, why=", ".join(bad))


def _at(document: Any, name: str) -> dict[str, Any]:
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _list(document: Any, name: str) -> list[Any]:
    found = document.get(name) if isinstance(document, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
