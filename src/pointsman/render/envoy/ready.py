"""The part of Envoy's admin that others may see: whether it is ready, and its statistics.

The admin can stop Envoy, print its configuration and change its log levels, so it listens where only its own Pod is.
Probes and Prometheus come from outside, and get a listener with two paths and nothing else.
"""

from typing import Any

from pointsman.render.envoy.addresses import Address, socket_address
from pointsman.render.envoy.filters import router
from pointsman.render.envoy.types import duration, typed

Document = dict[str, Any]

_ADMIN = "admin"
_PATHS = ("/ready", "/stats/prometheus")


def listener(address: Address) -> Document:
    """Return the listener for probes and scrapes."""
    routes = [{"match": {"path": path}, "route": {"cluster": _ADMIN}} for path in _PATHS]
    manager = typed(
        "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="ready",
        route_config={"virtual_hosts": [{"name": "ready", "domains": ["*"], "routes": routes}]},
        http_filters=[router()],
    )
    chain = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {
        "name": "ready",
        "address": socket_address(address),
        "ignore_global_conn_limit": True,
        "filter_chains": [{"filters": chain}],
    }


def cluster(admin: Address) -> Document:
    """Return the cluster that is Envoy's own admin."""
    endpoint = {"endpoint": {"address": socket_address(admin)}}
    return {
        "name": _ADMIN,
        "type": "STATIC",
        "connect_timeout": duration(1),
        "load_assignment": {"cluster_name": _ADMIN, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
