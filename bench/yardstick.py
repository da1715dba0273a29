"""The smallest Envoy that asks a picker and obeys it: what the picker's CPU time is measured against.

No access log, no limits, no retries, one route, endpoints that never change: whatever Envoy does per request beyond
that would make the picker beside it look cheaper. The gateway that we ship does more, and `bench gateway` has that one.
"""

from collections.abc import Sequence
from typing import Any

from pointsman.render.envoy.addresses import Address, socket_address
from pointsman.render.envoy.clusters import MODEL_SERVERS, NO_BREAKERS, PICKERS, following_picks, protocol
from pointsman.render.envoy.filters import EXT_PROC, METADATA, MODES, router
from pointsman.render.envoy.listeners import routes
from pointsman.render.envoy.types import duration, typed

Document = dict[str, Any]


def smallest(listen: Address, *, picker: Address | None, servers: Sequence[Address]) -> Document:
    """Return the configuration of such an Envoy; without a picker it takes turns."""
    filters = [router()] if picker is None else [_asks(), router()]
    manager = typed(
        "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="all",
        route_config=routes("all", paths=[{"match": {"prefix": "/"}, "route": _to_servers()}]),
        http_filters=filters,
    )
    chain = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    listener = {"name": "all", "address": socket_address(listen), "filter_chains": [{"filters": chain}]}
    balance = {} if picker is None else {"load_balancing_policy": following_picks("refuse")}
    clusters = [_cluster(MODEL_SERVERS, servers, **balance)]
    if picker is not None:
        clusters.append(_cluster(PICKERS, [picker], typed_extension_protocol_options=_HTTP2))
    return {"static_resources": {"listeners": [listener], "clusters": clusters}}


_HTTP2 = protocol({"http2_protocol_options": {}})


def _to_servers() -> Document:
    return {"cluster": MODEL_SERVERS, "timeout": duration(0)}


def _asks() -> Document:
    return {
        "name": EXT_PROC,
        "typed_config": typed(
            "extensions.filters.http.ext_proc.v3.ExternalProcessor",
            grpc_service={"envoy_grpc": {"cluster_name": PICKERS}},
            processing_mode=MODES["FailClose"],
            message_timeout=duration(10),
            mutation_rules={"allow_all_routing": True},
            metadata_options=METADATA,
        ),
    }


def _cluster(name: str, addresses: Sequence[Address], **more: Any) -> Document:
    endpoints = [{"endpoint": {"address": socket_address(address)}} for address in addresses]
    return {
        "name": name,
        "connect_timeout": duration(2),
        "circuit_breakers": NO_BREAKERS,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        **more,
    }
