"""Whole stacks: what is rendered, to the letter, and that its parts fit together.

The letters are in `golden/`, one file per case of `stacks`. After a change that is meant, write them anew and read the
difference: `POINTSMAN_REWRITE_GOLDEN=1 .venv/bin/python -m pytest tests/unit/render/test_stack.py && git diff`.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
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
    container,
    find,
    named,
    of_kind,
    pod_labels,
    rendered,
    selects,
)

from pointsman.render.facts import Facts
from pointsman.render.objects import Object
from pointsman.render.stack import Stack

GOLDEN = Path(__file__).parent / "golden"
REWRITE = bool(os.environ.get("POINTSMAN_REWRITE_GOLDEN"))
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


class _Literal(yaml.SafeDumper):
    """Writes text of several lines as such, so that a difference in a file within a file is one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Literal.add_representer(str, _text)


def written(stack: Stack) -> str:
    """Return a stack as its golden file: what is said about it as comments, then the objects."""
    parts = [f"{one.condition}: {one.needed} of {one.replicas} of {one.kind} {one.name}" for one in stack.components]
    notices = [f"{one.type}: {one.holds}, {one.reason}: {one.message}" for one in stack.notices]
    head = "".join(f"# {line}\n" for line in (*parts, *notices, f"URL: {stack.gateway_url or 'none'}"))
    how: dict[str, Any] = {"sort_keys": False, "width": 120, "default_flow_style": None, "explicit_start": True}
    body: str = yaml.dump_all(stack.objects, Dumper=_Literal, **how)
    return head + body


@cases
def test_golden(case: Case) -> None:
    path = GOLDEN / f"{case.name}.yaml"
    text = written(case.render())
    if REWRITE:
        path.write_text(text)
    assert text == path.read_text()


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(case.name for case in CASES)


@cases
def test_the_same_goes_in_and_the_same_comes_out(case: Case) -> None:
    assert case.render() == case.render()


@cases
def test_every_object_is_named_once_and_in_the_namespace(case: Case) -> None:
    objects = case.render().objects
    assert max(Counter(named(objects)).values()) == 1
    assert {one["metadata"]["namespace"] for one in objects} == {"llm-d-sim"}
    assert all(len(one["metadata"]["name"]) <= 63 for one in objects)


@cases
def test_every_deployment_selects_its_own_pods_and_no_others(case: Case) -> None:
    deployments = of_kind(case.render().objects, "Deployment")
    for one in deployments:
        wanted = one["spec"]["selector"]["matchLabels"]
        assert [other["metadata"]["name"] for other in deployments if selects(wanted, other)] == [
            one["metadata"]["name"]
        ]


@cases
def test_every_service_leads_to_a_port_that_its_pods_have(case: Case) -> None:
    objects = case.render().objects
    for service in of_kind(objects, "Service"):
        (target,) = (one for one in of_kind(objects, "Deployment") if selects(service["spec"]["selector"], one))
        open_ports = {port["containerPort"] for port in container(target)["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= open_ports


@cases
def test_every_probe_asks_a_port_that_the_container_has(case: Case) -> None:
    for deployment in of_kind(case.render().objects, "Deployment"):
        only = container(deployment)
        open_ports = {port["containerPort"] for port in only["ports"]}
        probes = [probe for name, probe in only.items() if name.endswith("Probe")]
        assert len(probes) >= 2
        assert {next(iter(_asked(probe)))["port"] for probe in probes} <= open_ports


def _asked(probe: Object) -> Iterator[Object]:
    return (probe[how] for how in ("httpGet", "tcpSocket", "grpc") if how in probe)


@cases
def test_whatever_a_pod_refers_to_is_there(case: Case) -> None:
    objects = case.render().objects
    there = named(objects)
    for deployment in of_kind(objects, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        mounted = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
        assert all(f"ConfigMap/{name}" in there for name in mounted)
        assert "serviceAccountName" not in pod or f"ServiceAccount/{pod['serviceAccountName']}" in there
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container(deployment)["volumeMounts"]} == volumes


@cases
def test_every_pod_is_restricted(case: Case) -> None:
    """What the strictest Pod Security level asks for; the one sysctl is among those it allows."""
    for deployment in of_kind(case.render().objects, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        sysctls = pod["securityContext"].get("sysctls", [])
        assert {one["name"] for one in sysctls} <= {"net.ipv4.ip_unprivileged_port_start"}
        locked = container(deployment)["securityContext"]
        assert locked["capabilities"] == {"drop": ["ALL"]}
        assert (locked["allowPrivilegeEscalation"], locked["readOnlyRootFilesystem"]) == (False, True)


@cases
def test_every_pod_knows_who_it_is(case: Case) -> None:
    for deployment in of_kind(case.render().objects, "Deployment"):
        names = {variable["name"] for variable in container(deployment)["env"]}
        assert names >= {"POD_NAME", "POD_NAMESPACE", "POD_IP"}


@cases
def test_every_component_is_an_object_of_the_stack(case: Case) -> None:
    stack = case.render()
    assert {f"{one.kind}/{one.name}" for one in stack.components} <= set(named(stack.objects))
    deployments = {one["metadata"]["name"]: one["spec"]["replicas"] for one in of_kind(stack.objects, "Deployment")}
    waited_for = {one.name: one.replicas for one in stack.components if one.kind == "Deployment"}
    assert waited_for == deployments  # no Deployment that nobody waits for


@cases
def test_a_route_leads_to_something_that_is_there(case: Case) -> None:
    objects = case.render().objects
    there = named(objects)
    for route in of_kind(objects, "HTTPRoute"):
        assert {f"Gateway/{parent['name']}" for parent in route["spec"]["parentRefs"]} <= set(there)
        for backend in (one for rule in route["spec"]["rules"] for one in rule["backendRefs"]):
            assert f"{backend['kind']}/{backend['name']}" in there
    for gateway in of_kind(objects, "Gateway"):
        reference = gateway["spec"]["infrastructure"].get("parametersRef")
        assert reference is None or f"ConfigMap/{reference['name']}" in there


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
        pytest.param(BARE, {"inferenceGateway": ON}, "GatewayReady", (False, "NoneEnabled"), id="no gateway enabled"),
        pytest.param(BARE, STAGES, "Disaggregation", (False, "NoPicker"), id="stages without a picker"),
        pytest.param(BARE, STAGES | {"epp": ON}, "Disaggregation", (False, "HeadersOnly"), id="stages with a picker"),
    ],
)
def test_what_cannot_be_done_is_said(
    facts: Facts, spec: dict[str, Any], condition: str, expected: tuple[bool, str]
) -> None:
    assert told(rendered(facts, **spec))[condition] == expected


@pytest.mark.parametrize(
    "spec", [{}, {"epp": ON}, STANDARD, {"prefill": ON}, {"decode": ON}], ids=["legacy", "epp", "gateway", "p", "d"]
)
def test_what_is_done_as_asked_needs_no_words(spec: dict[str, Any]) -> None:
    assert told(rendered(MESH, **spec)) == {}


@pytest.mark.parametrize("block", ["gateway", "loadBalancing", "epp", "inferenceGateway", "prefill", "decode"])
def test_a_block_that_is_not_enabled_adds_nothing(block: str) -> None:
    assert rendered(MESH, **{block: {}}) == rendered(MESH)


def test_a_gateway_within_a_block_that_is_not_enabled_adds_nothing() -> None:
    assert rendered(inferenceGateway={"standard": ON, "istio": ON}) == rendered()
