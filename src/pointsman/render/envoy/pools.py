"""One gateway in front of several pools: the model that a body names decides whose picker is asked.

Made from the documents of gateways with one pool each, so that a pool behind a shared gateway is what it is behind its
own. The body-based router is asked first: it turns the model into a header, and Envoy chooses the route anew. What has
no model, or one that nobody has, goes to the first pool, whose model servers say what they think of it.

Envoy decides which filters a request meets by the route that it has at first, so every route asks both; which picker,
it reads from the route that the router's header led to.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from pointsman.render.envoy import clusters, filters
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.gateway import PickerPulse
from pointsman.render.envoy.types import duration, typed

Document = dict[str, Any]

MODEL_HEADER = "x-gateway-model-name"
BASE_MODEL_HEADER = "x-gateway-base-model-name"
ROUTER = "body-based-router"
_FILTER = f"{filters.EXT_PROC}.{ROUTER}"
_PER_ROUTE = "extensions.filters.http.ext_proc.v3.ExtProcPerRoute"
MODES: Document = {
    "request_header_mode": "SEND",
    "request_body_mode": "FULL_DUPLEX_STREAMED",
    "request_trailer_mode": "SEND",
    "response_header_mode": "SKIP",
    "response_body_mode": "NONE",
    "response_trailer_mode": "SKIP",
}


def by_model(gateways: Mapping[str, Document], *, router: Address, router_tls: bool) -> Document:
    """Return the bootstrap of one gateway from those of one for each model, all of FailClose and with pickers."""
    first, *_ = gateways.values()
    document = copy.deepcopy(first)
    resources, manager = document["static_resources"], _manager(document)
    (host,) = manager["route_config"]["virtual_hosts"]
    *served, refusal = host["routes"]
    pickers = {model: f"{clusters.PICKERS}-{at}" for at, model in enumerate(gateways)}
    ask = _ask_picker(manager["http_filters"])
    for_models = [
        _for_model(each, model=model, ask=ask, cluster=pickers[model]) for model in gateways for each in served
    ]
    default = [_asking(each, ask=ask, cluster=pickers[next(iter(gateways))]) for each in served]
    host["routes"] = [*for_models, *default, refusal]
    manager["http_filters"] = _with_router(manager["http_filters"])
    others = [each for each in resources["clusters"] if each["name"] != clusters.PICKERS]
    asked = [_renamed(_named(each, clusters.PICKERS), pickers[model]) for model, each in gateways.items()]
    pulse = PickerPulse()
    resources["clusters"] = [*others, *asked, clusters.asked(ROUTER, (router,), tls=router_tls, pulse=pulse)]
    return document


def ask_router(cluster: Document, *, timeout: float = 10.0) -> Document:
    """Return the configuration of the filter that asks the router, which is `cluster` of a gRPC service."""
    return typed(
        "extensions.filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": cluster},
        processing_mode=MODES,
        message_timeout=duration(timeout),
        failure_mode_allow=False,
        status_on_error={"code": "ServiceUnavailable"},
        mutation_rules={"allow_all_routing": True},
    )


def _manager(document: Document) -> Document:
    public = _named_in(document["static_resources"]["listeners"], "gateway")
    (chain,) = public["filter_chains"]
    (manager,) = chain["filters"]
    config: Document = manager["typed_config"]
    return config


def _ask_picker(chain: Sequence[Document]) -> Document:
    """Return whom the picker's filter asks."""
    service: Document = _named_in(chain, filters.EXT_PROC)["typed_config"]["grpc_service"]
    return service


def _with_router(chain: Sequence[Document]) -> list[Document]:
    forget, *rest = copy.deepcopy(list(chain))
    forged = forget["typed_config"]["mutations"]["request_mutations"]
    forged += [{"remove": name} for name in (MODEL_HEADER, BASE_MODEL_HEADER)]
    ask = ask_router({"cluster_name": ROUTER, "authority": ROUTER})
    return [forget, {"name": _FILTER, "disabled": True, "typed_config": ask}, *rest]


def _for_model(route: Document, *, model: str, ask: Document, cluster: str) -> Document:
    asking = _asking(route, ask=ask, cluster=cluster)
    header = {"name": MODEL_HEADER, "string_match": {"exact": model}}
    return {**asking, "match": {**asking["match"], "headers": [header]}}


def _asking(route: Document, *, ask: Document, cluster: str) -> Document:
    service = {**ask, "envoy_grpc": {**ask["envoy_grpc"], "cluster_name": cluster}}
    picker = typed(_PER_ROUTE, overrides={"grpc_service": service})
    asked = {filters.EXT_PROC: picker, _FILTER: typed(_PER_ROUTE, overrides={})}
    return {**copy.deepcopy(route), "typed_per_filter_config": asked}


def _named(document: Document, cluster: str) -> Document:
    return _named_in(document["static_resources"]["clusters"], cluster)


def _named_in(listed: Sequence[Document], name: str) -> Document:
    return next(each for each in listed if each["name"] == name)


def _renamed(cluster: Document, name: str) -> Document:
    made = copy.deepcopy(cluster)
    made["name"] = made["load_assignment"]["cluster_name"] = name
    return made
