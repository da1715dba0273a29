"""Whole services: what is rendered, to the letter, and that its parts fit together."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.render.golden import check_golden
from tests.unit.render.serving.services import (
    ALL,
    BARE,
    CASES,
    CUSTOM,
    MESH,
    MODEL,
    REQUIREMENT,
    Case,
    document,
    rendered,
)

from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.policy import Policy
from pointsman.render.serving.service import LLMStack
from pointsman.render.serving.settings import ServingSettings

GOLDEN = Path(__file__).parent / "golden"
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def find(stack: LLMStack, kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in stack.objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def names(stack: LLMStack) -> set[str]:
    return {f"{one['kind']}/{one['metadata']['name']}" for one in stack.objects}


def main(deployment: dict[str, Any]) -> dict[str, Any]:
    (found,) = (one for one in deployment["spec"]["template"]["spec"]["containers"] if one["name"] == "main")
    return dict(found)


@cases
def test_golden(case: Case) -> None:
    check_golden(GOLDEN / f"{case.name}.yaml", case.render())


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(case.name for case in CASES)


@cases
def test_what_selects_finds_pods_and_nothing_of_another_part(case: Case) -> None:
    stack = case.render()
    deployments = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in stack.objects
        if one["kind"] == "Deployment"
    }
    for one in stack.objects:
        if one["kind"] == "Deployment":
            chosen = one["spec"]["selector"]["matchLabels"].items()
            assert [name for name, labels in deployments.items() if chosen <= labels.items()] == [
                one["metadata"]["name"]
            ]
        if one["kind"] == "Service":
            chosen = one["spec"]["selector"].items()
            assert len([name for name, labels in deployments.items() if chosen <= labels.items()]) == 1


@cases
def test_only_the_picker_s_own_container_has_its_token(case: Case) -> None:
    for one in case.render().objects:
        if one["kind"] == "Deployment" and "router-scheduler" in one["metadata"]["name"]:
            pod = one["spec"]["template"]["spec"]
            assert pod["automountServiceAccountToken"] is False


def test_the_names_of_the_requirement() -> None:
    stack = rendered(REQUIREMENT, MESH)
    service = find(stack, "Service", "phi3-gpu-alpn-test-epp-service")
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert ports == {"grpc": 9002, "grpc-health": 9003, "metrics": 9090, "zmq": 5557}
    deployment = find(stack, "Deployment", "phi3-gpu-alpn-test-kserve-router-scheduler")
    template = deployment["spec"]["template"]
    for metadata in (deployment["metadata"], template["metadata"]):
        assert metadata["labels"]["app.kubernetes.io/component"] == "router-scheduler"
    assert service["metadata"]["labels"]["app.kubernetes.io/component"] == "llminferenceservice-router-scheduler"
    args = main(deployment)["args"]
    assert args[args.index("--grpc-port") + 1] == "9002"
    assert "--secure-serving=true" in args and "--cert-path=/var/run/kserve/tls" in args
    assert find(stack, "Deployment", "phi3-gpu-alpn-test-kserve")["spec"]["replicas"] == 3


def test_the_label_of_the_picker_is_anyone_s_to_choose() -> None:
    kserve = "llminferenceservice-router-scheduler"
    labels = {"app.kubernetes.io/component": kserve, "team": "a", "kserve.io/component": "no"}
    stack = rendered(document(router={"scheduler": {"labels": labels}}))
    deployment = find(stack, "Deployment", "phi3-kserve-router-scheduler")
    on_pods = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["metadata"]["labels"]["app.kubernetes.io/component"] == kserve
    assert on_pods["app.kubernetes.io/component"] == kserve and on_pods["team"] == "a"
    assert on_pods["kserve.io/component"] == "router-scheduler"


def test_both_spellings_of_an_image_and_the_longer_wins() -> None:
    trusted = Policy(trusted_images=("gcr.io/ecoeng-llmd/",))
    short = rendered(document(router={"scheduler": {"image": CUSTOM}}), policy=trusted)
    assert main(find(short, "Deployment", "phi3-kserve-router-scheduler"))["image"] == CUSTOM
    (told,) = (one for one in short.notices if one.type == "SpecHonoured")
    assert (told.holds, told.reason) == (True, "Shorthand")
    assert "spec.router.scheduler.template.containers[name=main].image" in told.message
    template = {"containers": [{"name": "main", "image": "gcr.io/ecoeng-llmd/b:1"}]}
    both = rendered(document(router={"scheduler": {"image": CUSTOM, "template": template}}), policy=trusted)
    assert main(find(both, "Deployment", "phi3-kserve-router-scheduler"))["image"] == "gcr.io/ecoeng-llmd/b:1"


def test_an_image_that_nobody_trusts_is_refused() -> None:
    (breach,) = rendered(document(router={"scheduler": {"image": CUSTOM}})).breaches
    assert breach.field == "spec.router.scheduler.template.containers[main].image"
    assert breach.value == CUSTOM


def test_without_a_picker_the_route_leads_to_the_servers() -> None:
    without_picker: dict[str, Any] = {"route": {}, "gateway": {}}
    with_picker, without = (
        find(rendered(document(router=router), MESH), "HTTPRoute", "phi3-kserve-route")
        for router in (ALL, without_picker)
    )
    backends = {rule["backendRefs"][0]["kind"] for rule in with_picker["spec"]["rules"]}
    assert backends == {"InferencePool"}
    for rule in without["spec"]["rules"]:
        assert rule["backendRefs"] == [
            {"group": "", "kind": "Service", "name": "phi3-kserve-workload-svc", "port": 8000, "weight": 1}
        ]
    gone = names(rendered(document(router=ALL), MESH)) - names(rendered(document(router={"route": {}}), MESH))
    assert gone == {
        "ServiceAccount/phi3-epp-sa",
        "Role/phi3-epp-role",
        "RoleBinding/phi3-epp-rb",
        "NetworkPolicy/phi3-kserve-router-scheduler",
        "Deployment/phi3-kserve-router-scheduler",
        "Service/phi3-epp-service",
        "InferencePool/phi3-inference-pool",
        "DestinationRule/phi3-kserve-scheduler",
    }


def test_a_pool_of_somebody_needs_no_picker_of_ours() -> None:
    stack = rendered(document(router=ALL | {"scheduler": {"pool": {"ref": {"name": "theirs"}}}}), MESH)
    assert not any("router-scheduler" in name for name in names(stack))
    route = find(stack, "HTTPRoute", "phi3-kserve-route")
    assert {rule["backendRefs"][0]["name"] for rule in route["spec"]["rules"]} == {"theirs"}


def test_gateways_that_are_named_are_the_route_s() -> None:
    refs = {"refs": [{"name": "edge", "namespace": "infra", "sectionName": "https"}, {"name": "here"}]}
    stack = rendered(document(router=ALL | {"gateway": refs}), MESH)
    parents = find(stack, "HTTPRoute", "phi3-kserve-route")["spec"]["parentRefs"]
    assert [(one["namespace"], one["name"]) for one in parents] == [("infra", "edge"), ("models", "here")]
    assert [one.get("sectionName") for one in parents] == ["https", None]
    assert stack.gateways == (("infra", "edge"), ("models", "here"))
    assert stack.notices[0].reason == "Honoured"


def test_stopped_means_nothing_is_there() -> None:
    assert rendered(document(annotations={"serving.kserve.io/stop": "true"}, router=ALL)).objects == ()


def test_fields_of_kserve_are_kept_and_named() -> None:
    stack = rendered(
        document(
            model={**MODEL, "lora": {"adapters": []}, "criticality": "Critical"},
            worker={},
            router={"scheduler": {"tokenizer": {}}, "ingress": {}},
        )
    )
    (told,) = (one for one in stack.notices if one.type == "SpecHonoured")
    assert (told.holds, told.reason) == (False, "FieldsNotActedOn")
    for field in ("model.lora", "model.criticality", "worker", "router.ingress", "router.scheduler.tokenizer"):
        assert f"spec.{field}" in told.message


def test_a_model_that_nobody_brings_is_told() -> None:
    (told,) = (one for one in rendered(document(model={"uri": "s3://a/b"})).notices if one.type == "SpecHonoured")
    assert (told.holds, told.reason) == (False, "FieldsNotActedOn")
    assert "'s3://a/b'" in told.message
    quiet = rendered(document(model={"uri": "s3://a/b"}, storageInitializer={"enabled": False}))
    assert all(one.holds for one in quiet.notices)


def test_a_claim_is_mounted() -> None:
    stack = rendered(document(model={"uri": "pvc://models/phi/3"}))
    pod = find(stack, "Deployment", "phi3-kserve")["spec"]["template"]["spec"]
    mount = {"name": "model", "mountPath": "/mnt/models", "readOnly": True, "subPath": "phi/3"}
    assert mount in pod["containers"][0]["volumeMounts"]
    claim = {"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}
    assert claim in pod["volumes"]


def test_parallelism_is_passed_on_once() -> None:
    template = {"containers": [{"name": "main", "args": ["--tensor-parallel-size=8"]}]}
    parallelism = {"tensor": 2, "data": 4, "dataLocal": 2, "dataRPCPort": 5555, "expert": True}
    stack = rendered(document(template=template, parallelism=parallelism))
    assert main(find(stack, "Deployment", "phi3-kserve"))["args"] == [
        "--tensor-parallel-size=8",
        *("--data-parallel-size", "4"),
        *("--data-parallel-size-local", "2"),
        *("--data-parallel-rpc-port", "5555"),
        "--enable-expert-parallel",
    ]


def test_flags_of_a_template_come_after_ours_and_a_whole_command_line_stays_alone() -> None:
    def args(*given: str) -> list[str]:
        template = {"containers": [{"name": "main", "args": list(given)}]}
        stack = rendered(document(router={"scheduler": {"template": template}}), MESH)
        return [*main(find(stack, "Deployment", "phi3-kserve-router-scheduler"))["args"]]

    more = args("--v=5")
    assert more[:2] == ["--pool-name", "phi3-inference-pool"] and more[-3] == "--v=5"
    alone = args("--poolName", "mine", "--config-file", "/a")
    assert alone == ["--poolName", "mine", "--config-file", "/a"]


def test_a_configuration_of_one_s_own() -> None:
    config = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": [{"type": "queue-scorer"}]}
    stack = rendered(document(router={"scheduler": {"config": {"inline": config}}}))
    args = main(find(stack, "Deployment", "phi3-kserve-router-scheduler"))["args"]
    assert args[-2] == "--config-text"
    assert "- type: queue-scorer\n" in args[-1]


@pytest.mark.parametrize("field", ["command", "args"])
def test_a_configuration_takes_the_place_of_a_template_s_own(field: str) -> None:
    """Wherever the template has it: a picker that is given both does not start."""
    line = ["/app/epp", "--config-file", "/etc/one.yaml", "--v=4", "--config-text=x"]
    template = {"containers": [{"name": "main", field: line}]}
    config = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}
    stack = rendered(document(router={"scheduler": {"template": template, "config": {"inline": config}}}))
    container = main(find(stack, "Deployment", "phi3-kserve-router-scheduler"))
    whole = [*container.get("command", ()), *container["args"]]
    assert {"/app/epp", "--v=4"} <= set(whole)
    assert [word for word in whole if word.startswith("--config")] == ["--config-text"]


def test_no_mesh_no_tls_no_rule() -> None:
    assert not any(name.startswith("DestinationRule") for name in names(rendered(document(router=ALL), BARE)))
    plain = rendered(document(router=ALL), Facts(istio=True), settings=ServingSettings(tls=False))
    assert not any(name.startswith("DestinationRule") for name in names(plain))
    assert not plain.wants_certificate


@pytest.mark.parametrize(
    ("page", "image"), [("picker-image-with-kserve", "pointsman:local"), ("serve-a-model", CUSTOM)]
)
def test_the_manifests_of_the_pages_name_the_picker_s_image(page: str, image: str) -> None:
    text = (Path(__file__).parents[4] / "docs" / "how-to" / f"{page}.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    spec = yaml.safe_load(block)["spec"]
    made = main(find(rendered(document(**spec)), "Deployment", "phi3-kserve-router-scheduler"))
    assert made["image"].endswith(image)
    assert made.get("command", ["/usr/local/bin/epp-scheduler"]) == ["/usr/local/bin/epp-scheduler"]


def test_a_long_name_is_shortened_everywhere_alike() -> None:
    stack = rendered(document("m" * 63, router=ALL), MESH)
    assert all(len(one["metadata"]["name"]) <= 63 for one in stack.objects)
    pool = next(one for one in stack.objects if one["kind"] == "InferencePool")
    service = next(one for one in stack.objects if one["metadata"]["name"].endswith("-epp-service"))
    assert pool["spec"]["endpointPickerRef"]["name"] == service["metadata"]["name"]
