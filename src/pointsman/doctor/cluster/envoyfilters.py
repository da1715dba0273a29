"""EnvoyFilters as others wrote them: which gateway one reaches, what it patches, whom it has asked."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pointsman.core.kinds import Object, key_of
from pointsman.core.numbers import whole
from pointsman.doctor import envoy
from pointsman.doctor.cluster.objects import at, each, mapping, selects

GATEWAY_LABEL = "gateway.networking.k8s.io/gateway-name"
ROOT_NAMESPACE = "istio-system"
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_CLUSTER = re.compile(rf"outbound\|(?P<port>\d+)\|[^|]*\|(?P<name>{_LABEL})\.(?P<namespace>{_LABEL})\.svc\.[-a-z0-9.]+")


class Endpoint(NamedTuple):
    """A Service and its port, by name."""

    namespace: str
    name: str
    port: int

    def __str__(self) -> str:
        return f"Service {self.namespace}/{self.name}, port {self.port}"


def patches(filter_: Object) -> Iterator[tuple[int, Object]]:
    """Yield the patches of an EnvoyFilter with their places."""
    yield from enumerate(each(filter_, "spec", "configPatches"))


def concerns_picking(filter_: Object) -> bool:
    """Tell whether an EnvoyFilter has to do with asking a picker."""
    text = str(at(filter_, "spec", "configPatches"))
    return "ext_proc" in text or "ext-proc" in text or envoy.DESTINATION in text


def reaches(filter_: Object, gateway: Object) -> bool:
    """Tell whether an EnvoyFilter is applied to a Gateway's proxies."""
    home = key_of(gateway).namespace
    if key_of(filter_).namespace not in {home, ROOT_NAMESPACE}:
        return False
    return aims_at(filter_, gateway)


def aims_elsewhere(filter_: Object, gateway: Object) -> bool:
    """Tell whether an EnvoyFilter means this Gateway, but stands in a namespace from which it does not reach it."""
    explicit = each(filter_, "spec", "targetRefs") or mapping(filter_, "spec", "workloadSelector", "labels")
    return bool(explicit) and not reaches(filter_, gateway) and aims_at(filter_, gateway)


def aims_at(filter_: Object, gateway: Object) -> bool:
    targets = each(filter_, "spec", "targetRefs")
    if targets:
        return any(one.get("kind") == "Gateway" and one.get("name") == key_of(gateway).name for one in targets)
    labels = mapping(filter_, "spec", "workloadSelector", "labels")
    return not labels or selects(labels, labels_of_gateway(gateway))


def labels_of_gateway(gateway: Object) -> dict[str, str]:
    """Return the labels that the Pods of a Gateway have."""
    infrastructure = mapping(gateway, "spec", "infrastructure", "labels")
    own = mapping(gateway, "metadata", "labels")
    return {**own, **infrastructure, GATEWAY_LABEL: key_of(gateway).name}


def grpc_clusters(filter_: Object) -> list[str]:
    """Return the clusters of the pickers that an EnvoyFilter has asked."""
    found = []
    for _, patch in patches(filter_):
        value = mapping(patch, "patch", "value")
        configs: list[Mapping[str, Any]] = [mapping(value, "typed_config")]
        configs += [
            mapping(one, "overrides")
            for one in mapping(value, "typed_per_filter_config").values()
            if isinstance(one, dict)
        ]
        found += [name for one in configs if (name := envoy.grpc_cluster(one))]
    return found


def written_addresses(filters: Sequence[Object], cluster: str) -> list[str]:
    """Return the addresses that EnvoyFilters wrote into a cluster of this name."""
    return [
        address
        for one in filters
        for _, patch in patches(one)
        if patch.get("applyTo") == "CLUSTER" and at(patch, "patch", "value", "name") == cluster
        for address in envoy.addresses(mapping(patch, "patch", "value"))
    ]


def endpoint_of_cluster(name: str) -> Endpoint | None:
    """Return the Service behind the name that Istio gives a cluster: `outbound|9002||name.namespace.svc.…`."""
    found = _CLUSTER.fullmatch(name)
    port = whole(found["port"], most=65_535) if found else None
    return Endpoint(found["namespace"], found["name"], port) if found and port else None
