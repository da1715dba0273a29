"""Simulators and the Services in front of them."""

from typing import Any

import pytest
from tests.unit.render.stacks import (
    BARE,
    ON,
    STAGES,
    STANDARD,
    container,
    find,
    named,
    of_kind,
    pod_labels,
    rendered,
    selects,
)

from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.objects import Object
from pointsman.sim import options

FRONT = "gaie-inference-scheduling-proxy"
DECODE, PREFILL = (f"ms-sim-llm-d-modelservice-{stage}" for stage in ("decode", "prefill"))


def flags(deployment: Object) -> dict[str, str]:
    words = container(deployment)["args"]
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(
    ("spec", "target"),
    [
        pytest.param({}, "ms-sim-llm-sim-decode", id="no stages"),
        pytest.param({"decode": ON}, DECODE, id="decode"),
        pytest.param({"prefill": ON}, PREFILL, id="prefill alone"),
        pytest.param(STAGES, DECODE, id="both: decode answers"),
    ],
)
def test_the_front_leads_to_who_answers(spec: dict[str, Any], target: str) -> None:
    objects = rendered(**spec).objects
    selector = find(objects, "Service", FRONT)["spec"]["selector"]
    assert [one["metadata"]["name"] for one in of_kind(objects, "Deployment") if selects(selector, one)] == [target]


def test_the_front_has_its_own_port_and_type_in_every_mode() -> None:
    wanted = {"name": "mine", "port": 80, "type": "NodePort"}
    for spec, port in (({}, 80), ({"decode": ON | {"port": 8300}}, 8300)):
        service = find(rendered(service=wanted, **spec).objects, "Service", "mine")["spec"]
        assert service["type"] == "NodePort"
        assert [(one["port"], one["targetPort"]) for one in service["ports"]] == [(80, port)]


def test_only_our_own_gateways_need_the_pods_addresses() -> None:
    headless = "Service/ms-sim-llm-sim-decode-pods"
    assert headless not in named(rendered().objects)
    assert headless in named(rendered(**STANDARD).objects)


def test_labels_that_others_select_by() -> None:
    for spec, role in (({}, "decode"), ({"decode": ON}, "decode"), ({"prefill": ON}, "prefill")):
        labels = pod_labels(find(rendered(**spec).objects, "Deployment"))
        assert labels.items() >= {"llm-d.ai/role": role, "llm-d.ai/inferenceServing": "true"}.items()
        assert labels["app.kubernetes.io/name"] == labels["sim.llm-d.io/stack"] == "llm-sim"


@pytest.mark.parametrize(
    ("stack", "stage", "expected"),
    [
        pytest.param({}, {}, "5", id="the default"),
        pytest.param({"logVerbosity": 3}, {}, "3", id="the stack's"),
        pytest.param({"logVerbosity": 3}, {"logVerbosity": 1}, "1", id="its own"),
        pytest.param({"logVerbosity": 3}, {"logVerbosity": 0}, "0", id="silence"),
        pytest.param({"logVerbosity": 0}, {}, "0", id="silence for all"),
    ],
)
def test_verbosity_of_a_stage(stack: dict[str, int], stage: dict[str, int], expected: str) -> None:
    assert flags(find(rendered(**stack, decode=ON | stage).objects, "Deployment"))["--v"] == expected


def test_what_a_stage_does_not_say_is_the_stacks() -> None:
    amounts = {"limits": {"cpu": "1"}}
    objects = rendered(
        image="a:1", imagePullPolicy="Never", resources=amounts, decode=ON, prefill=ON | {"image": "b:2"}
    ).objects
    decode, prefill = (container(find(objects, "Deployment", name)) for name in (DECODE, PREFILL))
    assert (decode["image"], prefill["image"]) == ("a:1", "b:2")
    assert decode["resources"] == prefill["resources"] == amounts
    assert {decode["imagePullPolicy"], prefill["imagePullPolicy"]} == {"Never"}


def test_a_stages_own_arguments_come_last() -> None:
    words = container(find(rendered(decode=ON | {"args": ["--port", "1"]}).objects, "Deployment"))["args"]
    assert words == ["--model", "random", "--mode", "random", "--v", "5", "--port", "8200", "--port", "1"]


def test_its_flags_are_flags_of_our_simulator() -> None:
    words = container(find(rendered(decode=ON | {"port": 8300}).objects, "Deployment"))["args"]
    read = options.read(words, environ={}, seed=1)
    assert (read.settings.port, read.settings.mode, read.settings.model) == (8300, "random", "random")
    assert (read.verbosity, read.ignored) == (5, ())


@pytest.mark.parametrize(("sleep", "expected"), [(True, {"preStop": {"sleep": {"seconds": 5}}}), (False, None)])
def test_a_simulator_lingers_where_the_cluster_can_let_it(sleep: bool, expected: Object | None) -> None:
    objects = rendered(Facts(sleep_action=sleep)).objects
    assert container(find(objects, "Deployment")).get("lifecycle") == expected


def test_zero_replicas_is_a_deployment_with_none() -> None:
    stack = rendered(BARE, replicas=0)
    assert find(stack.objects, "Deployment")["spec"]["replicas"] == 0
    assert [(one.replicas, one.needed) for one in stack.components] == [(0, 0)]
