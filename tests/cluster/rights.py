"""Rights as triples of group, resource and verb: those that a role gives, and those that requests needed."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.cluster.proxy import Call, Road

Right = tuple[str, str, str]
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[^/]+(?:/namespaces/[^/]+)?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?P<part>/[^/]+)?)?"
)


def given(rules: Iterable[Mapping[str, Any]]) -> set[Right]:
    """Return the rights that rules give."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(call: Call, status: int) -> set[Right]:
    """Return the rights that a request needed; what everyone may ask (versions, own access) needs none."""
    found = _PATH.fullmatch(call.path)
    if found is None or found["plural"] == "selfsubjectaccessreviews":
        return set()
    where = found["group"] or "", found["plural"] + (found["part"] or "")
    reading = "watch" if call.watch else "get" if found["name"] else "list"
    verbs = {VERBS.get(call.method, reading)}
    if call.method == "PATCH" and status == 201:  # an object that was applied and not there
        verbs.add("create")
    return {(*where, verb) for verb in verbs}


def used(road: Road) -> set[Right]:
    """Return the rights that all requests on a road needed."""
    return {right for call, status in road.answers for right in needed(call, status)}


def names_used(road: Road, plural: str) -> set[str]:
    """Return the names under which objects of a kind were asked for."""
    paths = (_PATH.fullmatch(call.path) for call in road.calls)
    return {found["name"] for found in paths if found and found["plural"] == plural and found["name"]}
