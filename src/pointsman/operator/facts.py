"""Find out what the cluster can do: from the caches for what comes and goes, from the server once for what does not."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pointsman.core.logs import get_logger
from pointsman.core.numbers import whole
from pointsman.kube import Client, Kind, Object, View
from pointsman.kube.conditions import truth_of
from pointsman.kube.errors import ApiError, Unreachable
from pointsman.operator.kinds import DESTINATION_RULE, GATEWAY, GATEWAY_CLASS, HTTP_ROUTE, INFERENCE_POOL
from pointsman.render.manifests.facts import Facts

log = get_logger(__name__)
_AWAY = 1.0


ASKED = (INFERENCE_POOL, GATEWAY, HTTP_ROUTE, DESTINATION_RULE)
_NEWEST = 99  # of a server that does not say its version: nothing is held back from it


@dataclass(frozen=True, kw_only=True)
class ServerVersion:
    """What an API server is, for as long as we talk to it."""

    minor: int = _NEWEST
    openshift: bool = False


async def ask(client: Client) -> ServerVersion:
    """Return what the server says of itself."""
    version = await _read(client, "/version")
    digits = "".join(letter for letter in str(version.get("minor", "")) if letter.isdigit())  # some write 30+
    groups = await _read(client, "/apis")
    names = {group.get("name") for group in groups.get("groups", [])}
    return ServerVersion(minor=whole(digits, most=_NEWEST) or _NEWEST, openshift="security.openshift.io" in names)


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
    return Facts(
        inference_pool=there[INFERENCE_POOL],
        gateway_api=there[GATEWAY] and there[HTTP_ROUTE],
        istio=there[DESTINATION_RULE],
        gateway_classes=frozenset(one["metadata"]["name"] for one in classes if truth_of(one, "Accepted") == "True"),
        sleep_action=server.minor >= 30,
        openshift=server.openshift,
    )


class ClusterFacts:
    """What can be seen of a cluster's kinds. One that cannot be reached for a moment is not gone: the last word counts.

    Otherwise every stumble of the API server would take pools and routes down, and roll pickers, and up again.
    """

    def __init__(self) -> None:
        self._there: dict[Kind, bool] = {}

    def facts(self, view: View, server: ServerVersion) -> Facts:
        """Return the facts as of now."""
        there = {kind: self._is_there(kind, view) for kind in ASKED}
        return facts_of(there, classes=view.all(GATEWAY_CLASS), server=server)

    def _is_there(self, kind: Kind, view: View) -> bool:
        state = view.state(kind)
        if state != "unreachable":
            self._there[kind] = state == "following"
        return self._there.get(kind, False)
