"""FailOpen, so that it means what it says: a picker that is dead or hung costs no request.

Envoy's own `failure_mode_allow` ends where full duplex begins: once a body chunk was handed to the picker, its
death is an error for the client. So FailOpen has two tiers in one Envoy. The inner tier asks the picker; when the
stream fails it answers with a marker header. The outer tier kept the body, sees the marker and sends the request in
once more; the inner tier knows a second attempt by Envoy's attempt count and goes around the picker, to any endpoint.

The response body does not pass through the picker here: its death would cut an answer that is under way. Invariant:
only the inner tier can set the marker, and only the outer tier the attempt count (0004-fail-open.md has the counts).
"""

from typing import Any

from pointsman.render import clusters, filters, listeners
from pointsman.render.addresses import socket_address
from pointsman.render.gateway import Gateway
from pointsman.render.types import duration, typed

Document = dict[str, Any]

INNER = "asks-the-picker"
UNPICKED = "x-pointsman-unpicked"

EXTENSION: Document = {
    "name": "envoy.bootstrap.internal_listener",
    "typed_config": typed("extensions.bootstrap.internal_listener.v3.InternalListener"),
}


def outer(gateway: Gateway) -> Document:
    """Return the public listener, which tries again without the picker."""
    once_more = {
        "retry_on": "retriable-headers",
        "num_retries": 1,
        "retriable_headers": [{"name": UNPICKED, "present_match": True}],
    }
    path = {
        "match": {"prefix": "/"},
        "route": {"cluster": INNER, "timeout": "0s", "retry_policy": once_more},
        "request_body_buffer_limit": gateway.retry_buffer_bytes,
        "response_headers_to_remove": [UNPICKED],
    }
    return listeners.listener(
        gateway,
        name="gateway",
        where={"address": socket_address(gateway.listen)},
        routes=listeners.routes("gateway", paths=[path], include_request_attempt_count=True),
        filters=[filters.router()],
    )


def inner(gateway: Gateway) -> Document:
    """Return the listener inside Envoy that asks the picker on the first attempt and nobody on the second."""
    around = listeners.to_model_servers(
        gateway,
        match={"headers": [{"name": "x-envoy-attempt-count", "range_match": {"start": 2, "end": 1 << 31}}]},
        typed_per_filter_config={filters.EXT_PROC: typed("config.route.v3.FilterConfig", disabled=True)},
        response_headers_to_remove=[UNPICKED],
    )
    ask = listeners.to_model_servers(gateway, response_headers_to_remove=[UNPICKED])
    return listeners.listener(
        gateway,
        name=INNER,
        where={"internal_listener": {}},
        routes=listeners.routes(INNER, paths=[around, ask]),
        filters=filters.chain(gateway),
        generate_request_id=False,  # the outer tier made one
        local_reply_config={"mappers": [_mark_picker_failures()]},
    )


def cluster() -> Document:
    """Return the cluster by which the outer tier reaches the inner one, without a socket."""
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
        "typed_extension_protocol_options": clusters.protocol({"http2_protocol_options": {}}),
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


def _mark_picker_failures() -> Document:
    # Not every answer of the picker: a refusal (429, 503) is an answer, a stream that failed is not.
    return {
        "filter": {
            "extension_filter": {
                "name": "envoy.access_loggers.extension_filters.cel",
                "typed_config": typed(
                    "extensions.access_loggers.filters.cel.v3.ExpressionFilter",
                    expression="response.code_details.startsWith('ext_proc_error')",
                ),
            }
        },
        "headers_to_add": [{"header": {"key": UNPICKED, "value": "true"}}],
    }
