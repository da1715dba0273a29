"""Envoy's listeners: HTTP connection managers and the routes in them.

Three settings here are not Envoy's defaults and each costs answers when it is missing: no route timeout (an answer
may stream for as long as it likes), retries that walk the picker's list with the body kept for sending it again,
and request ids that survive from the client to the picker's `/debug/decisions`.
"""

from collections.abc import Sequence
from typing import Any

from pointsman.render.envoy import clusters, paths
from pointsman.render.envoy.addresses import socket_address
from pointsman.render.envoy.filters import ASK, forget_forged_headers
from pointsman.render.envoy.gateway import Gateway
from pointsman.render.envoy.limits import GatewayLimits
from pointsman.render.envoy.types import duration, typed

Document = dict[str, Any]

# An endpoint that dies, refuses or resets before it has answered anything: the request goes to the next one.
_TRY_NEXT = "connect-failure,refused-stream,reset"
# Whoever reads the path reads the same one: it is decoded, resolved and merged before routes, picker or server see it.
_ONE_SPELLING = {
    "normalize_path": True,
    "merge_slashes": True,
    "path_with_escaped_slashes_action": "REJECT_REQUEST",
}
_FAILURE_LINE = (
    "%START_TIME% %REQ(X-REQUEST-ID)% %REQ(:METHOD)% %REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_CODE_DETAILS% "
    "%UPSTREAM_HOST% attempts=%UPSTREAM_REQUEST_ATTEMPT_COUNT% ms=%DURATION%\n"
)


def listener(
    gateway: Gateway, *, name: str, where: Document, routes: Document, filters: Sequence[Document], **more: Any
) -> Document:
    """Return a listener that speaks HTTP; `more` goes into its connection manager."""
    manager = typed(
        "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=name,
        codec_type="AUTO",
        preserve_external_request_id=True,
        always_set_request_id_in_response=True,
        stream_idle_timeout=duration(gateway.limits.stream_idle_timeout),
        route_config=routes,
        http_filters=list(filters),
        access_log=[_failures()],
        **more,
    )
    chain = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {
        "name": name,
        **where,
        "per_connection_buffer_limit_bytes": gateway.limits.buffer_bytes,
        "filter_chains": [{"filters": chain}],
    }


def public(gateway: Gateway, *, route: Document, filters: Sequence[Document], **more: Any) -> Document:
    """Return the listener for clients: one spelling of a path, limits, one route to what they may ask for."""
    served = paths.allowed(route, paths=gateway.paths, prefix=gateway.prefix)
    return listener(
        gateway,
        name="gateway",
        where={"address": socket_address(gateway.listen)},
        routes=routes("gateway", paths=[*served, paths.refusal()], **more),
        filters=[forget_forged_headers(), *filters],
        **_ONE_SPELLING,
        **_limited(gateway.limits),
    )


def _limited(limits: GatewayLimits) -> Document:
    return {
        "request_headers_timeout": duration(limits.headers_timeout),
        "request_timeout": duration(limits.request_timeout),
        "max_request_headers_kb": limits.header_kib,
        "common_http_protocol_options": {
            "idle_timeout": duration(limits.connection_idle_timeout),
            "max_headers_count": limits.header_count,
        },
        "http2_protocol_options": {
            "max_concurrent_streams": limits.streams,
            "initial_stream_window_size": limits.stream_window_bytes,
            "initial_connection_window_size": limits.connection_window_bytes,
        },
    }


def routes(name: str, *, paths: Sequence[Document], **more: Any) -> Document:
    """Return the routes of one listener, for every host name."""
    host = {"name": name, "domains": ["*"], "routes": list(paths), **more}
    return {"name": name, "virtual_hosts": [host]}


def to_model_servers(gateway: Gateway, *, match: Document | None = None, **more: Any) -> Document:
    """Return the route to the pool; a model server that fails before it answers is followed by the next."""
    action = {"cluster": clusters.MODEL_SERVERS, "timeout": "0s", "retry_policy": _try_next(gateway)}
    return {
        "match": {"prefix": "/", **(match or {})},
        "route": action,
        "request_body_buffer_limit": gateway.retry_buffer_bytes,
        **more,
    }


def to_picked(gateway: Gateway, **more: Any) -> Document:
    """Return the route to the endpoint that was picked, and on failure to the next of the list."""
    ask = {"typed_per_filter_config": ASK} if gateway.pickers else {}
    route = to_model_servers(gateway, **ask, **more)
    if clusters.target(gateway) == clusters.MODEL_SERVERS:
        return route
    # An address has no next one: who wants another endpoint asks the picker again.
    return route | {"route": {"cluster": clusters.target(gateway), "timeout": "0s"}}


def _try_next(gateway: Gateway) -> Document:
    return {
        "retry_on": _TRY_NEXT,
        "num_retries": gateway.retries,
        "host_selection_retry_max_attempts": 5,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": typed("extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"),
            }
        ],
    }


def _failures() -> Document:
    # Successes are counted, not logged: a line per request would cost more than the pick.
    at_least_500 = {"op": "GE", "value": {"default_value": 500, "runtime_key": "pointsman.log_from_status"}}
    return {
        "name": "envoy.access_loggers.stderr",
        "filter": {"status_code_filter": {"comparison": at_least_500}},
        "typed_config": typed(
            "extensions.access_loggers.stream.v3.StderrAccessLog",
            log_format={"text_format_source": {"inline_string": _FAILURE_LINE}},
        ),
    }
