"""The scripts in hack/, run as people run them, on a real API server with the real kubectl.

The sample's namespace and name are in the scripts, so these tests share one stack, and each says what it needs of it;
what can have a namespace of its own has one.
Where an image builder is called, a stand-in writes down what it was asked: there is no container service here.
"""

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.controlplane import ControlPlane
from tests.cluster.operators import operating
from tests.cluster.packages import ROOT, documents

from pointsman.api.simulator import SimulatorDeployment
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.policy import TRUSTED
from pointsman.render.manifests.stack import render

NAMESPACE = "llm-d-sim"
SAMPLE = "simulatordeployment/llm-sim-full"
REGISTRY = "registry.example/pointsman"
RBAC = ("serviceaccount", "role", "rolebinding")


@pytest.fixture(scope="module")
def complete(bare: ControlPlane) -> ControlPlane:
    if not bare.complete:
        pytest.skip("these scripts wait for Pods, and this control plane has none")
    return bare


@pytest.fixture
def operated(complete: ControlPlane, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane with our definition and our operator."""
    complete.kubectl("apply", "--server-side", "-k", str(ROOT / "config" / "crd"))
    trusted = f"--trusted-image-prefixes={','.join(TRUSTED)},{REGISTRY}"
    with operating(complete, tmp_path / "operator.log", trusted):
        yield complete


@pytest.fixture
def ahead() -> str:
    """The name of a namespace that is not there yet."""
    return f"ahead-{secrets.token_hex(4)}"


def stack(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "sim.llm-d.io/v1alpha1",
        "kind": "SimulatorDeployment",
        "metadata": {"name": "x", "namespace": namespace},
        "spec": {"epp": {"enabled": True}},
    }


def run(script: str, plane: ControlPlane, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the control plane's kubectl first on the PATH."""
    environment = {
        "HOME": str(plane.directory),
        "PATH": f"{plane.assets.directory}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane.kubeconfig("admin")),
        "BUILD": "never",
        "TIMEOUT": "60s",
        **variables,
    }
    return subprocess.run(
        [ROOT / "hack" / script, *arguments], capture_output=True, text=True, timeout=150, env=environment, check=False
    )


def printed(finished: subprocess.CompletedProcess[str]) -> str:
    assert finished.returncode == 0, finished.stderr + finished.stdout
    return finished.stdout


def metadata(plane: ControlPlane, *what: str, namespace: str) -> list[dict[str, Any]]:
    """Return the metadata of objects."""
    found = json.loads(plane.kubectl("get", ",".join(what), "-n", namespace, "-o", "json"))["items"]
    return [one["metadata"] for one in found]


def versions(plane: ControlPlane, namespace: str) -> set[tuple[str, str]]:
    """Return the picker's account, Role and RoleBinding as uid and resource version."""
    return {(one["uid"], one["resourceVersion"]) for one in metadata(plane, *RBAC, namespace=namespace)}


def pods(plane: ControlPlane) -> set[str]:
    """Return the Pods of the sample that no rollout will replace."""
    deployments = [one["name"] for one in metadata(plane, "deployments", namespace=NAMESPACE)]
    for name in deployments:
        plane.kubectl("rollout", "status", f"deployment/{name}", "-n", NAMESPACE, "--timeout=60s")
    return {one["uid"] for one in metadata(plane, "pods", namespace=NAMESPACE) if "deletionTimestamp" not in one}


def permissions(plane: ControlPlane, namespace: str) -> dict[str, Any]:
    """Return the picker's account, Role and RoleBinding by kind."""
    listed = [json.loads(plane.kubectl("get", kind, "gaie-sim-epp", "-n", namespace, "-o", "json")) for kind in RBAC]
    return {one["kind"]: one for one in listed}


def test_the_picker_gets_the_rights_that_the_operator_would_give(complete: ControlPlane, ahead: str) -> None:
    printed(run("create-epp-rbac.sh", complete, NS_SIM=ahead))
    made = permissions(complete, ahead)
    resource = SimulatorDeployment.model_validate(stack(ahead))
    rendered = {one["kind"]: one for one in render(resource, Facts(inference_pool=True))}
    assert made["Role"]["rules"] == rendered["Role"]["rules"]
    for part in ("roleRef", "subjects"):
        assert made["RoleBinding"][part] == rendered["RoleBinding"][part]
    before = versions(complete, ahead)
    printed(run("create-epp-rbac.sh", complete, NS_SIM=ahead))
    assert versions(complete, ahead) == before


def test_a_stack_takes_over_what_was_made_ahead_and_then_keeps_it(operated: ControlPlane, ahead: str) -> None:
    printed(run("create-epp-rbac.sh", operated, NS_SIM=ahead))
    operated.kubectl("apply", "-f", "-", text=json.dumps(stack(ahead)))
    operated.kubectl("wait", "simulatordeployment/x", "-n", ahead, "--for=condition=Ready", "--timeout=60s")
    for one in permissions(operated, ahead).values():
        assert [owner["name"] for owner in one["metadata"]["ownerReferences"]] == ["x"]
    before = versions(operated, ahead)
    said = printed(run("create-epp-rbac.sh", operated, NS_SIM=ahead)).splitlines()
    owner = f"belongs to simulatordeployments.sim.llm-d.io/{ahead}/x and is kept right by the operator: left as it is"
    assert said == [f"{kind}/gaie-sim-epp {owner}" for kind in RBAC]
    assert versions(operated, ahead) == before


def test_the_whole_stack_is_brought_up_and_a_second_time_nothing_changes(operated: ControlPlane) -> None:
    said = printed(run("redeploy-with-fixes.sh", operated))
    assert "simulatordeployment.sim.llm-d.io/llm-sim-full condition met" in said
    assert "kubectl port-forward -n llm-d-sim svc/infra-sim-inference-gateway 8080:8080" in said
    assert {one["name"] for one in metadata(operated, "deployments", namespace=NAMESPACE)} == {
        "gaie-sim-epp",
        "infra-sim-inference-gateway",
        "infra-sim-inference-gateway-istio",
        "ms-sim-llm-d-modelservice-prefill",
        "ms-sim-llm-d-modelservice-decode",
    }
    before = pods(operated)
    printed(run("redeploy-with-fixes.sh", operated))
    assert pods(operated) == before


def test_a_stack_that_does_not_come_up_is_explained(complete: ControlPlane) -> None:
    complete.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "config" / "default"))
    operator = ("deployment/pointsman-operator", "-n", "pointsman-system", "--timeout=60s")
    complete.kubectl("rollout", "status", *operator)  # kwok says that it runs; it does not
    if complete.kubectl("get", SAMPLE, "-n", NAMESPACE, "--ignore-not-found"):  # then no operator has seen it
        complete.kubectl("patch", SAMPLE, "-n", NAMESPACE, "--subresource=status", "--type=merge", '-p={"status":null}')
    finished = run("redeploy-with-fixes.sh", complete, TIMEOUT="5s")
    assert finished.returncode == 1
    assert "the operator did not take up the stack within 5s" in finished.stderr
    assert "kubectl logs deployment/pointsman-operator -n pointsman-system" in finished.stderr


