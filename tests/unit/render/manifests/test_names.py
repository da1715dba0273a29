"""The names that requirement, dashboards and scripts know, and what a suffix does to them."""

from dataclasses import fields

import pytest
from tests.unit.render.stacks import ON, resource

from pointsman.api.simulator import SERVICES
from pointsman.render.manifests.names import Names, names_of


def every(names: Names) -> set[str]:
    fixed = {names.simulators, names.picker, names.pool, names.gateway, names.istio_gateway}
    return fixed | {names.stage("prefill"), names.stage("decode"), names.service, names.route}


def test_the_names_of_the_requirement() -> None:
    names = names_of(resource("llm-sim-full"))
    assert (names.stack, names.namespace) == ("llm-sim-full", "llm-d-sim")
    assert names.simulators == "ms-sim-llm-sim-full-decode"
    assert names.stage("prefill") == "ms-sim-llm-d-modelservice-prefill"
    assert names.stage("decode") == "ms-sim-llm-d-modelservice-decode"
    assert (names.picker, names.pool) == ("gaie-sim-epp", "gaie-sim")
    assert names.gateway == names.route == "infra-sim-inference-gateway"
    assert names.istio_gateway == "infra-sim-inference-gateway-istio"
    assert names.service == "gaie-inference-scheduling-proxy"


def test_a_suffix_is_on_every_name_that_does_not_have_the_stacks() -> None:
    plain, other = names_of(resource("a")), names_of(resource("b", nameSuffix="-b"))
    assert not every(plain) & every(other)
    assert (
        other.istio_gateway == "infra-sim-inference-gateway-b-istio"
    )  # Istio's own rule: the Gateway's, then the class


@pytest.mark.parametrize("service", [None, {}, {"name": "gaie-inference-scheduling-proxy"}])
def test_a_default_that_the_schema_wrote_out_is_still_a_default(service: dict[str, str] | None) -> None:
    names = names_of(resource(service=service, gateway=ON, nameSuffix="-b"))
    assert names.service == "gaie-inference-scheduling-proxy-b"
    assert names.route == "infra-sim-inference-gateway-b"


def test_a_name_that_a_person_chose_stays() -> None:
    names = names_of(resource(service={"name": "mine"}, gateway={"routeName": "old"}, nameSuffix="-b"))
    assert (names.service, names.route) == ("mine", "old")


def test_the_longest_names_are_names() -> None:
    spec = {"service": {"name": "s" * 63}, "nameSuffix": "-" + "b" * 11}
    assert max(len(name) for name in every(names_of(resource("n" * 40, **spec)))) == 63


def test_services_of_the_stack_are_those_that_the_schema_keeps_free() -> None:
    names = names_of(resource(nameSuffix="-b"))
    taken = {names.picker, names.gateway, names.stage("prefill"), names.stage("decode")}
    assert taken < {f"{name}-b" for name in SERVICES}


def test_labels_begin_with_the_stack() -> None:
    assert names_of(resource("a")).labels(x="y") == {"app.kubernetes.io/name": "a", "x": "y"}
    assert {field.name for field in fields(Names)} == {"stack", "namespace", "suffix", "service", "route", "mark"}
