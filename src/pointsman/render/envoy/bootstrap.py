"""Envoy's bootstrap document for a gateway in front of a pool of model servers.

`bootstrap` is the whole configuration but the endpoints, which `clusters.endpoints` renders to the file that Envoy
watches. FailClose is one listener, as is a gateway without a picker; FailOpen is two tiers, and `failopen` says why.
"""

from typing import Any

from pointsman.render.envoy import clusters, failopen, filters, listeners, ready
from pointsman.render.envoy.addresses import socket_address
from pointsman.render.envoy.gateway import Gateway
from pointsman.render.envoy.types import typed

Document = dict[str, Any]


def bootstrap(gateway: Gateway) -> Document:
    """Return Envoy's bootstrap document."""
    two_tiers = gateway.failure_mode == "FailOpen" and gateway.pickers
    resources = _fail_open(gateway) if two_tiers else _fail_close(gateway)
    if gateway.ready:
        resources["listeners"].append(ready.listener(gateway.ready))
        resources["clusters"].append(ready.cluster(gateway.admin))
    document = {
        "node": {"id": "pointsman", "cluster": "pointsman"},
        # Who looks after Envoy gets in when clients have taken all the connections that they may have.
        "admin": {"address": socket_address(gateway.admin), "ignore_global_conn_limit": True},
        "static_resources": resources,
        "overload_manager": _connections(gateway.limits.connections),
    }
    return document | ({"bootstrap_extensions": [failopen.EXTENSION]} if two_tiers else {})


def _connections(most: int) -> Document:
    monitor = typed(
        "extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
        max_active_downstream_connections=most,
    )
    name = "envoy.resource_monitors.global_downstream_max_connections"
    return {"resource_monitors": [{"name": name, "typed_config": monitor}]}


def _fail_close(gateway: Gateway) -> Document:
    public = listeners.public(gateway, route=listeners.to_picked(gateway), filters=filters.chain(gateway))
    # A pick that names nobody in the pool is refused: served by another endpoint, nobody would ever notice.
    pool = clusters.model_servers(gateway, fallback="refuse")
    pickers = [clusters.pickers(gateway)] if gateway.pickers else []
    return {"listeners": [public], "clusters": [*pool, *pickers]}


def _fail_open(gateway: Gateway) -> Document:
    pool = clusters.model_servers(gateway, fallback="round_robin")
    return {
        "listeners": [failopen.outer(gateway), failopen.inner(gateway)],
        "clusters": [*pool, clusters.pickers(gateway), failopen.cluster(gateway)],
    }