@pytest.fixture
def builders(tmp_path: Path) -> Path:
    """A folder with programs named docker, kind and minikube that write down how they are called."""
    for name in ("docker", "kind", "minikube"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls\n')
        program.chmod(0o755)
    return tmp_path


def in_context(plane: ControlPlane, name: str) -> str:
    """Return a kubeconfig whose context has this name."""
    document = json.loads(plane.kubeconfig("admin").read_text())
    document["contexts"][0]["name"] = document["current-context"] = name
    document["clusters"][0]["cluster"]["certificate-authority"] = str(plane.directory / "ca.crt")
    path = plane.directory / f"{name}.context"
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize(
    ("context", "load"),
    [
        pytest.param("kind-x", "kind load docker-image {} --name x", id="kind"),
        pytest.param("minikube", "minikube image load {}", id="minikube"),
    ],
)
def test_an_image_is_built_and_brought_to_the_nodes(
    operated: ControlPlane, builders: Path, context: str, load: str
) -> None:
    path = f"{builders}:{operated.assets.directory}:{os.environ['PATH']}"
    printed(run("redeploy-with-fixes.sh", operated, BUILD="auto", PATH=path, KUBECONFIG=in_context(operated, context)))
    calls = (builders / "calls").read_text().splitlines()
    sample = (ROOT / "config" / "samples" / "sim_v1alpha1_simulatordeployment_full.yaml").read_text()
    (resource,) = documents(sample)
    own = "docker.io/library/pointsman:local"
    names = {own, resource["spec"]["epp"]["image"], resource["spec"]["decode"]["image"]}
    names |= {resource["spec"]["inferenceGateway"][kind]["image"] for kind in ("standard", "istio")}
    assert f"docker build --tag {own} ." in calls
    assert {f"docker tag {own} {name}" for name in names - {own}} <= set(calls)
    assert {load.format(name) for name in names} <= set(calls)


def test_one_image_from_a_registry_can_be_every_part(operated: ControlPlane, builders: Path) -> None:
    path = f"{builders}:{operated.assets.directory}:{os.environ['PATH']}"
    image = "registry.example/pointsman:7"
    printed(run("redeploy-with-fixes.sh", operated, BUILD="auto", PATH=path, IMG=image))
    assert (builders / "calls").read_text().splitlines()[-2:] == [
        f"docker build --tag {image} .",
        f"docker push {image}",
    ]
    for where in (NAMESPACE, "pointsman-system"):
        found = operated.kubectl(
            *("get", "deployments", "-n", where, "-o"),
            "jsonpath={.items[*].spec.template.spec.containers[*].image}",
        )
        assert set(found.split()) == {image}
    arguments = operated.kubectl(
        *("get", "deployment", "pointsman-operator", "-n", "pointsman-system", "-o"),
        "jsonpath={.spec.template.spec.containers[0].args}",
    )
    assert f"--trusted-image-prefixes={','.join(TRUSTED)},{REGISTRY}" in json.loads(arguments)


def test_nodes_out_of_reach_are_told_before_anything_is_applied(complete: ControlPlane, builders: Path) -> None:
    path = f"{builders}:{complete.assets.directory}:{os.environ['PATH']}"
    finished = run(
        "redeploy-with-fixes.sh", complete, BUILD="auto", PATH=path, KUBECONFIG=in_context(complete, "production")
    )
    assert finished.returncode == 1
    assert "to the nodes of context production: set IMG" in finished.stderr
    assert "serverside-applied" not in finished.stdout


@pytest.mark.parametrize(
    ("script", "arguments", "variables", "complaint"),
    [
        pytest.param("create-epp-rbac.sh", ["x"], {}, "takes no arguments", id="an argument"),
        pytest.param("create-epp-rbac.sh", [], {"NS_SIM": "Not_A_Name"}, "NS_SIM=Not_A_Name", id="no namespace"),
        pytest.param("create-epp-rbac.sh", [], {"KUBECONFIG": "/none"}, "no cluster answers", id="no cluster"),
        pytest.param("redeploy-with-fixes.sh", ["x"], {}, "takes no arguments", id="another argument"),
        pytest.param("redeploy-with-fixes.sh", [], {"BUILD": "maybe"}, "BUILD=maybe", id="no such choice"),
        pytest.param("redeploy-with-fixes.sh", [], {"IMG": "a b"}, "IMG=a b is not the name", id="no image"),
        pytest.param("redeploy-with-fixes.sh", [], {"KUBECONFIG": "/none"}, "no cluster answers", id="none at all"),
    ],
)
def test_a_mistake_is_one_sentence(
    complete: ControlPlane, script: str, arguments: list[str], variables: dict[str, str], complaint: str
) -> None:
    finished = run(script, complete, *arguments, **variables)
    assert finished.returncode == 1
    assert finished.stderr.startswith(f"{script}: ") and complaint in finished.stderr
    assert len(finished.stderr.splitlines()) == 1


def test_without_kubectl_nothing_is_tried(complete: ControlPlane, tmp_path: Path) -> None:
    for name in ("bash", "basename", "dirname"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    finished = run("create-epp-rbac.sh", complete, PATH=str(tmp_path))
    assert (finished.returncode, finished.stdout) == (1, "")
    assert finished.stderr == "create-epp-rbac.sh: kubectl is not on the PATH: install it\n"
