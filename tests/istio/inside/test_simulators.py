"""A stack behind real Istio: istiod makes the gateway of our Gateway, and the picker's Pod decides who answers.

kwok's Pods are posed by processes at their own addresses: simulators, the picker with the flags and the file that the
operator gave its Deployment, and an Envoy in the place of the gateway that istiod programs.
"""

import json
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.controlplane import DEFINITION_PATIENCE
from tests.istio.inside.conftest import ROOT, ours
from tests.istio.mesh import Mesh, fetch
from tests.waiting import wait_until

PORT, ADMIN = 28_889, 29_902
NAME = "infra-sim-inference-gateway"
STACK = "sim"
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def resource() -> dict[str, Any]:
    sample = ROOT / "config" / "samples" / "sim_v1alpha1_simulatordeployment_full.yaml"
    document: dict[str, Any] = yaml.safe_load(sample.read_text())
    document["metadata"] = {"name": STACK, "namespace": "default"}
    document["spec"]["inferenceGateway"]["istio"] |= {"port": PORT, "replicas": 2}
    document["spec"]["decode"]["replicas"] = 3
    return document


def get(mesh: Mesh, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        mesh.plane.kubectl("get", kind, name, "-o", "json", "--ignore-not-found") or "{}"
    )
    return found


def condition(mesh: Mesh, type_: str) -> tuple[str, str]:
    status = get(mesh, "simulatordeployment", STACK).get("status", {})
    found = [(one["status"], one["reason"]) for one in status.get("conditions", []) if one["type"] == type_]
    return found[0] if found else ("", "")


