"""What a resource means on one machine: the same objects as on a cluster, as processes, ports and files."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.api.test_read import document
from tests.unit.render.serving import services

from pointsman.api import parse, read
from pointsman.core.errors import UserError
from pointsman.local import objects
from pointsman.local.plan import Deployment, StackPlan
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.stack import Stack, stack

SAMPLES = Path(__file__).parents[3] / "config" / "samples"


def rendered(sample: str) -> Stack:
    return stack(read(SAMPLES / f"sim_v1alpha1_simulatordeployment_{sample}.yaml"), Facts())


def plan_of(**spec: Any) -> StackPlan:
    return objects.plan(stack(parse(document(**spec), source="it"), Facts()))


def by_name(plan: StackPlan) -> dict[str, Deployment]:
    return {each.name: each for each in plan.deployments}


def test_full_sample() -> None:
    plan = objects.plan(rendered("full"))
    assert {each.name: (each.role, each.replicas) for each in plan.deployments} == {
        "gaie-sim-epp": ("picker", 1),
        "ms-sim-llm-d-modelservice-decode": ("simulator", 2),
        "ms-sim-llm-d-modelservice-prefill": ("simulator", 2),
        "infra-sim-inference-gateway": ("gateway", 1),
        "infra-sim-inference-gateway-istio": ("gateway", 1),
    }
    assert plan.entry == ("infra-sim-inference-gateway", 8080)
    assert plan.model == "random"


@pytest.mark.parametrize("sample", ["minimal", "istio", "full", "prefill_decode"])
def test_every_service_of_a_sample_leads_somewhere(sample: str) -> None:
    plan = objects.plan(rendered(sample))
    for service in plan.services:
        behind = [each for each in plan.deployments if service.selects(each.labels)]
        assert behind, service.name
        assert set(service.ports.values()) <= {port for each in behind for port in each.ports}


def test_picker_asks_no_cluster_and_finds_the_pods_of_both_stages() -> None:
    plan = objects.plan(rendered("full"))
    picker = by_name(plan)["gaie-sim-epp"]
    line = " ".join(picker.arguments)
    assert "--endpoint" not in line and "--pool" not in line
    assert "--config-file /config/default-plugins.yaml" in line
    assert "kind: EndpointPickerConfig" in picker.files["/config/default-plugins.yaml"]
    picked = [each.name for each in plan.of("simulator") if picker.selects.items() <= each.labels.items()]
    assert sorted(picked) == ["ms-sim-llm-d-modelservice-decode", "ms-sim-llm-d-modelservice-prefill"]


def test_of_several_pickers_one_runs_and_needs_no_lease() -> None:
    (picker,) = plan_of(epp={"enabled": True, "replicas": 3}).of("picker")
    assert picker.replicas == 1
    assert "--ha-enable-leader-election" not in picker.arguments


def test_gateway_has_a_port_for_all_that_it_listens_on() -> None:
    gateway = by_name(objects.plan(rendered("full")))["infra-sim-inference-gateway"]
    assert gateway.ports == (80, 19000, 19001)
    assert "/etc/envoy/envoy.yaml" in gateway.files


def test_without_a_gateway_requests_go_to_the_service() -> None:
    assert objects.plan(rendered("minimal")).entry == ("gaie-inference-scheduling-proxy", 8200)
    assert plan_of(service={"name": "mine", "port": 8300}).entry == ("mine", 8300)


def test_what_cannot_be_had_here_is_told() -> None:
    (notice,) = plan_of(gateway={"enabled": True}).notices
    assert "install its definitions, or use inferenceGateway.standard" in notice


def test_edit_of_one_part_leaves_the_others_as_they_are() -> None:
    base: dict[str, Any] = {"epp": {"enabled": True}, "decode": {"enabled": True}}
    before = by_name(plan_of(**base))
    after = by_name(plan_of(**base | {"decode": {"enabled": True, "args": ["--seed", "1"], "replicas": 5}}))
    changed = {name for name in before if before[name].group != after[name].group}
    assert changed == {"ms-sim-llm-d-modelservice-decode"}


def test_container_that_is_not_ours() -> None:
    foreign = {
        "kind": "Deployment",
        "metadata": {"name": "db", "namespace": "x"},
        "spec": {"template": {"spec": {"containers": [{"image": "postgres"}]}}},
    }
    found = rendered("minimal")
    with_it = Stack(names=found.names, objects=(foreign,), components=(), notices=(), gateway_url="http://a.b.svc:80")
    with pytest.raises(UserError, match="Deployment db runs postgres, which cannot run here: only on a cluster"):
        objects.plan(with_it)


def test_an_llm_inference_service_is_simulated() -> None:
    other = {"name": "other", "image": "x"}
    mine = {"name": "main", "args": ["--v=3"], "volumeMounts": [{"name": "x", "mountPath": "/x"}]}
    template = {"containers": [mine, other], "volumes": [{"name": "x", "configMap": {"name": "nobody's"}}]}
    written = services.document(
        replicas=2, prefill={}, router={"route": {}, "scheduler": {"replicas": 2, "template": template}}
    )
    plan = objects.plan(services.rendered(written, simulate=True))
    assert {each.name: (each.role, each.replicas) for each in plan.deployments} == {
        "phi3-kserve": ("simulator", 2),
        "phi3-kserve-prefill": ("simulator", 1),
        "phi3-kserve-router-scheduler": ("picker", 1),
        "phi3-kserve-gateway": ("gateway", 1),
    }
    assert plan.entry == ("phi3-kserve-gateway", 80)
    picker = by_name(plan)["phi3-kserve-router-scheduler"]
    said = [word.partition("=")[0] for word in picker.arguments]
    assert not {"--cert-path", "--enable-cert-reload", "--endpoint-selector", "--ha-enable-leader-election"} & set(said)
    assert "--v=3" in picker.arguments
    assert picker.selects["kserve.io/component"] == "workload"
    (front,) = (each for each in plan.services if each.name == "phi3-epp-service")
    assert front.ports == {9002: 9002, 9003: 9003, 9090: 9090, 5557: 5557}
    assert any("is replaced by simulators" in notice for notice in plan.notices)
