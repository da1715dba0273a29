"""Envoy's clusters: the model servers, which obey the pick, and the pickers, which may be away.

Model servers of a `FilePool` come from a watched file (`endpoints`), so that they come and go while Envoy runs.
`override_host` reads the ordered list of endpoints from the metadata that the picker set, first try to last; the header
of the same name is never read, because a client could have written it. What happens when the list names nobody in the
pool is the cluster's `fallback`: `refuse` answers 503, `round_robin` serves from whoever is there.

A `ServicePool` has two clusters. `picked` connects to the address in the metadata, whatever it is: the picker knows a
Pod seconds before DNS does. `model_servers` has the Service's addresses, for requests that nobody picks for.

The picker's cluster carries the three things without which a dead or hung picker hangs requests for ever in full
duplex, where Envoy has no timeout: a gRPC health check, HTTP/2 keepalive, and a panic threshold of zero.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pointsman.render.envoy.addresses import Address, is_ip, socket_address
from pointsman.render.envoy.gateway import (
    DESTINATION,
    EXTERNAL_PROCESSOR,
    NAMESPACE,
    SERVED,
    Algorithm,
    FilePool,
    Gateway,
    PickerPulse,
    ServicePool,
)
from pointsman.render.envoy.types import duration, typed

Document = dict[str, Any]
Fallback = Literal["refuse", "round_robin"]

MODEL_SERVERS = "model-servers"
PICKED = "picked"
PICKERS = "pickers"

# Envoy's defaults (1,024 requests, 3 concurrent retries) are a limit that nobody asked for: the picker sheds load.
_UNLIMITED = {"max_connections": 1 << 20, "max_pending_requests": 1 << 20, "max_requests": 1 << 20}
NO_BREAKERS = {"thresholds": [_UNLIMITED | {"max_retries": 1 << 20}]}

# uvicorn, and so vLLM, closes a connection that was idle for 5 s; we must be the first to close, or a request may
# be on its way when it happens.
_KEEP_IDLE_CONNECTIONS = 4.0


def model_servers(gateway: Gateway, *, fallback: Fallback) -> list[Document]:
    """Return the clusters by which requests reach model servers."""
    limit: Document = {"per_connection_buffer_limit_bytes": gateway.limits.buffer_bytes}
    if gateway.tls_pool:
        limit["transport_socket"] = _any_certificate("http/1.1")
    return [each | limit for each in _model_servers(gateway, fallback=fallback)]


def _model_servers(gateway: Gateway, *, fallback: Fallback) -> list[Document]:
    if isinstance(gateway.pool, FilePool):
        return [_from_file(gateway.pool, fallback=fallback)]
    around = _from_service(gateway.pool)
    return [_picked(), around] if gateway.pickers else [around]


def target(gateway: Gateway) -> str:
    """Return the name of the cluster that serves what was picked."""
    by_address = isinstance(gateway.pool, ServicePool) and gateway.pickers
    return PICKED if by_address else MODEL_SERVERS


def _from_file(pool: FilePool, *, fallback: Fallback) -> Document:
    source = {"resource_api_version": "V3", "path_config_source": {"path": pool.path}}
    return _model_server_cluster(
        MODEL_SERVERS,
        type="EDS",
        eds_cluster_config={"eds_config": source},
        load_balancing_policy=following_picks(fallback),
    )


def _from_service(pool: ServicePool) -> Document:
    breakers = {"thresholds": [_UNLIMITED | {"max_pending_requests": pool.pending_requests}]}
    cluster = _model_server_cluster(
        MODEL_SERVERS,
        requests_per_connection=pool.requests_per_connection,
        type="STRICT_DNS",
        dns_refresh_rate=duration(1),
        dns_lookup_family="ALL",
        load_balancing_policy=_policy(_balance(pool.algorithm)),
        load_assignment=_assignment(MODEL_SERVERS, (pool.service,)),
    )
    return cluster if pool.pending_requests is None else cluster | {"circuit_breakers": breakers}


def _picked() -> Document:
    return _model_server_cluster(
        PICKED,
        type="ORIGINAL_DST",
        lb_policy="CLUSTER_PROVIDED",
        original_dst_lb_config={"metadata_key": _metadata(DESTINATION)},
    )


def _model_server_cluster(name: str, *, requests_per_connection: int | None = None, **more: Any) -> Document:
    limited = {"max_requests_per_connection": requests_per_connection} if requests_per_connection else {}
    options = protocol({"http_protocol_options": {}}, idle_timeout=duration(_KEEP_IDLE_CONNECTIONS), **limited)
    return {
        "name": name,
        "connect_timeout": duration(2),
        "circuit_breakers": NO_BREAKERS,
        "typed_extension_protocol_options": options,
        **more,
    }


def endpoints(addresses: Sequence[Address], *, version: str) -> Document:
    """Return the file that Envoy watches for the model servers; replace it by rename, never in place."""
    lb_endpoints = [{"endpoint": {"address": socket_address(address)}} for address in addresses]
    assignment = typed(
        "config.endpoint.v3.ClusterLoadAssignment",
        cluster_name=MODEL_SERVERS,
        endpoints=[{"lb_endpoints": lb_endpoints}],
    )
    return {"version_info": version, "resources": [assignment]}


def pickers(gateway: Gateway) -> Document:
    """Return the cluster of the pickers."""
    where, health = gateway.pickers, gateway.picker_health_port
    return asked(PICKERS, where, tls=gateway.picker_tls, health_port=health, pulse=gateway.pulse)


def asked(
    name: str, addresses: Sequence[Address], *, tls: bool, pulse: PickerPulse, health_port: int | None = None
) -> Document:
    """Return a cluster of ext_proc servers, which say themselves how they are."""
    cluster: Document = {
        "name": name,
        "type": "STATIC" if all(is_ip(address.host) for address in addresses) else "STRICT_DNS",
        "connect_timeout": duration(2),
        "lb_policy": "ROUND_ROBIN",
        "circuit_breakers": NO_BREAKERS,
        **noticing(pulse, health=True),
        "load_assignment": _assignment(name, addresses, health_port=health_port),
    }
    if tls:
        cluster["transport_socket"] = _any_certificate("h2")
    return cluster


def _assignment(name: str, addresses: Sequence[Address], *, health_port: int | None = None) -> Document:
    more = {"health_check_config": {"port_value": health_port}} if health_port else {}
    endpoints = [{"endpoint": {"address": socket_address(address), **more}} for address in addresses]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}


def _policy(config: Document) -> Document:
    return {"policies": [{"typed_extension_config": config}]}


def _metadata(name: str) -> Document:
    return {"key": NAMESPACE, "path": [{"key": name}]}


def _balance(algorithm: Algorithm) -> Document:
    name = algorithm.lower()
    message = name.title().replace("_", "")
    return {
        "name": f"envoy.load_balancing_policies.{name}",
        "typed_config": typed(f"extensions.load_balancing_policies.{name}.v3.{message}"),
    }


def following_picks(fallback: Fallback) -> Document:
    """Return the policy of a cluster whose endpoints are picked, and what it does when the pick names nobody."""
    return _policy(_override_host(_FALLBACKS[fallback]))


def _override_host(fallback: Document) -> Document:
    return {
        "name": "envoy.load_balancing_policies.override_host",
        "typed_config": typed(
            "extensions.load_balancing_policies.override_host.v3.OverrideHost",
            override_host_sources=[{"metadata": _metadata(DESTINATION)}],
            selected_host_key=_metadata(SERVED),
            fallback_policy=_policy(fallback),
        ),
    }


_ROUND_ROBIN = _balance("ROUND_ROBIN")
# A subset that no endpoint is in, and no fallback: the only policy of Envoy that always finds nobody.
_REFUSE: Document = {
    "name": "envoy.load_balancing_policies.subset",
    "typed_config": typed(
        "extensions.load_balancing_policies.subset.v3.Subset",
        fallback_policy="NO_FALLBACK",
        subset_selectors=[{"keys": ["nobody"], "fallback_policy": "NO_FALLBACK"}],
        subset_lb_policy=_policy(_ROUND_ROBIN),
    ),
}
_FALLBACKS: dict[Fallback, Document] = {"refuse": _REFUSE, "round_robin": _ROUND_ROBIN}


def noticing(pulse: PickerPulse, *, health: bool) -> Document:
    """Return what makes a cluster of pickers notice that one is dead or hung; `health` is on the pickers' own port."""
    keepalive = {"interval": duration(pulse.keepalive_interval), "timeout": duration(pulse.keepalive_timeout)}
    return {
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        **({"health_checks": [_health_check(pulse)]} if health else {}),
        "typed_extension_protocol_options": protocol({"http2_protocol_options": {"connection_keepalive": keepalive}}),
    }


def _health_check(pulse: PickerPulse) -> Document:
    every = duration(pulse.health_interval)
    return {
        "timeout": duration(pulse.health_timeout),
        "interval": every,
        "no_traffic_interval": every,
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "grpc_health_check": {"service_name": EXTERNAL_PROCESSOR},
    }


def protocol(explicit: Document, **common: Any) -> Document:
    """Return the options that fix a cluster's HTTP version; `common` has those that every version knows."""
    options: Document = {"explicit_http_config": explicit}
    if common:
        options["common_http_protocol_options"] = common
    name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {name: typed("extensions.upstreams.http.v3.HttpProtocolOptions", **options)}


def _any_certificate(protocol: str) -> Document:
    # The picker's certificate is self-signed by default, as the endpoint picker protocol allows: no validation. A model
    # server's, where it has one, is for names, and it is reached by its address.
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": typed(
            "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            common_tls_context={"alpn_protocols": [protocol]},
        ),
    }
