"""The picker of a stack: what it reads, what it may, how it is reached, and that it takes its own configuration."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.unit.render.stacks import (
    BARE,
    CASES,
    ON,
    POOL,
    STAGES,
    Case,
    container,
    find,
    named,
    of_kind,
    rendered,
    resource,
    selects,
)

from pointsman.cli import app
from pointsman.epp.config.build import Builder, Built
from pointsman.epp.config.defaults import load
from pointsman.epp.sources.kube import deployment_of
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.objects import CHECKSUM, Object
from pointsman.render.manifests.picker import CONFIG_KEY
from pointsman.render.manifests.policy import Policy
from pointsman.render.manifests.stack import stack

PICKER = "gaie-sim-epp"
with_picker = pytest.mark.parametrize(
    "case",
    [one for one in CASES if one.resource.spec.epp and one.resource.spec.epp.enabled],
    ids=lambda case: case.name,
)


def configured(objects: Any) -> Built:
    (text,) = (one["data"][CONFIG_KEY] for one in of_kind(objects, "ConfigMap") if CONFIG_KEY in one["data"])
    return Builder(clock=lambda: 0.0, rng=random.Random(7)).build(load(text), name=CONFIG_KEY)


def profiles(built: Built) -> dict[str, list[str]]:
    return {one.name: [name for name, _ in one.plugins] for one in built.plan.profiles}


def flags(deployment: Object) -> list[str]:
    words: list[str] = container(deployment)["args"]
    return words


@with_picker
def test_our_own_loader_takes_the_configuration(case: Case) -> None:
    assert configured(case.render().objects).scheduler is not None


def test_one_stage_has_one_profile_that_keeps_to_decoders() -> None:
    (only,) = profiles(configured(rendered(epp=ON).objects)).values()
    assert only == [
        "decode-filter",
        "max-score-picker",
        "load-aware-scorer",
        "prefix-cache-scorer",
        "kv-cache-utilization-scorer",
    ]


def test_prefill_alone_has_no_decoder_to_keep_to() -> None:
    (only,) = profiles(configured(rendered(epp=ON, prefill=ON).objects)).values()
    assert not [name for name in only if name.endswith("filter")]


def test_two_stages_have_a_profile_each() -> None:
    built = configured(rendered(epp=ON, **STAGES).objects)
    assert {name: plugins[0] for name, plugins in profiles(built).items()} == {
        "prefill": "prefill-filter",
        "decode": "decode-filter",
    }
    assert "prefill-header-handler" in built.made


def test_another_configuration_rolls_the_pods_and_another_size_does_not() -> None:
    def checksum(**spec: Any) -> str:
        template = find(rendered(epp=ON, **spec).objects, "Deployment", PICKER)["spec"]["template"]
        return str(template["metadata"]["annotations"][CHECKSUM])

    assert checksum() == checksum(replicas=7) == checksum(decode=ON)
    assert len({checksum(), checksum(prefill=ON), checksum(**STAGES)}) == 3


def test_with_the_definition_the_picker_follows_a_pool_of_its_own() -> None:
    objects = rendered(POOL, epp=ON | {"port": 8101}).objects
    pool = find(objects, "InferencePool")
    said = flags(find(objects, "Deployment", PICKER))
    assert said[:6] == [
        *("--pool-name", pool["metadata"]["name"]),
        *("--pool-namespace", "llm-d-sim"),
        *("--pool-group", pool["apiVersion"].partition("/")[0]),
    ]
    assert "--endpoint-selector" not in said
    reference = pool["spec"]["endpointPickerRef"]
    ports = {port["port"] for port in find(objects, "Service", reference["name"])["spec"]["ports"]}
    assert reference["port"]["number"] == 8101 in ports


def test_without_it_the_same_pods_by_their_labels() -> None:
    objects = rendered(epp=ON, decode=ON | {"port": 8300}).objects
    said = flags(find(objects, "Deployment", PICKER))
    assert not of_kind(objects, "InferencePool") and "--pool-name" not in said
    words = dict(zip(said[::2], said[1::2], strict=False))
    selector = dict(pair.split("=") for pair in words["--endpoint-selector"].split(","))
    assert selects(selector, find(objects, "Deployment", "ms-sim-llm-d-modelservice-decode"))
    assert words["--endpoint-target-ports"] == "8300"


@pytest.mark.parametrize(
    ("spec", "members"),
    [
        pytest.param({}, ["ms-sim-llm-sim-decode"], id="no stages"),
        pytest.param({"prefill": ON}, ["ms-sim-llm-d-modelservice-prefill"], id="prefill"),
        pytest.param(STAGES, [f"ms-sim-llm-d-modelservice-{one}" for one in ("decode", "prefill")], id="both"),
    ],
)
def test_the_pool_is_the_simulators_and_nothing_else(spec: dict[str, Any], members: list[str]) -> None:
    objects = rendered(POOL, epp=ON, inferenceGateway=ON | {"standard": ON}, **spec).objects
    pool = find(objects, "InferencePool")["spec"]
    found = [one for one in of_kind(objects, "Deployment") if selects(pool["selector"]["matchLabels"], one)]
    assert [one["metadata"]["name"] for one in found] == members
    assert [one["number"] for one in pool["targetPorts"]] == [container(found[0])["ports"][0]["containerPort"]]


@with_picker
def test_its_flags_are_flags_of_our_picker(case: Case) -> None:
    (picker,) = (one for one in of_kind(case.render().objects, "Deployment") if container(one)["name"] == "epp")
    _, bound, _ = app.parse_args(["epp", *flags(picker)], exit_on_error=False, print_error=False)
    settings = bound.arguments["settings"]
    assert (settings.grpc_port, settings.grpc_health_port, settings.metrics_port) == (9002, 9003, 9090)
    assert settings.config_file == Path("/config", CONFIG_KEY)
    assert (settings.secure_serving, bool(settings.pool_name)) == (False, case.facts.inference_pool)


def test_its_service_speaks_http2_where_grpc_is_and_leads_to_where_the_picker_listens() -> None:
    ports = {one["port"]: one for one in find(rendered(epp=ON).objects, "Service", PICKER)["spec"]["ports"]}
    assert {number: one["targetPort"] for number, one in ports.items()} == {
        8100: 9002,
        9002: 9002,
        9003: 9003,
        9090: 9090,
    }
    assert {ports[number]["appProtocol"] for number in (8100, 9002, 9003)} == {"http2"}
    assert all(ports[number]["name"].startswith("grpc") for number in (8100, 9002, 9003))


def test_a_port_that_is_there_anyway_is_not_there_twice() -> None:
    ports = find(rendered(epp=ON | {"port": 9002}).objects, "Service", PICKER)["spec"]["ports"]
    assert [one["port"] for one in ports] == [9002, 9003, 9090]


def test_it_may_read_and_with_several_lead() -> None:
    for replicas, kinds in ((1, set()), (2, {"leases"})):
        objects = rendered(epp=ON | {"replicas": replicas}).objects
        rules = find(objects, "Role")["rules"]
        writes = {kind for rule in rules for kind in rule["resources"] if {*rule["verbs"]} - {"get", "list", "watch"}}
        assert writes == kinds
        assert not [rule for rule in rules if "*" in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])]
        binding = find(objects, "RoleBinding")
        assert binding["roleRef"]["name"] == find(objects, "Role")["metadata"]["name"]
        (subject,) = binding["subjects"]
        pod = find(objects, "Deployment", PICKER)["spec"]["template"]["spec"]
        assert subject["name"] == pod["serviceAccountName"]


@pytest.mark.parametrize("facts", [BARE, POOL], ids=["selector", "pool"])
def test_it_holds_the_lease_of_its_own_election_and_no_other(facts: Facts) -> None:
    objects = rendered(facts, epp=ON | {"replicas": 2}, nameSuffix="-b").objects
    held = [rule for rule in find(objects, "Role")["rules"] if rule["resources"] == ["leases"]]
    assert [(rule["verbs"], "resourceNames" in rule) for rule in held] == [
        (["create"], False),
        (["get", "update"], True),
    ]
    pod = f"{find(objects, 'Deployment', PICKER + '-b')['metadata']['name']}-6f7d8c9b5-x2x4z"
    group = "gaie-sim-b" if facts.inference_pool else deployment_of(pod)
    assert f"epp-llm-d-sim-{group}.llm-d.ai" in held[1]["resourceNames"]


def test_without_a_pool_it_reads_pods_and_nothing_else() -> None:
    (rule,) = find(rendered(epp=ON).objects, "Role")["rules"]
    assert (rule["resources"], rule["verbs"]) == (["pods"], ["list", "watch"])


@with_picker
def test_its_token_is_in_its_own_container_and_in_no_other_of_the_stack(case: Case) -> None:
    for deployment in of_kind(case.render().objects, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        tokens = [one for one in pod["volumes"] if "serviceAccountToken" in str(one)]
        is_picker = container(deployment)["name"] == "epp"
        assert bool(tokens) is ("serviceAccountName" in pod) is is_picker
        if is_picker:
            mounts = {one["name"]: one["mountPath"] for one in container(deployment)["volumeMounts"]}
            assert mounts[tokens[0]["name"]] == "/var/run/secrets/kubernetes.io/serviceaccount"
    (account,) = of_kind(case.render().objects, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False


def memory(**resources: Any) -> Any:
    found = rendered(epp=ON | ({"resources": resources} if resources else {})).objects
    return container(find(found, "Deployment", PICKER)).get("resources")


def test_its_memory_is_limited_unless_someone_says_otherwise() -> None:
    assert memory() == {"requests": {"memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    more = memory(limits={"cpu": "1"})
    assert more == {"requests": {"memory": "256Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    for said in ({"limits": {"memory": "2Gi"}}, {"requests": {"memory": "2Gi"}}):
        assert memory(**said) == said


def test_metrics_are_guarded_unless_the_administrator_says_otherwise() -> None:
    for guarded in (True, False):
        made = stack(resource(epp=ON), BARE, Policy(metrics_auth=guarded)).objects
        _, bound, _ = app.parse_args(
            ["epp", *flags(find(made, "Deployment", PICKER))], exit_on_error=False, print_error=False
        )
        assert bound.arguments["settings"].metrics_endpoint_auth is guarded


def test_of_several_one_leads_and_no_roll_waits_for_the_others() -> None:
    for replicas, leads, away in ((1, False, 0), (2, True, "100%")):
        stack = rendered(epp=ON | {"replicas": replicas})
        deployment = find(stack.objects, "Deployment", PICKER)
        assert ("--ha-enable-leader-election" in flags(deployment)) is leads
        assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == away
        (component,) = (one for one in stack.components if one.name == PICKER)
        assert (component.replicas, component.needed) == (replicas, 1)


def test_what_others_need_comes_first() -> None:
    order = [name.partition("/")[0] for name in named(rendered(POOL, epp=ON).objects)]
    kinds = [
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "ConfigMap",
        "NetworkPolicy",
        "Deployment",
        "Service",
        "InferencePool",
    ]
    assert list(dict.fromkeys(order)) == kinds


@pytest.mark.parametrize("facts", [BARE, POOL], ids=["selector", "pool"])
def test_its_own_arguments_come_last(facts: Facts) -> None:
    objects = rendered(facts, epp=ON | {"args": ["--v", "9"]}).objects
    assert flags(find(objects, "Deployment", PICKER))[-2:] == ["--v", "9"]
