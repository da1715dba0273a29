"""What Envoy's admin pages say, as plain values: filters that ask a picker, routes, clusters, members, counters.

What is not shaped as expected is passed over, never an error: pages come from any Envoy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pointsman.core.numbers import real, whole

ROUTER = "envoy.filters.http.router"
METADATA = "envoy.lb"
DESTINATION = "x-gateway-destination-endpoint"
MODES = (
    "request_header_mode",
    "request_body_mode",
    "request_trailer_mode",
    "response_header_mode",
    "response_body_mode",
    "response_trailer_mode",
)
MESSAGE_TIMEOUT = 0.2
"""Seconds that Envoy waits for an answer of the picker when nothing else is said."""
_COUNTED = (
    "streams_started",
    "streams_failed",
    "spurious_msgs_received",
    "message_timeouts",
    "failure_mode_allowed",
)
_MOST_COUNT = 10**18


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
    name: str = ""
    disabled: bool = False
    """Off for routes that do not say otherwise."""
    timeout: float = MESSAGE_TIMEOUT
    fail_open: bool = False


@dataclass(frozen=True, kw_only=True)
class Override:
    """What a route says about a filter."""

    disabled: bool = False
    modes: Mapping[str, str] | None = None
    cluster: str = ""
    fail_open: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Route:
    """A route, its cluster, and what it says about filters, by the filter's name."""

    name: str
    host: str
    clusters: tuple[str, ...]
    overrides: Mapping[str, Override]


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A cluster as configured."""

    name: str
    kind: str
    http2: bool
    tls: bool
    verifies: bool
    """Whether it would refuse a certificate that is expired or that nobody it trusts has signed."""
    follows: str
    """How it follows a pick: `metadata`, `header`, or not at all."""
    addresses: tuple[str, ...]
    """Those that are written into it."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """An address in one of Envoy's clusters."""

    address: str
    healthy: bool
    why: str = ""


# Who chooses a pool by the body and picks nobody, by what its filter or its Service is called.
_ROUTERS = ("body-based-router", "payload-processor")


def read_filters(dump: Any) -> tuple[Filter, ...]:
    """Return the filters that ask a picker in Envoy's `config_dump`."""
    return tuple(found for name, chain in _chains(dump) for found in _asking(name, chain))


def read_routes(dump: Any) -> tuple[Route, ...]:
    """Return every route that Envoy has."""
    return tuple(
        _route(host, route)
        for part in _list(dump, "configs")
        for state in (*_list(part, "dynamic_route_configs"), *_list(part, "static_route_configs"))
        for host in _list(_at(state, "route_config"), "virtual_hosts")
        for route in _list(host, "routes")
    )


def read_upstreams(dump: Any) -> dict[str, Upstream]:
    """Return every cluster that Envoy has."""
    found = [
        _upstream(_at(state, "cluster"))
        for part in _list(dump, "configs")
        for state in (*_list(part, "static_clusters"), *_list(part, "dynamic_active_clusters"))
    ]
    return {one.name: one for one in found}


def read_rejected(dump: Any) -> tuple[str, ...]:
    """Return why Envoy refused parts of its configuration."""
    states = (
        state
        for part in _list(dump, "configs")
        for states in part.values()
        if isinstance(states, list)
        for state in states
        if isinstance(state, dict)
    )
    return tuple(told for state in states if (told := str(_at(state, "error_state").get("details", ""))))


def read_clusters(clusters: Any) -> dict[str, tuple[Host, ...]]:
    """Return who is in each cluster by Envoy's `clusters?format=json`."""
    return {
        str(one.get("name")): tuple(_host(host) for host in _list(one, "host_statuses"))
        for one in _list(clusters, "cluster_statuses")
    }


def read_requests(clusters: Any) -> dict[str, int]:
    """Return how many requests each cluster was sent, by its members' own counts, which no gateway hides."""
    return {
        str(one.get("name")): sum(count for _, count in _member_requests(one))
        for one in _list(clusters, "cluster_statuses")
    }


def read_member_requests(clusters: Any) -> dict[str, int]:
    """Return how many requests each member was sent, over all clusters."""
    found: dict[str, int] = {}
    for one in _list(clusters, "cluster_statuses"):
        for address, count in _member_requests(one):
            found[address] = found.get(address, 0) + count
    return found


