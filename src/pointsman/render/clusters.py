"""Envoy's two clusters: the model servers, which obey the pick, and the pickers, which may be away.

Model servers come from a watched file (`endpoints`), so that they come and go while Envoy runs. `override_host`
reads the ordered list of endpoints from the metadata that the picker set, first try to last; the header of the same
name is never read, because a client could have written it. What happens when the list names nobody in the pool is
the cluster's `fallback`: `refuse` answers 503, `round_robin` serves from whoever is there.

The picker's cluster carries the three things without which a dead or hung picker hangs requests for ever in full
duplex, where Envoy has no timeout: a gRPC health check, HTTP/2 keepalive, and a panic threshold of zero.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pointsman.render.addresses import Address, socket_address
from pointsman.render.gateway import DESTINATION, EXTERNAL_PROCESSOR, NAMESPACE, SERVED, Gateway
from pointsman.render.types import duration, typed

Document = dict[str, Any]
Fallback = Literal["refuse", "round_robin"]

MODEL_SERVERS = "model-servers"
PICKERS = "pickers"

# Envoy's defaults (1,024 requests, 3 concurrent retries) are a limit that nobody asked for: the picker sheds load.
_UNLIMITED = {"max_connections": 1 << 20, "max_pending_requests": 1 << 20, "max_requests": 1 << 20}
NO_BREAKERS = {"thresholds": [_UNLIMITED | {"max_retries": 1 << 20}]}

# uvicorn, and so vLLM, closes a connection that was idle for 5 s; we must be the first to close, or a request may
# be on its way when it happens.
_KEEP_IDLE_CONNECTIONS = 4.0


def model_servers(gateway: Gateway, *, fallback: Fallback) -> Document:
    """Return the cluster that sends each request where the picker said."""
    return {
        "name": MODEL_SERVERS,
        "type": "EDS",
        "connect_timeout": duration(2),
        "eds_cluster_config": {
            "eds_config": {
                "resource_api_version": "V3",
                "path_config_source": {"path": gateway.endpoints_file},
            },
        },
        "load_balancing_policy": _policy(_override_host(_FALLBACKS[fallback])),
        "circuit_breakers": NO_BREAKERS,
        "typed_extension_protocol_options": protocol(
            {"http_protocol_options": {}}, idle_timeout=_KEEP_IDLE_CONNECTIONS
        ),
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
    cluster: Document = {
        "name": PICKERS,
        "type": "STATIC",
        "connect_timeout": duration(2),
        "lb_policy": "ROUND_ROBIN",
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": NO_BREAKERS,
        "health_checks": [_health_check(gateway)],
        "typed_extension_protocol_options": protocol({"http2_protocol_options": _keepalive(gateway)}),
        "load_assignment": {
            "cluster_name": PICKERS,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket_address(a)}} for a in gateway.pickers]}],
        },
    }
    if gateway.picker_tls:
        cluster["transport_socket"] = _any_certificate()
    return cluster


def _policy(config: Document) -> Document:
    return {"policies": [{"typed_extension_config": config}]}


def _override_host(fallback: Document) -> Document:
    def key(name: str) -> Document:
        return {"key": NAMESPACE, "path": [{"key": name}]}

    return {
        "name": "envoy.load_balancing_policies.override_host",
        "typed_config": typed(
            "extensions.load_balancing_policies.override_host.v3.OverrideHost",
            override_host_sources=[{"metadata": key(DESTINATION)}],
            selected_host_key=key(SERVED),
            fallback_policy=_policy(fallback),
        ),
    }


_ROUND_ROBIN: Document = {
    "name": "envoy.load_balancing_policies.round_robin",
    "typed_config": typed("extensions.load_balancing_policies.round_robin.v3.RoundRobin"),
}
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


def _health_check(gateway: Gateway) -> Document:
    every = duration(gateway.health_interval)
    return {
        "timeout": duration(gateway.health_timeout),
        "interval": every,
        "no_traffic_interval": every,
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "grpc_health_check": {"service_name": EXTERNAL_PROCESSOR},
    }


def _keepalive(gateway: Gateway) -> Document:
    return {
        "connection_keepalive": {
            "interval": duration(gateway.keepalive_interval),
            "timeout": duration(gateway.keepalive_timeout),
        }
    }


def protocol(explicit: Document, *, idle_timeout: float | None = None) -> Document:
    """Return the options that fix a cluster's HTTP version."""
    options: Document = {"explicit_http_config": explicit}
    if idle_timeout is not None:
        options["common_http_protocol_options"] = {"idle_timeout": duration(idle_timeout)}
    name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {name: typed("extensions.upstreams.http.v3.HttpProtocolOptions", **options)}


def _any_certificate() -> Document:
    # The picker's certificate is self-signed by default, as the endpoint picker protocol allows: no validation.
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": typed(
            "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            common_tls_context={"alpn_protocols": ["h2"]},
        ),
    }
