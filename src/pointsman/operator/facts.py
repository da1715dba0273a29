"""Find out what the cluster can do: from the caches for what comes and goes, from the server once for what does not."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pointsman.core.logs import get_logger
from pointsman.core.numbers import whole
from pointsman.kube import Client, Kind, Object, View
from pointsman.kube.conditions import truth_of
from pointsman.kube.errors import ApiError, Unreachable
from pointsman.operator.kinds import (
    DESTINATION_RULE,
    ENVOY_FILTER,
    GATEWAY,
    GATEWAY_CLASS,
    HTTP_ROUTE,
    INFERENCE_POOL,
    REFERENCE_GRANT,
)
from pointsman.render.manifests.facts import DOMAIN, Facts

log = get_logger(__name__)
_AWAY = 1.0
_RESOLVER = Path("/etc/resolv.conf")


ASKED = (INFERENCE_POOL, GATEWAY, HTTP_ROUTE, DESTINATION_RULE)
"""What a stack depends on; an install on two more."""
INSTALL_ASKED = (*ASKED, ENVOY_FILTER, REFERENCE_GRANT)
# Istio's own, and OpenShift's, which is Istio's too.
_ISTIO = ("istio.io/gateway-controller", "openshift.io/gateway-controller/v1")
_NEWEST = 99  # of a server that does not say its version: nothing is held back from it


@dataclass(frozen=True, kw_only=True)
class ServerVersion:
    """What an API server is, for as long as we talk to it."""

    minor: int = _NEWEST
    openshift: bool = False
    domain: str = DOMAIN
    """What names of Services end with."""


async def ask(client: Client) -> ServerVersion:
    """Return what the server says of itself, and what our own Pod knows of names, when we are one."""
    version = await _read(client, "/version")
    digits = "".join(letter for letter in str(version.get("minor", "")) if letter.isdigit())  # some write 30+
    groups = await _read(client, "/apis")
    names = {group.get("name") for group in groups.get("groups", [])}
    return ServerVersion(
        minor=whole(digits, most=_NEWEST) or _NEWEST,
        openshift="security.openshift.io" in names,
        domain=domain_of(_searched()),
    )


def _searched() -> str:
    return _RESOLVER.read_text() if _RESOLVER.exists() else ""


def domain_of(text: str) -> str:
    """Return the cluster's domain from a resolver's configuration: kubelet has every Pod search svc.<domain>."""
    words = [word for line in text.splitlines() if line.startswith("search") for word in line.split()[1:]]
    return next((word.removeprefix("svc.").rstrip(".") for word in words if word.startswith("svc.")), DOMAIN)


async def _read(client: Client, path: str) -> dict[str, Any]:
    while True:
        try:
            document: dict[str, Any] = msgspec.json.decode(await client.request("GET", path))
        except ApiError as error:  # some clusters hide it; then it is taken to be recent and plain
            log.warning("cannot ask the server about itself", path=path, why=str(error))
            return {}
        except Unreachable as error:  # nothing can be done without it, and it will come
            log.warning("waiting for the server", why=str(error))
            await asyncio.sleep(_AWAY)
        else:
            return document


def facts_of(there: Mapping[Kind, bool], *, classes: Iterable[Object], server: ServerVersion) -> Facts:
    """Return what a cluster can do, from which kinds are there, its GatewayClasses and what its server is."""
    accepted = {
        one["metadata"]["name"]: one.get("spec", {}).get("controllerName")
        for one in classes
        if truth_of(one, "Accepted") == "True"
    }
    return Facts(
        inference_pool=there[INFERENCE_POOL],
        gateway_api=there[GATEWAY] and there[HTTP_ROUTE],
        istio=there[DESTINATION_RULE],
        gateway_classes=frozenset(accepted),
        istio_classes=frozenset(name for name, controller in accepted.items() if controller in _ISTIO),
        envoy_filter=there.get(ENVOY_FILTER, False),
        reference_grant=there.get(REFERENCE_GRANT, False),
        sleep_action=server.minor >= 30,
        openshift=server.openshift,
        domain=server.domain,
    )


class ClusterFacts:
    """What can be seen of a cluster's kinds. One that cannot be reached for a moment is not gone: the last word counts.

    Otherwise every stumble of the API server would take pools and routes down, and roll pickers, and up again.
    """

    def __init__(self, kinds: Iterable[Kind] = ASKED) -> None:
        self._kinds = tuple(kinds)
        self._there: dict[Kind, bool] = {}

    def facts(self, view: View, server: ServerVersion) -> Facts:
        """Return the facts as of now."""
        there = {kind: self._is_there(kind, view) for kind in self._kinds}
        return facts_of(there, classes=view.all(GATEWAY_CLASS), server=server)

    def _is_there(self, kind: Kind, view: View) -> bool:
        state = view.state(kind)
        if state != "unreachable":
            self._there[kind] = state == "following"
        return self._there.get(kind, False)