def _member_requests(cluster: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for host in _list(cluster, "host_statuses"):
        for stat in _list(host, "stats"):
            if stat.get("name") == "rq_total":
                yield _host(host).address, whole(str(stat.get("value", "0")), most=_MOST_COUNT) or 0


def read_counters(stats: str) -> dict[str, int]:
    """Return the ext_proc counters of all listeners together, by Envoy's `stats`; empty when the gateway hides them."""
    found: dict[str, int] = {}
    for line in stats.splitlines():
        name, _, value = line.partition(": ")
        last = name.rpartition(".")[2]
        if ".ext_proc." in name and last in _COUNTED:
            found[last] = found.get(last, 0) + (whole(value.strip(), most=_MOST_COUNT) or 0)
    return found


def asked_by(route: Route, one: Filter) -> Filter | None:
    """Return the filter as it is for a route; None when it is off there."""
    said = route.overrides.get(one.name)
    if said is None:
        return None if one.disabled else one
    if said.disabled:
        return None
    return replace(
        one,
        disabled=False,
        modes=one.modes if said.modes is None else said.modes,
        cluster=said.cluster or one.cluster,
        fail_open=one.fail_open if said.fail_open is None else said.fail_open,
    )


def read_override(config: Mapping[str, Any]) -> Override:
    """Return what an ExtProcPerRoute says."""
    said = _at(config, "overrides")
    modes = _at(said, "processing_mode")
    allowed = said.get("failure_mode_allow")
    return Override(
        disabled=config.get("disabled") is True,
        modes=read_modes(modes) if "processing_mode" in said else None,
        cluster=grpc_cluster(said),
        fail_open=allowed if isinstance(allowed, bool) else None,
    )


def read_modes(modes: Mapping[str, Any]) -> dict[str, str]:
    """Return all modes; what is not said is DEFAULT."""
    return {name: str(modes.get(name, "DEFAULT")) for name in MODES}


def grpc_cluster(config: Mapping[str, Any]) -> str:
    """Return the cluster of a grpc_service."""
    return str(_at(_at(config, "grpc_service"), "envoy_grpc").get("cluster_name", ""))


def follows(cluster: Mapping[str, Any]) -> str:
    """Tell how a cluster's configuration lets it follow a pick."""
    policies = _list(_at(cluster, "load_balancing_policy"), "policies")
    configs = [_at(_at(one, "typed_extension_config"), "typed_config") for one in policies]
    sources = [source for one in configs for source in _list(one, "override_host_sources")]
    if any(DESTINATION in str(source.get("metadata")) for source in sources):
        return "metadata"
    if any(source.get("header") == DESTINATION for source in sources):
        return "header"
    original = _at(cluster, "original_dst_lb_config")
    if DESTINATION in str(original.get("metadata_key")):
        return "metadata"
    return "header" if original.get("use_http_header") is True else ""


def addresses(cluster: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the addresses that are written into a cluster's configuration."""
    places = (
        _at(_at(_at(member, "endpoint"), "address"), "socket_address")
        for group in _list(_at(cluster, "load_assignment"), "endpoints")
        for member in _list(group, "lb_endpoints")
    )
    return tuple(f"{place.get('address')}:{place.get('port_value')}" for place in places)


def seconds(text: Any) -> float | None:
    """Return a duration as Envoy writes it, such as `0.200s`."""
    return real(text.removesuffix("s")) if isinstance(text, str) else None


def _listeners(dump: Any) -> Iterator[dict[str, Any]]:
    for part in _list(dump, "configs"):
        for state in (*_list(part, "static_listeners"), *_list(part, "dynamic_listeners")):
            yield _at(_at(state, "active_state") or state, "listener")


def _chains(dump: Any) -> list[tuple[str, list[Any]]]:
    return [
        (str(listener.get("name")), _list(_at(network, "typed_config"), "http_filters"))
        for listener in _listeners(dump)
        for chain in (*_list(listener, "filter_chains"), _at(listener, "default_filter_chain"))
        for network in _list(chain, "filters")
    ]


def _asking(listener: str, chain: list[Any]) -> list[Filter]:
    names = [str(one.get("name")) for one in chain]
    found = [
        _filter(listener, one, after=names[place + 1 :])
        for place, one in enumerate(chain)
        if str(_at(one, "typed_config").get("@type")).endswith("ext_proc.v3.ExternalProcessor")
    ]
    return [one for one in found if not any(router in f"{one.name} {one.cluster}" for router in _ROUTERS)]


def _filter(listener: str, one: dict[str, Any], *, after: list[str]) -> Filter:
    config = _at(one, "typed_config")
    received = _at(_at(config, "metadata_options"), "receiving_namespaces")
    patience = seconds(config.get("message_timeout"))
    return Filter(
        listener=listener,
        name=str(one.get("name")),
        disabled=one.get("disabled") is True,
        after=tuple(after),
        modes=read_modes(_at(config, "processing_mode")),
        cluster=grpc_cluster(config),
        receives=tuple(map(str, received.get("untyped") or ())),
        timeout=MESSAGE_TIMEOUT if patience is None else patience,
        fail_open=config.get("failure_mode_allow") is True,
    )


def _route(host: dict[str, Any], route: dict[str, Any]) -> Route:
    action = _at(route, "route")
    weighted = [str(one.get("name")) for one in _list(_at(action, "weighted_clusters"), "clusters")]
    single = [str(action["cluster"])] if "cluster" in action else []
    entries = _at(host, "typed_per_filter_config") | _at(route, "typed_per_filter_config")
    said = {name: read_override(one) for name, one in entries.items() if isinstance(one, dict) and _per_route(one)}
    return Route(
        name=str(route.get("name", "")),
        host=str(host.get("name", "")),
        clusters=tuple(single or weighted),
        overrides=said,
    )


def _per_route(config: dict[str, Any]) -> bool:
    return str(config.get("@type")).endswith(("ExtProcPerRoute", "FilterConfig"))


def _upstream(cluster: dict[str, Any]) -> Upstream:
    options = _at(cluster, "typed_extension_protocol_options")
    explicit = [_at(one, "explicit_http_config") for one in options.values()]
    tls = [_at(_at(cluster, "transport_socket"), "typed_config")]
    tls += [_at(_at(one, "transport_socket"), "typed_config") for one in _list(cluster, "transport_socket_matches")]
    contexts = [_at(one, "common_tls_context") for one in tls if str(one.get("@type")).endswith("UpstreamTlsContext")]
    return Upstream(
        name=str(cluster.get("name")),
        kind=str(cluster.get("type", _at(cluster, "cluster_type").get("name", "STATIC"))),
        http2="http2_protocol_options" in cluster or any("http2_protocol_options" in one for one in explicit),
        tls=bool(contexts),
        verifies=any(_verifies(one) for one in contexts),
        follows=follows(cluster),
        addresses=addresses(cluster),
    )


def _verifies(context: dict[str, Any]) -> bool:
    combined = _at(context, "combined_validation_context")
    plain = _at(context, "validation_context") or _at(combined, "default_validation_context")
    return "trusted_ca" in plain or bool(combined) or "validation_context_sds_secret_config" in context


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
