"""FailOpen, so that it means what it says: a picker that is dead or hung costs no request.

Envoy's own `failure_mode_allow` ends where full duplex begins: once a body chunk was handed to the picker, its
death is an error for the client. So FailOpen has two tiers in one Envoy. The inner tier asks the picker; when the
stream fails it answers with a marker header. The outer tier kept the body, sees the marker and sends the request in
once more; the inner tier knows a second attempt by Envoy's attempt count and goes around the picker, to any endpoint.

Where a pick is an address and not one of a list (`ServicePool`), an endpoint that is gone is marked likewise, and the
picker is asked again, twice, before the request goes around it: it has seen the failure and picks another.

The response body does not pass through the picker here: its death would cut an answer that is under way. Invariant:
only the inner tier can set the marker, and only the outer tier the attempt count (0004-fail-open.md has the counts).
"""

from typing import Any

from pointsman.render.envoy import clusters, filters, listeners
from pointsman.render.envoy.gateway import Gateway
from pointsman.render.envoy.types import duration, typed

Document = dict[str, Any]

INNER = "asks-the-picker"
UNSERVED = "x-pointsman-unserved"
# What one tier adds to a message's headers: the other must take whatever the first one took.
_ADDED, _ADDED_KIB = 20, 8
_MODEL_SERVER_HEADERS, _MODEL_SERVER_KIB = 100, 60  # Envoy's limits for their answers
_KEEP_IDLE_CONNECTIONS = 60.0

EXTENSION: Document = {
    "name": "envoy.bootstrap.internal_listener",
    "typed_config": typed("extensions.bootstrap.internal_listener.v3.InternalListener"),
}


def outer(gateway: Gateway) -> Document:
    """Return the public listener, which tries again without the picker."""
    once_more = {
        "retry_on": "retriable-headers",
        "num_retries": _asks(gateway),
        "retriable_headers": [{"name": UNSERVED, "present_match": True}],
    }
    route = {
        "route": {"cluster": INNER, "timeout": "0s", "retry_policy": once_more},
        "request_body_buffer_limit": gateway.retry_buffer_bytes,
        "response_headers_to_remove": [UNSERVED],
    }
    return listeners.public(gateway, route=route, filters=[filters.router()], include_request_attempt_count=True)


def inner(gateway: Gateway) -> Document:
    """Return the listener inside Envoy that asks the picker on the first attempts and nobody on the last."""
    limits = gateway.limits
    around = listeners.to_model_servers(
        gateway,
        match={
            "headers": [{"name": "x-envoy-attempt-count", "range_match": {"start": _asks(gateway) + 1, "end": 1 << 31}}]
        },
        response_headers_to_remove=[UNSERVED],
    )
    ask = listeners.to_picked(gateway, response_headers_to_remove=[UNSERVED])
    return listeners.listener(
        gateway,
        name=INNER,
        where={"internal_listener": {}},
        routes=listeners.routes(INNER, paths=[around, ask]),
        filters=filters.chain(gateway),
        max_request_headers_kb=limits.header_kib + _ADDED_KIB,
        common_http_protocol_options={"max_headers_count": limits.header_count + _ADDED},
        generate_request_id=False,  # the outer tier made one
        local_reply_config={"mappers": [_mark_failures(gateway)]},
    )


def cluster(gateway: Gateway) -> Document:
    """Return the cluster by which the outer tier reaches the inner one, without a socket.

    HTTP/1.1: a connection for each request under way, so that a client which hangs up ends its own and no other.
    """
    address = {"envoy_internal_address": {"server_listener_name": INNER}}
    raw = {
        "name": "envoy.transport_sockets.raw_buffer",
        "typed_config": typed("extensions.transport_sockets.raw_buffer.v3.RawBuffer"),
    }
    return {
        "name": INNER,
        "type": "STATIC",
        "connect_timeout": duration(2),
        "circuit_breakers": clusters.NO_BREAKERS,
        "per_connection_buffer_limit_bytes": gateway.limits.buffer_bytes,
        "typed_extension_protocol_options": clusters.protocol(
            {"http_protocol_options": {}},
            idle_timeout=duration(_KEEP_IDLE_CONNECTIONS),
            max_headers_count=_MODEL_SERVER_HEADERS + _ADDED,
            max_response_headers_kb=_MODEL_SERVER_KIB + _ADDED_KIB,
        ),
        "load_assignment": {
            "cluster_name": INNER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "transport_socket": {
            "name": "envoy.transport_sockets.internal_upstream",
            "typed_config": typed(
                "extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport", transport_socket=raw
            ),
        },
    }


def _asks(gateway: Gateway) -> int:
    """Return how often the picker is asked before a request goes around it."""
    return 1 if clusters.target(gateway) == clusters.MODEL_SERVERS else 3


def _mark_failures(gateway: Gateway) -> Document:
    # Not every answer of the picker: a refusal (429, 503) is an answer, a stream that failed is not.
    failures = ["ext_proc_error"]
    if clusters.target(gateway) == clusters.PICKED:
        failures += ["upstream_reset_before_response_started", "no_healthy_upstream"]
    said = " || ".join(f"response.code_details.startsWith('{words}')" for words in failures)
    return {
        "filter": {
            "extension_filter": {
                "name": "envoy.access_loggers.extension_filters.cel",
                "typed_config": typed(
                    "extensions.access_loggers.filters.cel.v3.ExpressionFilter",
                    expression=said,
                ),
            }
        },
        "headers_to_add": [{"header": {"key": UNSERVED, "value": "true"}}],
    }
