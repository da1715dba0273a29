"""Whether another route takes the requests of ours: then all is well with ours, and no request ever sees it.

Of two rules with the same match the older route's counts, and of two of an age the one whose name comes first. No
condition tells: both routes are accepted.
"""

from collections.abc import Iterator

from pointsman.core.kinds import Object, key_of
from pointsman.doctor.cluster.case import Case
from pointsman.doctor.cluster.objects import at, each, kind_of, words
from pointsman.doctor.cluster.path import routes_of
from pointsman.doctor.findings import Finding, failed, ok, skipped
from pointsman.doctor.repairs import Repair

_EVERYTHING: Object = {"path": {"type": "PathPrefix", "value": "/"}}


def no_route_is_before(case: Case) -> Finding:
    """Whether a request for our rule comes to our rule."""
    name = "no other route takes its requests"
    route, gateway = case.path.route, case.path.gateway
    if route is None or gateway is None:
        return skipped(name)
    mine = list(_matches(case.path.rule_document))
    for other in routes_of(case.objects, gateway):
        if other is route or not _is_before(other, route) or not _share_hosts(other, route):
            continue
        for number, rule in enumerate(each(other, "spec", "rules")):
            if any(one in mine for one in _matches(rule)) and _backends(rule, other) != _backends(
                case.path.rule_document, route
            ):
                evidence = f"rule {number} of HTTPRoute {key_of(other)} has the same host and match, and is older"
                cause = (
                    "of two such rules the older one counts: requests never come to ours, and its picker is not asked"
                )
                return failed(name, evidence, cause=cause, fix=_without(other, number))
    return ok(name, "none does")


def _without(route: Object, number: int) -> Repair:
    """Return the change that takes a rule away, and with its only one the route."""
    if len(each(route, "spec", "rules")) == 1:
        return Repair(kind=kind_of(route), key=key_of(route), how="delete")
    body = [{"op": "remove", "path": f"/spec/rules/{number}"}]
    return Repair(kind=kind_of(route), key=key_of(route), how="json", body=body)


def _matches(rule: Object) -> Iterator[Object]:
    for one in each(rule, "matches") or [_EVERYTHING]:
        path = {"type": at(one, "path", "type") or "PathPrefix", "value": at(one, "path", "value") or "/"}
        yield {**one, "path": path}


def _is_before(other: Object, route: Object) -> bool:
    return _age(other) < _age(route)


def _age(route: Object) -> tuple[str, str]:
    return str(at(route, "metadata", "creationTimestamp") or ""), str(key_of(route))


def _share_hosts(other: Object, route: Object) -> bool:
    theirs, ours = set(words(other, "spec", "hostnames")), set(words(route, "spec", "hostnames"))
    return bool(theirs & ours) or theirs == ours


def _backends(rule: Object, route: Object) -> set[tuple[str, str, str]]:
    home = key_of(route).namespace
    return {
        (str(one.get("kind") or "Service"), str(one.get("namespace") or home), str(one.get("name")))
        for one in each(rule, "backendRefs")
    }
