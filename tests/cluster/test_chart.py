"""The Helm chart with the real helm: the same content as config/default, and a life on a real API server."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.controlplane import DEFINITION_PATIENCE, ControlPlane
from tests.cluster.definitions import ALL, Console
from tests.cluster.operators import account_config, operating
from tests.cluster.packages import ACCOUNT, CHART, DEFAULT, SYSTEM, Helm, by_name, documents, overlay, plain, settings
from tests.cluster.simulators import until_served

from pointsman.api import SIMULATOR_DEPLOYMENT
from pointsman.cli import app
from pointsman.render.manifests.policy import Policy

DEFINITION = "crd/simulatordeployments.sim.llm-d.io"


@pytest.fixture(scope="module")
def helm(bare: ControlPlane) -> Helm:
    program = bare.assets.find("helm")
    if program is None:
        pytest.skip("no helm among the programs of the control plane: tools/kube/build makes one")
    return Helm(program, bare)


@pytest.fixture
def release(helm: Helm, bare: ControlPlane) -> Iterator[tuple[str, ...]]:
    """Yield the arguments that name a release, of which nothing is left afterwards."""
    named = ("pointsman", str(CHART), "--namespace", SYSTEM)
    yield named
    Console(bare, bare.kubeconfig("admin")).fill_caches()
    helm("uninstall", "pointsman", "--namespace", SYSTEM, "--ignore-not-found", "--wait")
    patience = f"--timeout={DEFINITION_PATIENCE}s"
    bare.kubectl("delete", DEFINITION, "namespace/pointsman-system", "--ignore-not-found", patience)


def waiting(plane: ControlPlane) -> tuple[str, ...]:
    """Return how to wait where there are Pods to wait for."""
    return ("--wait", "--timeout=60s") if plane.complete else ()


def operator(plane: ControlPlane, path: str) -> str:
    return plane.kubectl("get", "deployment", "pointsman-operator", "-n", SYSTEM, "-o", f"jsonpath={{{path}}}")


def test_lint_finds_nothing(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_the_chart_is_config_default(helm: Helm, bare: ControlPlane) -> None:
    manifests = by_name(documents(bare.kubectl("kustomize", str(DEFAULT))))
    del manifests["Namespace", "", SYSTEM]  # helm makes it: --create-namespace
    assert plain(by_name(helm.template())) == plain(manifests)


def test_owning_the_inference_definitions_is_the_component(helm: Helm, bare: ControlPlane, tmp_path: Path) -> None:
    built = bare.kubectl("kustomize", str(overlay(tmp_path, components=["../inference-crds"])))
    manifests = by_name(documents(built))
    del manifests["Namespace", "", SYSTEM]
    found = by_name(helm.template(inferenceCRDs__own=True))
    assert plain(found) == plain(manifests)
    _, bound, _ = app.parse_args(arguments(found), exit_on_error=False, print_error=False)
    assert bound.arguments["options"].own_inference_crds is True


def test_looking_after_services_is_the_component(helm: Helm, bare: ControlPlane, tmp_path: Path) -> None:
    built = bare.kubectl("kustomize", str(overlay(tmp_path, components=["../llm"])))
    manifests = by_name(documents(built))
    del manifests["Namespace", "", SYSTEM]
    found = by_name(helm.template(llmInferenceServices__enabled=True))
    assert plain(found) == plain(manifests)
    more = {"llmInferenceServices__tls": False, "llmInferenceServices__gateway": "a/b"}
    set_ = by_name(helm.template(llmInferenceServices__enabled=True, **more))
    _, bound, _ = app.parse_args(arguments(set_), exit_on_error=False, print_error=False)
    options = bound.arguments["options"]
    assert options.llm_inference_services is True
    assert (options.to_settings().tls, options.to_settings().gateway) == (False, ("a", "b"))
    # With namespaces named, Secrets are read there and nowhere else.
    narrow = by_name(helm.template(llmInferenceServices__enabled=True, watchNamespaces=["team-a"]))
    everywhere = [one for (kind, _, _), one in narrow.items() if kind == "ClusterRole"]
    assert not any("secrets" in rule["resources"] for one in everywhere for rule in one["rules"] if "resources" in rule)
    (role,) = (one for (kind, _, name), one in narrow.items() if kind == "Role" and name.endswith("-llm"))
    assert any("secrets" in rule["resources"] for rule in role["rules"])


def test_an_owner_with_roles_alone_has_its_lease_and_its_definitions(
    helm: Helm, bare: ControlPlane, release: tuple[str, ...], watched: str, tmp_path: Path
) -> None:
    """Of several replicas one owns them, by a lease in its own namespace, which is not one that it watches."""
    values = settings({"watchNamespaces": [watched], "replicas": 0, "inferenceCRDs__own": True})
    helm("install", *release, "--create-namespace", *values)
    config = account_config(bare, tmp_path / "config", namespace=SYSTEM, account="pointsman-operator")
    console = Console(bare, bare.kubeconfig("admin"))
    flags = ("--leader-elect", f"--watch-namespaces={watched}", "--own-inference-crds")
    with operating(bare, tmp_path / "log", *flags, config=config, environment={"POD_NAMESPACE": SYSTEM}):
        for name in ALL:
            bare.kubectl("wait", f"crd/{name}", "--for=create", "--timeout=60s")
            bare.kubectl("wait", f"crd/{name}", "--for=condition=crds.llm-d.io/Owned", "--timeout=60s")
        holder = bare.kubectl("get", "lease", "crds.llm-d.io", "-n", SYSTEM, "-o", "jsonpath={.spec.holderIdentity}")
        assert holder
        until_told(bare, "Created")
    assert "forbidden" not in (tmp_path / "log").read_text()
    helm("uninstall", "pointsman", "--namespace", SYSTEM, "--wait")
    assert set(ALL) <= set(console.there()), "a release that goes takes no definition of others' objects with it"
    assert console.crds("uninstall").code == 0


def until_told(plane: ControlPlane, reason: str) -> None:
    """Wait for an Event about something that belongs to no namespace."""
    deadline = time.monotonic() + 30
    while not plane.kubectl("get", "events", "-n", "default", f"--field-selector=reason={reason}", "-o", "name"):
        assert time.monotonic() < deadline, f"no Event says {reason}"
        time.sleep(0.2)


def test_install_upgrade_uninstall(helm: Helm, bare: ControlPlane, release: tuple[str, ...]) -> None:
    helm("install", *release, "--create-namespace", *waiting(bare))
    bare.kubectl("wait", "--for=condition=Established", DEFINITION, "--timeout=30s")
    changed = settings({"replicas": 2, "image__tag": "0.1.0"})
    helm("upgrade", *release, *changed, *waiting(bare))
    assert operator(bare, ".spec.replicas") == "2"
    assert operator(bare, ".spec.template.spec.containers[0].image") == "docker.io/library/pointsman:0.1.0"
    helm("rollback", "pointsman", "1", "--namespace", SYSTEM, *waiting(bare))
    assert operator(bare, ".spec.replicas") == "1"
    helm("uninstall", "pointsman", "--namespace", SYSTEM, "--wait")
    assert bare.kubectl("get", "all,serviceaccount", "-n", SYSTEM, "-l", "app.kubernetes.io/name=pointsman") == ""
    assert bare.kubectl("get", "clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/name=pointsman") == ""
    # Stacks are worth more than a release: they stay, and another release of the name takes the definition up again.
    assert bare.kubectl("get", DEFINITION, "-o", "name")
    helm("install", *release, *waiting(bare))


def test_the_definition_goes_when_told(helm: Helm, bare: ControlPlane, release: tuple[str, ...]) -> None:
    helm("install", *release, "--create-namespace", *settings({"crds__keep": False}))
    bare.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    Console(bare, bare.kubeconfig("admin")).fill_caches()
    helm("uninstall", "pointsman", "--namespace", SYSTEM, "--wait")
    assert bare.kubectl("get", DEFINITION, "--ignore-not-found") == ""


def test_the_definition_may_be_anothers(helm: Helm) -> None:
    found = by_name(helm.template(crds__install=False))
    assert not [kind for kind, _, _ in found if kind == "CustomResourceDefinition"]


def test_named_namespaces_get_roles_and_the_rest_nothing(helm: Helm, bare: ControlPlane) -> None:
    whole = by_name(helm.template())["ClusterRole", "", "pointsman-operator"]["rules"]
    found = by_name(helm.template(watchNamespaces=["a", "b"]))
    roles = {namespace: one["rules"] for (kind, namespace, _), one in found.items() if kind == "Role"}
    everywhere = found["ClusterRole", "", "pointsman-operator"]["rules"]
    assert {name for rule in everywhere for name in rule["resources"]} == {
        "customresourcedefinitions",
        "gatewayclasses",
    }
    assert all(set(rule["verbs"]) <= {"get", "list", "watch"} for rule in everywhere)
    assert roles["a"] == roles["b"]
    assert [rule for rule in whole if rule not in everywhere] == roles["a"]
    assert set(roles) == {"a", "b"}  # the election of each namespace is held there
    (container,) = found["Deployment", SYSTEM, "pointsman-operator"]["spec"]["template"]["spec"]["containers"]
    assert "--watch-namespaces=a,b" in container["args"]
    kinds = {kind for kind, _, _ in by_name(helm.template(watchNamespaces=["a"], clusterReads=False))}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding"}


@pytest.fixture
def watched(bare: ControlPlane) -> Iterator[str]:
    bare.kubectl("create", "namespace", "watched")
    yield "watched"
    bare.kubectl("delete", "namespace", "watched", "--timeout=60s")


@pytest.mark.parametrize("reads", [True, False], ids=["that may read what there is", "without any cluster-wide right"])
def test_an_operator_with_roles_alone_serves_its_namespace(
    helm: Helm, bare: ControlPlane, release: tuple[str, ...], watched: str, tmp_path: Path, reads: bool
) -> None:
    if not bare.complete:
        pytest.skip("a stack is ready when its Pods are, and this control plane has none")
    values = settings({"watchNamespaces": [watched], "clusterReads": reads, "replicas": 0})
    helm("install", *release, "--create-namespace", *values)
    config = account_config(bare, tmp_path / "config", namespace=SYSTEM, account="pointsman-operator")
    stack = {
        "apiVersion": "sim.llm-d.io/v1alpha1",
        "kind": "SimulatorDeployment",
        "metadata": {"name": "x", "namespace": watched},
        "spec": {
            "epp": {"enabled": True, "replicas": 2},
            "inferenceGateway": {"enabled": True, "standard": {"enabled": True}},
        },
    }
    until_served(bare, str(SIMULATOR_DEPLOYMENT))
    with operating(bare, tmp_path / "log", "--leader-elect", f"--watch-namespaces={watched}", config=config):
        bare.kubectl("apply", "-f", "-", text=json.dumps(stack))
        bare.kubectl("wait", "simulatordeployment/x", "-n", watched, "--for=condition=Ready", "--timeout=60s")
        told = bare.kubectl(
            *("get", "simulatordeployment/x", "-n", watched, "-o"),
            'jsonpath={.status.conditions[?(@.type=="ClusterAccess")].message}',
        )
    assert ("gatewayclasses" in told) is not reads
    with pytest.raises(AssertionError, match="forbidden"):
        bare.kubectl("get", "configmaps", "-n", "default", f"--as={ACCOUNT}")


def test_where_pods_may_go(helm: Helm) -> None:
    amounts = {"cpu": "1", "memory": "1Gi"}
    values: dict[str, Any] = {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "x", "operator": "Exists", "effect": "NoSchedule"}],
        "imagePullSecrets": [{"name": "registry"}],
        "resources": {"requests": amounts, "limits": amounts},
    }
    pod = by_name(helm.template(**values))["Deployment", SYSTEM, "pointsman-operator"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {name: (container if name == "resources" else pod)[name] for name in values} == values


def arguments(found: Any) -> list[str]:
    (container,) = found["Deployment", SYSTEM, "pointsman-operator"]["spec"]["template"]["spec"]["containers"]
    words: list[str] = container["args"]
    return words


def test_values_become_flags(helm: Helm) -> None:
    policy = {
        "maxReplicas": 1_000_000,
        "trustedImagePrefixes": ["registry.example/a"],
        "allowedImagePrefixes": ["registry.example/", "ghcr.io/llm-d/"],
        "allowExternalServices": True,
        "networkPolicies": False,
        "gatewayNamespaces": {"team": "a", "kind": "gateway"},
        "metricsNamespaces": {"monitors": "true"},
        "pickerMetricsAuth": False,
    }
    found = by_name(helm.template(policy=policy, metrics__auth=False, image__repository="registry.example/pointsman"))
    _, bound, _ = app.parse_args(arguments(found), exit_on_error=False, print_error=False)
    options = bound.arguments["options"]
    assert options.metrics_endpoint_auth is False
    assert options.to_policy() == Policy(
        max_replicas=1_000_000,
        trusted_images=("registry.example/a", "registry.example/pointsman"),  # the chart's own, too
        allowed_images=("registry.example/", "ghcr.io/llm-d/"),
        external_services=True,
        network_policies=False,
        gateway_namespaces=(("kind", "gateway"), ("team", "a")),
        metrics_namespaces=(("monitors", "true"),),
        metrics_auth=False,
    )


def test_the_operators_own_network_policy(helm: Helm) -> None:
    name = ("NetworkPolicy", SYSTEM, "pointsman-operator")
    found = by_name(helm.template(networkPolicy__metricsNamespaces={"monitors": "true"}))
    (rule,) = found[name]["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [8080]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"monitors": "true"}}}]
    selector = found[name]["spec"]["podSelector"]["matchLabels"]
    pod = found["Deployment", SYSTEM, "pointsman-operator"]["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= pod.items()
    assert name not in by_name(helm.template(networkPolicy__enabled=False))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        pytest.param({"replica": 2}, "additional properties 'replica' not allowed", id="a typing error"),
        pytest.param({"replicas": -1}, "/replicas", id="less than none"),
        pytest.param({"replicas": "two"}, "/replicas", id="not a number"),
        pytest.param({"replicas": 2, "leaderElect": False}, "/leaderElect", id="two that both act"),
        pytest.param({"watchNamespaces": ["Not A Name"]}, "/watchNamespaces/0", id="no namespace's name"),
        pytest.param({"watchNamespaces": "a,b"}, "/watchNamespaces", id="a text for a list"),
        pytest.param({"watchNamespaces": ["a", "a"]}, "/watchNamespaces", id="twice the same"),
        pytest.param({"image__pullPolicy": "Sometimes"}, "/image/pullPolicy", id="no such policy"),
        pytest.param({"image__repository": "a b"}, "/image/repository", id="no image's name"),
        pytest.param({"image__tag": ""}, "/image/tag", id="no tag"),
        pytest.param({"resources__limits": {"memory": "lots"}}, "/resources/limits/memory", id="no quantity"),
        pytest.param({"crds__keep": "yes"}, "/crds/keep", id="no boolean"),
        pytest.param({"inferenceCRDs__own": "yes"}, "/inferenceCRDs/own", id="no boolean, again"),
        pytest.param({"inferenceCRDs__install": True}, "install", id="a typing error in inferenceCRDs"),
        pytest.param({"tolerations": [{"effect": "Maybe"}]}, "/tolerations/0/effect", id="no such effect"),
        pytest.param({"policy__maxReplicas": -1}, "/policy/maxReplicas", id="fewer than none"),
        pytest.param({"policy__trustedImagePrefixes": ["a b"]}, "/policy/trustedImagePrefixes/0", id="no image at all"),
        pytest.param({"policy__gatewayNamespaces": {"a": "b c"}}, "/policy/gatewayNamespaces/a", id="no label"),
        pytest.param({"policy__networkPolicy": False}, "networkPolicy", id="a typing error in the policy"),
        pytest.param({"nodeSelector": {"a": 1}}, "/nodeSelector/a", id="labels are text"),
    ],
)
def test_nonsense_is_refused_by_name(helm: Helm, values: dict[str, object], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        helm.template(**values)
