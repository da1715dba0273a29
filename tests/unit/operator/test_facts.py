"""What the operator believes about a cluster, and that a stumble of the API server does not change it."""

import json
from collections.abc import Mapping

import httpx2
import pytest

from pointsman.kube import Client, Kind, View
from pointsman.kube.reflector import State
from pointsman.kube.store import Store, entry
from pointsman.operator.facts import INSTALL_ASKED, ClusterFacts, ServerVersion, ask, domain_of
from pointsman.operator.kinds import DESTINATION_RULE, GATEWAY, GATEWAY_CLASS, HTTP_ROUTE, INFERENCE_POOL
from pointsman.render.manifests.facts import Facts

KINDS = (INFERENCE_POOL, GATEWAY, HTTP_ROUTE, DESTINATION_RULE, GATEWAY_CLASS)


def view(states: Mapping[Kind, State], *, classes: Mapping[str, str] | None = None) -> View:
    """Return a view in which every kind but those named is absent; classes are given with what was said of them."""
    stores = {kind: Store(kind) for kind in KINDS}
    for name, accepted in (classes or {}).items():
        conditions = [{"type": "Accepted", "status": accepted}] if accepted else []
        document = {"metadata": {"name": name, "uid": name}, "status": {"conditions": conditions}}
        stores[GATEWAY_CLASS].put(entry(GATEWAY_CLASS, json.dumps(document).encode()))
    return View(stores, states=lambda kind: states.get(kind, "absent"))


def facts(states: Mapping[Kind, State], **more: Mapping[str, str]) -> Facts:
    return ClusterFacts().facts(view(states, **more), ServerVersion())


def test_nothing_is_there() -> None:
    assert facts({}) == Facts()


def test_a_kind_that_was_never_reached_is_not_there() -> None:
    assert facts(dict.fromkeys(KINDS, "unreachable")) == Facts()


def test_a_kind_that_may_not_be_read_is_as_good_as_absent() -> None:
    assert facts(dict.fromkeys(KINDS, "forbidden")) == Facts()


def test_everything_is_there() -> None:
    seen = facts(dict.fromkeys(KINDS, "following"), classes={"istio": "True"})
    assert (seen.inference_pool, seen.gateway_api, seen.istio, seen.istio_gateway) == (True, True, True, True)


def test_half_of_the_gateway_api_is_none() -> None:
    assert not facts({GATEWAY: "following"}).gateway_api
    assert not facts({HTTP_ROUTE: "following"}).gateway_api


def test_a_class_counts_once_its_controller_has_accepted_it() -> None:
    classes = {"istio": "True", "pending": "Unknown", "refused": "False", "silent": ""}
    assert facts(dict.fromkeys(KINDS, "following"), classes=classes).gateway_classes == {"istio"}


def test_a_kind_that_cannot_be_reached_is_what_it_was() -> None:
    sight = ClusterFacts()
    there = sight.facts(view({INFERENCE_POOL: "following"}), ServerVersion())
    assert there.inference_pool and not there.istio
    stumbled = sight.facts(view({INFERENCE_POOL: "unreachable", DESTINATION_RULE: "unreachable"}), ServerVersion())
    assert stumbled == there
    assert not sight.facts(view({}), ServerVersion()).inference_pool


@pytest.mark.parametrize(("minor", "expected"), [(29, False), (30, True), (99, True)])
def test_containers_can_be_told_to_wait_since_1_30(minor: int, expected: bool) -> None:
    assert ClusterFacts().facts(view({}), ServerVersion(minor=minor)).sleep_action is expected


def serving(answers: Mapping[str, object]) -> Client:
    def answer(request: httpx2.Request) -> httpx2.Response:
        found = answers.get(request.url.path)
        return httpx2.Response(403, json={"message": "no"}) if found is None else httpx2.Response(200, json=found)

    return Client(httpx2.AsyncClient(base_url="http://api", transport=httpx2.MockTransport(answer)))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param({"/version": {"minor": "29"}, "/apis": {"groups": []}}, ServerVersion(minor=29), id="plain"),
        pytest.param({"/version": {"minor": "30+"}, "/apis": {}}, ServerVersion(minor=30), id="a vendor's number"),
        pytest.param({"/version": {"minor": ""}, "/apis": {}}, ServerVersion(), id="no number"),
        pytest.param(
            {"/version": {"minor": "31"}, "/apis": {"groups": [{"name": "security.openshift.io"}]}},
            ServerVersion(minor=31, openshift=True),
            id="OpenShift",
        ),
        pytest.param({}, ServerVersion(), id="it does not tell"),
    ],
)
async def test_what_the_server_says_of_itself(answers: dict[str, object], expected: ServerVersion) -> None:
    async with serving(answers) as client:
        assert await ask(client) == expected


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("search a.svc.corp.example svc.corp.example corp.example\nnameserver 10.0.0.10\n", "corp.example"),
        ("nameserver 10.0.0.10\nsearch a.svc.cluster.local svc.cluster.local. cluster.local\n", "cluster.local"),
        ("search home.example\n", "cluster.local"),
        ("search\n", "cluster.local"),
        ("", "cluster.local"),
    ],
)
def test_the_domain_is_what_pods_search(text: str, domain: str) -> None:
    assert domain_of(text) == domain


def test_an_install_asks_for_two_more_kinds() -> None:
    stores = {kind: Store(kind) for kind in (*INSTALL_ASKED, GATEWAY_CLASS)}
    told = {
        "metadata": {"name": "istio", "uid": "u"},
        "status": {"conditions": [{"type": "Accepted", "status": "True"}]},
    }
    told["spec"] = {"controllerName": "istio.io/gateway-controller"}
    stores[GATEWAY_CLASS].put(entry(GATEWAY_CLASS, json.dumps(told).encode()))
    found = ClusterFacts(INSTALL_ASKED).facts(View(stores), ServerVersion(domain="corp.example"))
    assert (found.envoy_filter, found.reference_grant, found.domain) == (True, True, "corp.example")
    assert found.istio_classes == found.gateway_classes == {"istio"}
