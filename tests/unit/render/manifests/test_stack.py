"""Whole stacks: what is rendered, to the letter, and that its parts fit together.

The letters are in `golden/`, one file per case of `stacks`. After a change that is meant, write them anew:
`POINTSMAN_REWRITE_GOLDEN=1 .venv/bin/python -m pytest tests/unit/render/manifests/test_stack.py`; read what differs.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.render.golden import check_golden
from tests.unit.render.invariants import INVARIANTS, Invariant
from tests.unit.render.stacks import (
    BARE,
    CASES,
    EVERYTHING,
    GATEWAY_API,
    ISTIO,
    ISTIO_ONLY,
    MESH,
    ON,
    STAGES,
    STANDARD,
    Case,
    find,
    named,
    of_kind,
    pod_labels,
    rendered,
    selects,
)

from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.stack import Stack

GOLDEN = Path(__file__).parent / "golden"
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@cases
def test_golden(case: Case) -> None:
    check_golden(GOLDEN / f"{case.name}.yaml", case.render())


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(case.name for case in CASES)


@cases
def test_the_same_goes_in_and_the_same_comes_out(case: Case) -> None:
    assert case.render() == case.render()


@cases
@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda one: one.__name__)
def test_parts_fit_together(case: Case, invariant: Invariant) -> None:
    invariant(case.render())


def test_the_two_gateways_do_not_get_each_others_pods() -> None:
    objects = rendered(**EVERYTHING).objects
    standard, istio = (f"infra-sim-inference-gateway{end}" for end in ("", "-istio"))
    for service, other in ((standard, istio), (istio, standard)):
        selector = find(objects, "Service", service)["spec"]["selector"]
        assert selects(selector, find(objects, "Deployment", service))
        assert not selects(selector, find(objects, "Deployment", other))


def test_gateways_share_the_label_that_people_read_logs_by() -> None:
    for deployment in of_kind(rendered(**EVERYTHING).objects, "Deployment"):
        kind = {"gaie": "epp", "infr": "gateway"}.get(deployment["metadata"]["name"][:4])
        assert pod_labels(deployment).get("component") == kind


def test_two_stacks_with_a_suffix_share_a_namespace() -> None:
    one, other = (
        set(named(rendered(MESH, gateway=ON, nameSuffix=suffix, **EVERYTHING).objects)) for suffix in ("", "-b")
    )
    assert len(one) == len(other)
    assert not one & other


def test_a_service_name_that_a_person_chose_has_no_suffix() -> None:
    assert "Service/mine" in named(rendered(service={"name": "mine"}, nameSuffix="-b").objects)


def told(stack: Stack) -> dict[str, tuple[bool, str]]:
    return {one.type: (one.holds, one.reason) for one in stack.notices}


LEGACY: Any = {"gateway": ON}


@pytest.mark.parametrize(
    ("facts", "spec", "condition", "expected"),
    [
        pytest.param(BARE, LEGACY, "LegacyGateway", (False, "GatewayAPIMissing"), id="legacy without the API"),
        pytest.param(
            GATEWAY_API, LEGACY, "LegacyGateway", (False, "GatewayClassMissing"), id="legacy without its class"
        ),
        pytest.param(ISTIO, LEGACY, "LegacyGateway", (True, "Honoured"), id="legacy"),
        pytest.param(
            MESH, LEGACY | ISTIO_ONLY, "LegacyGateway", (False, "Superseded"), id="legacy beside its successor"
        ),
        pytest.param(
            MESH,
            {"gateway": ON | {"routeName": "own"}} | ISTIO_ONLY,
            "LegacyGateway",
            (True, "Honoured"),
            id="legacy under a name of its own",
        ),
        pytest.param(BARE, {"loadBalancing": ON}, "LoadBalancing", (False, "IstioMissing"), id="balancing by nobody"),
        pytest.param(
            BARE, {"loadBalancing": ON} | STANDARD, "LoadBalancing", (True, "GatewayOnly"), id="balancing by a gateway"
        ),
        pytest.param(
            ISTIO, {"loadBalancing": ON}, "LoadBalancing", (True, "DestinationRule"), id="balancing by the mesh"
        ),
        pytest.param(BARE, ISTIO_ONLY, "IstioGateway", (False, "IstioMissing"), id="no Istio"),
        pytest.param(ISTIO, ISTIO_ONLY, "IstioGateway", (True, "MadeByIstio"), id="Istio"),
        pytest.param(BARE, {"epp": ON}, "Discovery", (True, "Selector"), id="no InferencePool"),
        pytest.param(MESH, {"epp": ON}, "Discovery", (True, "InferencePool"), id="InferencePool"),
        pytest.param(BARE, {"inferenceGateway": ON}, "GatewayReady", (False, "NoneEnabled"), id="no gateway enabled"),
        pytest.param(BARE, STAGES, "Disaggregation", (False, "NoPicker"), id="stages without a picker"),
        pytest.param(BARE, STAGES | {"epp": ON}, "Disaggregation", (False, "HeadersOnly"), id="stages with a picker"),
    ],
)
def test_what_cannot_be_done_is_said(
    facts: Facts, spec: dict[str, Any], condition: str, expected: tuple[bool, str]
) -> None:
    assert told(rendered(facts, **spec))[condition] == expected


@pytest.mark.parametrize("spec", [{}, STANDARD, {"prefill": ON}, {"decode": ON}], ids=["legacy", "gateway", "p", "d"])
def test_what_is_done_as_asked_needs_no_words(spec: dict[str, Any]) -> None:
    assert told(rendered(MESH, **spec)) == {}


@pytest.mark.parametrize("block", ["gateway", "loadBalancing", "epp", "inferenceGateway", "prefill", "decode"])
def test_a_block_that_is_not_enabled_adds_nothing(block: str) -> None:
    assert rendered(MESH, **{block: {}}) == rendered(MESH)


def test_a_gateway_within_a_block_that_is_not_enabled_adds_nothing() -> None:
    assert rendered(inferenceGateway={"standard": ON, "istio": ON}) == rendered()
