"""Envoy's bootstrap document against the official protobuf classes, which know the spelling of every field."""

import copy
import importlib
import json
from typing import Any

from envoy.config.bootstrap.v3 import bootstrap_pb2
from google.protobuf import json_format

# Registers the messages that the document packs into `Any`.
for _module in (
    "access_loggers.filters.cel.v3.cel",
    "access_loggers.stream.v3.stream",
    "bootstrap.internal_listener.v3.internal_listener",
    "filters.http.ext_proc.v3.ext_proc",
    "filters.http.header_mutation.v3.header_mutation",
    "filters.http.router.v3.router",
    "filters.network.http_connection_manager.v3.http_connection_manager",
    "load_balancing_policies.least_request.v3.least_request",
    "load_balancing_policies.override_host.v3.override_host",
    "load_balancing_policies.random.v3.random",
    "load_balancing_policies.round_robin.v3.round_robin",
    "load_balancing_policies.subset.v3.subset",
    "resource_monitors.downstream_connections.v3.downstream_connections",
    "retry.host.previous_hosts.v3.previous_hosts",
    "transport_sockets.internal_upstream.v3.internal_upstream",
    "transport_sockets.raw_buffer.v3.raw_buffer",
    "transport_sockets.tls.v3.tls",
    "upstreams.http.v3.http_protocol_options",
):
    importlib.import_module(f"envoy.extensions.{_module}_pb2")


def is_bootstrap(document: dict[str, Any]) -> bool:
    """Tell that the classes take the document; raises their ParseError, which names the field, when they do not."""
    known = copy.deepcopy(document)
    for cluster in known["static_resources"]["clusters"]:
        for policy in cluster.get("load_balancing_policy", {}).get("policies", []):
            # Younger than xds-protos; Envoy itself checks it in tests/envoy.
            policy["typed_extension_config"]["typed_config"].pop("selected_host_key", None)
    json_format.ParseDict(json.loads(json.dumps(known)), bootstrap_pb2.Bootstrap())
    return True
