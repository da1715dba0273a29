"""Whether a gateway understands pools, from what it says of routes; and the route that asks."""

from typing import Any

import pytest
from tests.unit.render.scheduler.installs import HERE, THERE, find, names, pool_ref, rendered, route

from pointsman.render.scheduler.routes import understanding

SERVICE = {"kind": "Service", "name": "proxy"}


def said(status: str, reason: str, *, generation: int = 1, type_: str = "ResolvedRefs") -> dict[str, Any]:
    told = {"type": type_, "status": status, "reason": reason, "message": reason, "observedGeneration": generation}
    return {"parents": [{"conditions": [told]}]}


def main(backend: dict[str, Any], **status: Any) -> dict[str, Any]:
    return route([{"backendRefs": [backend]}], **status)


YES, NO = said("True", "ResolvedRefs"), said("False", "InvalidKind")
CASES = [
    pytest.param(None, None, None, id="nothing is there"),
    pytest.param(main(pool_ref()), None, None, id="nothing is said"),
    pytest.param(main(pool_ref(), **YES), None, True, id="yes"),
    pytest.param(main(pool_ref(), **NO), None, False, id="no"),
    pytest.param(main(pool_ref(), **said("False", "InvalidKind", generation=0)), None, None, id="no, of an older one"),
    pytest.param(main(pool_ref(), **said("False", "RefNotPermitted")), None, None, id="another complaint"),
    pytest.param(main(SERVICE, **YES), None, None, id="of a route to a Service"),
    pytest.param(main(SERVICE, **YES), main(pool_ref()), False, id="the probe is there and waits"),
    pytest.param(main(SERVICE, **YES), main(pool_ref(), **NO), False, id="the probe says no"),
    pytest.param(main(SERVICE, **YES), main(pool_ref(), **YES), True, id="the probe says yes"),
]


@pytest.mark.parametrize(("ours", "probe", "understood"), CASES)
def test_understanding(ours: Any, probe: Any, understood: bool | None) -> None:
    found = understanding(ours, probe)
    assert (found.holds if found else None) == understood


def test_from_no_to_yes_and_back_without_a_memory() -> None:
    """Each step sees only what the one before has left on the cluster."""
    first = rendered()
    assert first.way == "EndpointSlice"
    refused = find(first, "HTTPRoute") | {"status": NO}
    refused["metadata"]["generation"] = 1
    second = rendered(around={"route": refused})
    assert second.way == "FilterPatch"
    probe = find(second, "HTTPRoute", "llm-d-inference-scheduling-probe")
    probe["metadata"]["generation"] = 1
    ours = find(second, "HTTPRoute", "llm-d-inference-scheduling") | {"status": YES}
    ours["metadata"]["generation"] = 2
    for status, way in (({}, "FilterPatch"), ({"status": NO}, "FilterPatch"), ({"status": YES}, "EndpointSlice")):
        found = rendered(around={"route": ours, "probe": probe | status})
        assert found.way == way
        assert (f"HTTPRoute/{HERE}/llm-d-inference-scheduling-probe" in names(found)) == (way == "FilterPatch")


def test_nobody_can_ask_for_the_probes_host() -> None:
    refused = main(pool_ref(), **NO)
    probe = find(rendered(around={"route": refused}), "HTTPRoute", "llm-d-inference-scheduling-probe")
    assert probe["spec"]["hostnames"] == ["pointsman-asks.invalid"]
    assert probe["spec"]["rules"] == [{"backendRefs": [pool_ref(weight=1)]}]


def test_a_way_that_was_asked_for_needs_no_probe() -> None:
    refused = main(pool_ref(), **NO)
    found = rendered(around={"route": refused}, routing={"way": "FilterPatch"})
    assert not any(name.endswith("-probe") for name in names(found))


def test_grants_name_exactly_what_is_led_to() -> None:
    refused = main(pool_ref(), **NO)
    grant = find(rendered(around={"route": refused}), "ReferenceGrant")
    assert grant["metadata"]["namespace"] == THERE
    assert grant["spec"]["from"] == [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": HERE}]
    assert [(one["kind"], one["name"]) for one in grant["spec"]["to"]] == [
        ("Service", "gaie-inference-scheduling-proxy"),
        ("InferencePool", "gaie-inference-scheduling"),
    ]


def test_our_rules_have_no_names_and_serve_for_as_long_as_it_takes() -> None:
    for rule in find(rendered(), "HTTPRoute")["spec"]["rules"]:
        assert "name" not in rule
        assert rule["timeouts"] == {"request": "0s"}
