"""Envoy's bootstrap document for a gateway in front of a pool of model servers.

`bootstrap` is the whole configuration but the endpoints, which `clusters.endpoints` renders to the file that Envoy
watches. FailClose is one listener; FailOpen is two tiers, and `failopen` says why.
"""

from typing import Any

from pointsman.render import clusters, failopen, filters, listeners
from pointsman.render.addresses import socket_address
from pointsman.render.gateway import Gateway

Document = dict[str, Any]


def bootstrap(gateway: Gateway) -> Document:
    """Return Envoy's bootstrap document."""
    common = {
        "node": {"id": "pointsman", "cluster": "pointsman"},
        "admin": {"address": socket_address(gateway.admin)},
    }
    if gateway.failure_mode == "FailClose":
        return common | {"static_resources": _fail_close(gateway)}
    return common | {"static_resources": _fail_open(gateway), "bootstrap_extensions": [failopen.EXTENSION]}


def _fail_close(gateway: Gateway) -> Document:
    public = listeners.listener(
        gateway,
        name="gateway",
        where={"address": socket_address(gateway.listen)},
        routes=listeners.routes("gateway", paths=[listeners.to_model_servers(gateway)]),
        filters=filters.chain(gateway),
    )
    # A pick that names nobody in the pool is refused: served by another endpoint, nobody would ever notice.
    pool = clusters.model_servers(gateway, fallback="refuse")
    return {"listeners": [public], "clusters": [pool, clusters.pickers(gateway)]}


def _fail_open(gateway: Gateway) -> Document:
    pool = clusters.model_servers(gateway, fallback="round_robin")
    return {
        "listeners": [failopen.outer(gateway), failopen.inner(gateway)],
        "clusters": [pool, clusters.pickers(gateway), failopen.cluster()],
    }
