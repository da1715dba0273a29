"""List what a cluster has of the kinds that are looked at, in whichever version it serves them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pointsman.core.kinds import Key, Kind, Object
from pointsman.doctor.cluster.facts import Right
from pointsman.doctor.cluster.objects import INFERENCE, INFERENCE_OLD, WANTED, Objects
from pointsman.kube.client import Client
from pointsman.kube.errors import ApiError, Forbidden, NotFound

_PAGE = "500"
_MOST_PAGES = 200
_CLUSTER_WIDE = frozenset({"GatewayClass", "CustomResourceDefinition"})
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def list_all(client: Client, *, namespace: str) -> Objects:
    """Return every object of the wanted kinds; where the whole cluster may not be listed, those of the namespace.

    Raises Unreachable when the API server does not answer.
    """
    versions = await _versions(client)
    found: dict[str, tuple[Object, ...]] = {}
    unseen: dict[str, str] = {}

    async def one(kind: str, group: str, plural: str) -> None:
        for version in versions.get(group, ()):  # kinds of one group are not served in the same versions
            served = Kind(group, version, kind, plural, namespaced=kind not in _CLUSTER_WIDE)
            try:
                found[kind] = await _list(client, served, namespace=namespace)
            except NotFound:
                continue
            except ApiError as error:
                unseen[kind] = str(error)
            break

    async with asyncio.TaskGroup() as group:
        for kind, (api, plural) in WANTED.items():
            used = INFERENCE_OLD if api == INFERENCE and INFERENCE not in versions else api
            group.create_task(one(kind, used, plural))
    return Objects(found=found, unseen=unseen)


async def allowed(client: Client, right: Right, *, account: Key) -> bool | None:
    """Return whether an account may do something; None when we may not ask on its behalf."""
    answers = [await _allowed(client, right, name, account=account) for name in right.names or ("",)]
    return True if True in answers else answers[0]


async def _allowed(client: Client, right: Right, name: str, *, account: Key) -> bool | None:
    about = {"verb": right.verb, "group": right.group, "resource": right.resource, "namespace": right.namespace}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**about, **({"name": name} if name else {})}},
    }
    user = f"system:serviceaccount:{account.namespace}:{account.name}"
    try:
        answer = msgspec.json.decode(await client.request("POST", _REVIEWS, body=body, impersonate=user))
    except ApiError:
        return None
    return bool(answer.get("status", {}).get("allowed"))


async def _versions(client: Client) -> Mapping[str, Sequence[str]]:
    """Return the versions of each group, the one that the server prefers first."""
    answer: dict[str, Any] = msgspec.json.decode(await client.request("GET", "/apis"))
    found = {
        str(group.get("name")): dict.fromkeys(
            str(one.get("version")) for one in (group.get("preferredVersion") or {}, *(group.get("versions") or ()))
        )
        for group in answer.get("groups") or []
    }
    return {"": ("v1",), **{name: tuple(versions) for name, versions in found.items()}}


async def _list(client: Client, kind: Kind, *, namespace: str) -> tuple[Object, ...]:
    try:
        return await _pages(client, kind, "")
    except Forbidden:
        if not namespace or not kind.namespaced:
            raise
        return await _pages(client, kind, namespace)


async def _pages(client: Client, kind: Kind, namespace: str) -> tuple[Object, ...]:
    items: list[Object] = []
    parameters = {"limit": _PAGE}
    for _ in range(_MOST_PAGES):
        page = msgspec.json.decode(await client.request("GET", kind.path(namespace), parameters=parameters))
        named = {"apiVersion": kind.api_version, "kind": kind.kind}  # which items of a list leave out
        items += [{**item, **named} for item in page.get("items") or []]
        following = (page.get("metadata") or {}).get("continue")
        if not following:
            break
        parameters = {"limit": _PAGE, "continue": following}
    return tuple(items)
