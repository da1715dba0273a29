"""The HTTP filters of a request, in their order: forget what the client forged, ask the picker, route.

In FailClose all six modes of ext_proc are on and both bodies are full duplex: the picker sees every byte in both
directions and owns them, which is the one mode in which it may read the body before it decides. Metadata flows both
ways in `envoy.lb`: the pick comes in, the endpoint that served goes back.
"""

from typing import Any

from pointsman.render.envoy.clusters import PICKERS
from pointsman.render.envoy.gateway import DESTINATION, NAMESPACE, SERVED, SUBSET, FailureMode, Gateway
from pointsman.render.envoy.types import duration, typed

Document = dict[str, Any]

EXT_PROC = "envoy.filters.http.ext_proc"
# A route is what asks, not the listener: Envoy's own answer to what is not HTTP has no route, and would wait for the
# picker until its connection is closed.
ASK: Document = {EXT_PROC: typed("extensions.filters.http.ext_proc.v3.ExtProcPerRoute", overrides={})}

_FORGEABLE = (
    DESTINATION,  # the pick itself: obeyed by nobody here, but a model server or a later hop may believe it
    SERVED,  # what Envoy reports to the picker
    SUBSET,  # what limits the pick, and comes from the proxy only
)

# A picker that dies or refuses before it has answered anything may be asked again, or another one in its place.
_ASK_AGAIN = "connect-failure,refused-stream,reset,unavailable"


_REQUEST = {
    "request_header_mode": "SEND",
    "request_body_mode": "FULL_DUPLEX_STREAMED",
    "request_trailer_mode": "SEND",
    "response_header_mode": "SEND",
}
MODES: dict[FailureMode, Document] = {
    "FailClose": _REQUEST | {"response_body_mode": "FULL_DUPLEX_STREAMED", "response_trailer_mode": "SEND"},
    # What the picker holds dies with it. In FailOpen it holds nothing once the answer has begun.
    "FailOpen": _REQUEST | {"response_body_mode": "NONE", "response_trailer_mode": "SKIP"},
}


METADATA: Document = {
    "receiving_namespaces": {"untyped": [NAMESPACE]},
    "forwarding_namespaces": {"untyped": [NAMESPACE]},
}


def chain(gateway: Gateway) -> list[Document]:
    """Return the filters of a listener in front of the model servers, in order."""
    ask = [ext_proc(gateway)] if gateway.pickers else []
    return [*ask, router()]


def forget_forged_headers() -> Document:
    """Return the filter that removes what only Envoy and the picker may say."""
    return {
        "name": "envoy.filters.http.header_mutation",
        "typed_config": typed(
            "extensions.filters.http.header_mutation.v3.HeaderMutation",
            mutations=forged_headers(),
        ),
    }


def forged_headers() -> Document:
    """Return the removal of all that a client could have forged."""
    return {"request_mutations": [{"remove": name} for name in _FORGEABLE]}


def ext_proc(gateway: Gateway) -> Document:
    """Return the filter that asks the picker."""
    return {
        "name": EXT_PROC,
        "disabled": True,  # but for routes that say ASK
        "typed_config": typed(
            "extensions.filters.http.ext_proc.v3.ExternalProcessor",
            grpc_service={
                "envoy_grpc": {"cluster_name": PICKERS, "authority": PICKERS},
                "retry_policy": {
                    "retry_on": _ASK_AGAIN,
                    "num_retries": 2,
                    # Envoy's default of a second is for configuration servers, not for requests that wait.
                    "retry_back_off": {"base_interval": duration(0.025), "max_interval": duration(0.25)},
                },
            },
            processing_mode=MODES[gateway.failure_mode],
            message_timeout=duration(gateway.message_timeout),
            failure_mode_allow=gateway.failure_mode == "FailOpen",
            status_on_error={"code": "ServiceUnavailable"},
            mutation_rules={"allow_all_routing": True, "allow_envoy": True},
            metadata_options=METADATA,
        ),
    }


def router() -> Document:
    """Return the last filter."""
    return {
        "name": "envoy.filters.http.router",
        "typed_config": typed("extensions.filters.http.router.v3.Router"),
    }
