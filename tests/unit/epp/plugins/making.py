"""Views, requests and plugins as the tables of these tests want them."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from pointsman.core.values import check
from pointsman.epp.config.registry import find_type
from pointsman.epp.plugins.api import INFLIGHT_LOAD, PREFIX_MATCHES, Context, Key, PrefixMatches, RequestCost
from pointsman.epp.pool.view import EndpointMetrics, EndpointView, Lora
from pointsman.epp.request.request import Prompt, Request

APPROX = "approx-prefix-cache-producer"
INFLIGHT = "inflight-load-producer"


def endpoint(name: str = "a", *, port: int = 8000, **values: Any) -> EndpointView:
    """One endpoint; its scrape says what its view says."""
    target = values.pop("target", f"{name}:{port}")
    lora = values.pop("lora", Lora())
    metrics = EndpointMetrics(
        waiting=int(values.get("waiting", 0)),
        running=int(values.get("running", 0)),
        kv_usage=values.get("kv_usage", 0.0),
        lora=lora,
        updated_at=values.pop("updated_at", 0.0),
    )
    address = values.pop("address", name)
    return EndpointView(name=name, target=target, address=address, port=port, metrics=metrics, **values)


def several(field: str, values: Sequence[Any]) -> list[EndpointView]:
    """Endpoints e0, e1 … that differ in one field."""
    return [endpoint(f"e{at}", **{field: value}) for at, value in enumerate(values)]


def request(*, headers: Mapping[str, str] | None = None, **values: Any) -> Request:
    return Request(id="r-1", headers=headers or {}, **values)


def matched(blocks: Mapping[str, int], *, total: int, block_tokens: int = 16, **values: Any) -> Request:
    """A request whose cached blocks per target are known."""
    cached = values.pop("cached", blocks)
    matches = PrefixMatches(total=total, block_tokens=block_tokens, blocks=blocks, cached=cached)
    return request(attributes={Key[PrefixMatches](PREFIX_MATCHES, producer=APPROX).name: matches}, **values)


def costing(tokens: int) -> Request:
    """A request whose cost in tokens is known, the same everywhere."""
    cost = RequestCost(prompt=tokens)
    return request(attributes={Key[RequestCost](INFLIGHT_LOAD, producer=INFLIGHT).name: cost}, prompt=Prompt(tokens=0))


def make(type_name: str, *, now: float = 0.0, profiles: tuple[str, ...] = ("default",), **parameters: Any) -> Any:
    """A plugin as the loader makes it, with file-style parameters."""
    kind = find_type(type_name)
    context = Context(name=type_name, clock=lambda: now, rng=random.Random(7), profiles=profiles)
    arguments: tuple[Any, ...] = ()
    if kind.parameters is not None:
        checked = check(kind.parameters, parameters, path="parameters")
        assert not checked.problems, checked.problems
        arguments = (checked.value,)
    try:
        return kind.cls(*arguments, context=context)
    except TypeError:
        return kind.cls(*arguments)


def names(endpoints: Sequence[EndpointView]) -> list[str]:
    return [each.name for each in endpoints]
