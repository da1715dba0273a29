"""How an install stands: Ready only while a request is answered by who was picked, and what is missing in words."""

from typing import Any

import pytest
from tests.unit.render.scheduler.installs import rendered, route

from pointsman.operator.findings import Observed
from pointsman.operator.standing import InstallSight, stand
from pointsman.render.manifests.facts import Facts

GATEWAY = "infra-inference-scheduling-inference-gateway"
PICKER = "gaie-inference-scheduling-epp"
PROGRAMMED = {"type": "Programmed", "status": "True"}
GATE = {
    "metadata": {"name": GATEWAY},
    "spec": {"listeners": [{"port": 80}]},
    "status": {"conditions": [PROGRAMMED]},
}


def deployment(available: int = 1) -> dict[str, Any]:
    status = {"observedGeneration": 1, "updatedReplicas": 1, "replicas": 1, "availableReplicas": available}
    return {"metadata": {"generation": 1}, "spec": {"selector": {"matchLabels": {}}}, "status": status}


def told(status: str = "True", reason: str = "", type_: str = "ResolvedRefs") -> dict[str, Any]:
    conditions = [{"type": one, "status": "True", "observedGeneration": 1} for one in ("Accepted", "ResolvedRefs")]
    said = [
        {**one, "status": status, "reason": reason, "message": "why"} if one["type"] == type_ else one
        for one in conditions
    ]
    return route([], parents=[{"conditions": said}])


SLICES = [{"ports": [{"port": 8200}], "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["fd00::1"]}]}]


def sight(**change: Any) -> InstallSight:
    parts: dict[str, Any] = {"deployments": {PICKER: deployment()}, "gateways": {GATEWAY: GATE}, "pods": []}
    parts |= {name: change.pop(name) for name in list(change) if name in parts}
    return InstallSight(parts=Observed(**parts), **{"route": told(), "slices": SLICES} | change)


def condition(seen: InstallSight, type_: str, **spec: Any) -> tuple[str, str, str]:
    (found,) = (one for one in stand(rendered(**spec), seen).conditions if one.type == type_)
    return found.status, found.reason, found.message


def test_all_is_well() -> None:
    found = stand(rendered(), sight())
    assert condition(sight(), "Ready")[:2] == ("True", "AllComponentsReady")
    assert found.endpoints == ("10.0.0.1:8200", "[fd00::1]:8200")
    assert found.gateway_url == f"http://{GATEWAY}-istio.sched.svc.cluster.local:80"


def test_an_address_of_the_gateway_is_better_than_a_name() -> None:
    gate = GATE | {"status": {"conditions": [PROGRAMMED], "addresses": [{"value": "10.1.1.1"}]}}
    assert stand(rendered(), sight(gateways={GATEWAY: gate})).gateway_url == "http://10.1.1.1:80"


MISSING = [
    pytest.param({"deployments": {}}, "EPPReady", "Missing", id="no picker"),
    pytest.param({"deployments": {PICKER: deployment(0)}}, "EPPReady", "Progressing", id="picker not ready"),
    pytest.param({"gateways": {}}, "GatewayReady", "Missing", id="no gateway"),
    pytest.param({"gateways": {GATEWAY: GATE | {"status": {}}}}, "GatewayReady", "NotProgrammed", id="not programmed"),
    pytest.param({"route": None}, "RouteReady", "Missing", id="no route"),
    pytest.param({"route": route([])}, "RouteReady", "NotAccepted", id="route not looked at"),
    pytest.param({"route": told("False", "RefNotPermitted")}, "RouteReady", "RefNotPermitted", id="not permitted"),
    pytest.param(
        {"route": told("False", "NoMatchingParent", "Accepted")}, "RouteReady", "NoMatchingParent", id="refused"
    ),
    pytest.param({"slices": []}, "EndpointsReady", "NoEndpoints", id="nobody there"),
]


@pytest.mark.parametrize(("change", "type_", "reason"), MISSING)
def test_whatever_is_missing_is_named_and_nothing_is_ready(change: dict[str, Any], type_: str, reason: str) -> None:
    assert condition(sight(**change), type_)[:2] == ("False", reason)
    status, why, message = condition(sight(**change), "Ready")
    assert (status, why) == ("False", reason)
    assert message.startswith(f"{type_} is False: ")


def test_without_a_way_nothing_is_ready_although_everything_runs() -> None:
    spec: dict[str, Any] = {"routing": {"backendType": "Service"}, "envoyFilter": None}
    status, reason, message = condition(sight(), "Ready", **spec)
    assert (status, reason) == ("False", "NobodyAsksThePicker")
    assert "set envoyFilter.enabled" in message


def test_a_pool_that_asks_another_picker_is_in_the_way() -> None:
    pool = {"spec": {"endpointPickerRef": {"name": "other", "port": {"number": 1}}}}
    assert condition(sight(), "Ready", around={"pool": pool})[:2] == ("False", "OtherPicker")


def test_an_envoy_of_our_own_needs_no_istio() -> None:
    seen = sight(deployments={PICKER: deployment(), GATEWAY: deployment()}, gateways={}, route=None)
    assert condition(seen, "Ready", facts=Facts())[0] == "True"


def test_endpoints_that_are_not_ready_do_not_count() -> None:
    slices = [{"ports": [{"port": 1}], "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]}]
    assert condition(sight(slices=slices), "EndpointsReady")[0] == "False"


def test_where_nobody_can_see_the_service_nothing_is_said_of_it() -> None:
    seen = sight(slices=[], sees_slices=False)
    assert "EndpointsReady" not in {one.type for one in stand(rendered(), seen).conditions}