def send(prompt: str) -> str:
    """Send a completion through the gateway and return the Pod that answered."""
    body = json.dumps({"model": "random", "prompt": prompt, "max_tokens": 2}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", data=body, headers=headers)
    with _DIRECT.open(request, timeout=10) as answer:
        return str(answer.headers["x-inference-pod"])


def pose_simulators(mesh: Mesh) -> None:
    for pod in wait_until(lambda: [p for p in [mesh.pods("llm-d.ai/inferenceServing=true")] if len(p) == 5])[0]:
        address, name = pod["status"]["podIP"], pod["metadata"]["name"]
        flags = pod["spec"]["containers"][0]["args"]
        mesh.spawn(name, ours("sim", *flags, "--host", address), {"POD_NAME": name, "POD_IP": address})


def pose_picker(mesh: Mesh, folder: Path) -> str:
    """Run the picker as its Deployment says, and return the address of its Pod."""
    (pod,) = wait_until(lambda: mesh.pods("component=epp"))
    data = get(mesh, "configmap", "gaie-sim-epp")["data"]
    for key, text in data.items():
        (folder / key).write_text(text)
    flags = [word.replace("/config/", f"{folder}/") for word in pod["spec"]["containers"][0]["args"]]
    environment = {
        "KUBECONFIG": str(mesh.plane.kubeconfig("admin")),
        "NAMESPACE": "default",
        "POD_NAME": pod["metadata"]["name"],
    }
    address = str(pod["status"]["podIP"])
    mesh.spawn("picker", ours("epp", *flags, "--host", address), {**os.environ, **environment})
    wait_until(lambda: fetch(f"http://{address}:9090/healthz")[0] == 200)  # kwok calls the Pod ready before that
    return address


@pytest.fixture(scope="module")
def picker(mesh: Mesh, operator: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A stack in the default namespace, its Pods posed; returns the picker's address."""
    mesh.apply(resource())
    pose_simulators(mesh)
    address = pose_picker(mesh, tmp_path_factory.mktemp("picker"))
    mesh.plane.kubectl("wait", "--for=condition=Programmed", f"gateway/{NAME}", "--timeout=60s")
    mesh.pose(NAME, admin_port=ADMIN)
    return address


def test_istio_makes_the_gateway_as_the_resource_says(mesh: Mesh, picker: str) -> None:
    deployment = wait_until(lambda: get(mesh, "deployment", f"{NAME}-istio"))
    wanted = resource()["spec"]["inferenceGateway"]["istio"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == wanted["image"]
    assert "istiod" in json.dumps(deployment["metadata"]) or "istio" in json.dumps(deployment["metadata"])
    assert get(mesh, "service", f"{NAME}-istio")["spec"]["type"] == "ClusterIP"
    wait_until(lambda: condition(mesh, "IstioGatewayReady") == ("True", "Programmed"))
    assert condition(mesh, "IstioGateway") == ("True", "MadeByIstio")


def test_every_request_is_answered_by_the_pod_that_was_picked(mesh: Mesh, picker: str) -> None:
    wait_until(lambda: send("to warm up"))
    names = {f"{pod['status']['podIP']}:8200": pod["metadata"]["name"] for pod in mesh.pods("llm-d.ai/role=decode")}
    served = set()
    reader = {"authorization": f"Bearer {mesh.plane.tokens['admin']}"}
    for number in range(30):
        answered = send(f"prompt number {number}")
        # Istio gives requests ids of its own; this is the only client.
        asked = urllib.request.Request(f"http://{picker}:9090/debug/decisions?last=1", headers=reader)
        with _DIRECT.open(asked, timeout=5) as answer:
            (decision,) = json.load(answer)["decisions"]
        assert names[decision["picked"][0]] == answered
        served.add(answered)
    assert len(served) == 3


def test_the_doctor_finds_nothing(mesh: Mesh, picker: str) -> None:
    words = ("--gateway", NAME, "--envoy", f"http://127.0.0.1:{ADMIN}", "--json", "--probes", "6")
    config = ("--kubeconfig", str(mesh.plane.kubeconfig("admin")))
    ran = subprocess.run(ours("doctor", *words, *config), capture_output=True, text=True, timeout=60, check=False)
    found = json.loads(ran.stdout)
    assert (ran.returncode, found["firstCause"]) == (0, None), [one for one in found["checks"] if one["cause"]]
    proof = {one["check"]: one for one in found["checks"]}["the answer comes from the picked Pod"]
    assert "its pages need a token" in proof["evidence"], "nobody's own token is sent to a picker"


def test_the_rule_of_load_balancing_follows_the_resource(mesh: Mesh, picker: str) -> None:
    rule = "gaie-inference-scheduling-proxy-lb"
    found = wait_until(lambda: get(mesh, "destinationrule", rule))["spec"]
    assert found["host"] == "gaie-inference-scheduling-proxy.default.svc.cluster.local"
    for algorithm in ("RANDOM", "LEAST_CONN", "LEAST_REQUEST"):
        patch = json.dumps({"spec": {"loadBalancing": {"algorithm": algorithm}}})
        mesh.plane.kubectl("patch", "simulatordeployment", STACK, "--type=merge", "-p", patch)
        wait_until(
            lambda wanted=algorithm: (  # type: ignore[misc] # mypy cannot infer a default
                get(mesh, "destinationrule", rule)["spec"]["trafficPolicy"]["loadBalancer"]["simple"] == wanted
            )
        )


def test_a_definition_of_istio_goes_and_comes_while_in_use(mesh: Mesh, picker: str) -> None:
    definition = "destinationrules.networking.istio.io"
    kept = get(mesh, "crd", definition)
    mesh.plane.kubectl("delete", "crd", definition, f"--timeout={DEFINITION_PATIENCE}s")
    wait_until(lambda: condition(mesh, "LoadBalancing") == ("True", "GatewayOnly"))
    assert condition(mesh, "Ready")[0] == "True"
    assert send("without the rule")
    fresh = {name: kept[name] for name in ("apiVersion", "kind", "spec")}
    mesh.apply({**fresh, "metadata": {"name": definition, "labels": kept["metadata"].get("labels", {})}})
    wait_until(lambda: condition(mesh, "LoadBalancing") == ("True", "DestinationRule"))
    assert get(mesh, "destinationrule", "gaie-inference-scheduling-proxy-lb")


def test_deletion_leaves_nothing(mesh: Mesh, picker: str) -> None:
    mesh.plane.kubectl("delete", "simulatordeployment", STACK, "--timeout=60s")
    kinds = "deployments,services,configmaps,gateways,httproutes,destinationrules,inferencepools,roles,rolebindings"
    made = ("get", kinds, "-o", "name", "-l", "app.kubernetes.io/managed-by=pointsman-operator")
    wait_until(lambda: mesh.plane.kubectl(*made).strip() == "")
    wait_until(lambda: not get(mesh, "deployment", f"{NAME}-istio"))
