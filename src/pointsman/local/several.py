"""Several models on one machine: a pool for each, with its own simulators and picker, behind one Envoy.

The plan of each pool is made by itself and this puts them together: one Envoy asks the body-based router which model a
request is for, and then the picker of that pool. The simulators are one list for Envoy, which sends to whom a picker
picked; a picker knows those of its own pool only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pointsman.core.documents import parse_yaml, to_yaml
from pointsman.local.plan import Deployment, Service, StackPlan
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.pools import by_model

ROUTER_PORTS = {"grpc": 9004, "health": 9005, "metrics": 9090}
_LABELS = {"component": "router"}
_LONGEST = 30


def short_names(models: Sequence[str]) -> list[str]:
    """Return a name for each model that Pods can have in theirs, no two alike."""
    made: list[str] = []
    for at, model in enumerate(models):
        short = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower())[:_LONGEST].strip("-")
        made.append(short if short and short not in made else f"{short}-{at}".strip("-"))
    return made


def together(pools: Mapping[str, StackPlan], *, router_tls: bool) -> StackPlan:
    """Return the plan of one stack from those of one for each model."""
    first, *_ = pools.values()
    (gateway,) = first.of("gateway")
    kept = [each for pool in pools.values() for each in pool.deployments if each.role != "gateway"]
    return replace(
        first,
        deployments=(*kept, _router(tls=router_tls), _in_front(gateway, pools, router_tls=router_tls)),
        services=(*(each for pool in pools.values() for each in pool.services), _service()),
        models=tuple(pools),
    )


def _router(*, tls: bool) -> Deployment:
    arguments = ("--streaming", f"--secure-serving={str(tls).lower()}", "--drain-timeout", "1s")
    ports = tuple(ROUTER_PORTS.values())
    return Deployment(
        name="router", naming="router", role="router", replicas=1, ports=ports, arguments=arguments, labels=_LABELS
    )


def _service() -> Service:
    port = ROUTER_PORTS["grpc"]
    return Service(name="router", selector=_LABELS, ports={port: port}, headless=True)


def _in_front(gateway: Deployment, pools: Mapping[str, StackPlan], *, router_tls: bool) -> Deployment:
    ((path, _),) = gateway.files.items()
    documents = {model: _document(pool) for model, pool in pools.items()}
    where = Address("router.local.svc", ROUTER_PORTS["grpc"])
    return replace(gateway, files={path: to_yaml(by_model(documents, router=where, router_tls=router_tls))})


def _document(pool: StackPlan) -> dict[str, object]:
    (gateway,) = pool.of("gateway")
    ((name, text),) = gateway.files.items()
    found: dict[str, object] = parse_yaml(text, name=name)
    return found
