"""What would change on a cluster if a resource were applied: the difference for each object, and nothing is written.

The server itself says what an object would become (a dry run of the operator's own apply), so defaults and spellings
are no differences. The resource is compared by its meaning: what it says together with what it leaves to defaults.
"""

import difflib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from pointsman.api import SIMULATOR_DEPLOYMENT, SimulatorDeployment, parse
from pointsman.core.documents import to_yaml
from pointsman.core.errors import UserError
from pointsman.core.kinds import key_of
from pointsman.kube import Client, Conflict, Key, Kind, Object, Owner, owner_of
from pointsman.kube.errors import NotFound
from pointsman.kube.ownership import claim, holder, stamp
from pointsman.operator.facts import ASKED, ask, facts_of
from pointsman.operator.kinds import (
    GATEWAY_CLASS,
    MADE,
    OWNERSHIP,
)
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.policy import Policy, refusal
from pointsman.render.manifests.stack import stack

# What a server writes about an object, and not what anyone wants of it.
_OF_THE_SERVER = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")


async def compare(client: Client, resource: SimulatorDeployment, *, policy: Policy) -> list[str]:
    """Return the differences, one text for each object that has any; `policy` is that of the operator there.

    Raises UserError when the policy refuses the resource, Conflict when an object of another owner has one of the
    names, ApiError and Unreachable as they come.
    """
    rendered = stack(resource, await facts(client), policy)
    if rendered.breaches:
        raise UserError(refusal(rendered.breaches))
    key = Key(resource.metadata.namespace, resource.metadata.name)
    live = await _get(client, SIMULATOR_DEPLOYMENT, key)
    before = meaning(parse(live, source="the cluster")) if live else None
    found = [difference(before, meaning(resource), name=f"{SIMULATOR_DEPLOYMENT.kind}/{key}")]
    owner = owner_of(SIMULATOR_DEPLOYMENT, live) if live else None
    wanted = {(_kind(each), key_of(each)): each for each in rendered.objects}
    for (kind, name), document in wanted.items():
        found.append(await _compare(client, kind, name, document, owner=owner))
    if owner is not None:
        async for kind, surplus in _owned(client, owner):
            if (kind, key_of(surplus)) not in wanted:
                found.append(difference(plain(surplus), None, name=f"{kind.kind}/{key_of(surplus)}"))
    return [text for text in found if text]


async def facts(client: Client) -> Facts:
    """Return what the cluster can do, asked once."""
    await client.request("GET", "/version")  # who cannot be reached is an error here, and not waited for
    server = await ask(client)
    there = {kind: await _is_there(client, kind) for kind in (*ASKED, GATEWAY_CLASS)}
    classes = await _list(client, GATEWAY_CLASS) if there[GATEWAY_CLASS] else []
    return facts_of(there, classes=classes, server=server)


def meaning(resource: SimulatorDeployment) -> Object:
    """Return all that a resource asks for."""
    return {"spec": resource.spec.model_dump(mode="json", by_alias=True, exclude_none=True)}


def plain(document: Object) -> Object:
    """Return an object without what the server writes about it."""
    metadata = {name: value for name, value in document["metadata"].items() if name not in _OF_THE_SERVER}
    return {name: value for name, value in document.items() if name != "status"} | {"metadata": metadata}


def difference(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, name: str) -> str:
    """Return a unified diff of two documents as YAML; nothing when they are the same."""
    old, new = (to_yaml(_sorted(each)).splitlines(keepends=True) if each else [] for each in (before, after))
    head = [f"diff {name}\n"]
    lines = list(difflib.unified_diff(old, new, fromfile=f"cluster/{name}", tofile=f"file/{name}"))
    return "".join([*head, *lines]) if lines else ""


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list | tuple) else value


async def _compare(client: Client, kind: Kind, key: Key, document: Object, *, owner: Owner | None) -> str:
    name = f"{kind.kind}/{key}"
    live = await _get(client, kind, key)
    if live is None:
        return difference(None, document, name=name)
    if owner is None or claim(live, owner=owner, ownership=OWNERSHIP) == "foreign":
        raise Conflict(f"{kind} {key}", holder=holder(live, ownership=OWNERSHIP))
    wanted = stamp(document, owner=owner, ownership=OWNERSHIP)
    parameters = {"fieldManager": OWNERSHIP.manager, "force": "true", "dryRun": "All"}
    become = await client.patch(kind, key, wanted, how="apply", parameters=parameters)
    return difference(plain(live), plain(become), name=name)


async def _owned(client: Client, owner: Owner) -> AsyncIterator[tuple[Kind, Object]]:
    """Yield what the cluster has of this owner."""
    selector = {"labelSelector": f"{OWNERSHIP.label}={owner.uid}"}
    for kind in MADE:
        for document in await _list(client, kind, namespace=owner.key.namespace, parameters=selector):
            yield kind, {"apiVersion": kind.api_version, "kind": kind.kind, **document}


async def _list(
    client: Client, kind: Kind, *, namespace: str = "", parameters: Mapping[str, str] | None = None
) -> Sequence[Object]:
    try:
        answer = await client.request("GET", kind.path(namespace), parameters=parameters)
    except NotFound:  # its definition is not there
        return []
    items: Sequence[Object] = msgspec.json.decode(answer)["items"]
    return items


async def _is_there(client: Client, kind: Kind) -> bool:
    try:
        await client.request("GET", kind.path(), parameters={"limit": "1"})
    except NotFound:
        return False
    return True


async def _get(client: Client, kind: Kind, key: Key) -> Object | None:
    try:
        return await client.get(kind, key)
    except NotFound:
        return None


def _kind(document: Object) -> Kind:
    return next(kind for kind in MADE if (kind.api_version, kind.kind) == (document["apiVersion"], document["kind"]))
