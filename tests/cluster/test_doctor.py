"""`pointsman doctor` in front of a real API server: definitions that come and go, accounts that may not see, several
Gateways, and a bundle without secrets. What needs a mesh is in tests/istio.
"""

import contextlib
import io
import json
import secrets
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.assets import Missing
from tests.cluster.controlplane import DEFINITION_PATIENCE, ControlPlane
from tests.cluster.definitions import ONE, V1
from tests.cluster.simulators import until_served
from tests.istio import assets as istio
from tests.waiting import wait_until

from pointsman import cli

Document = dict[str, Any]
GATEWAY_API = "gateway.networking.k8s.io"
KINDS = [f"{plural}.{GATEWAY_API}" for plural in ("gatewayclasses", "gateways", "httproutes", "referencegrants")]


def run(plane: ControlPlane, *words: str, user: str = "admin") -> tuple[int, str, str]:
    """Run a command as a person does; return its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli._run([*words, "--kubeconfig", str(plane.kubeconfig(user))])
    return code, out.getvalue(), err.getvalue()


def examined(plane: ControlPlane, *words: str, user: str = "admin") -> tuple[int, dict[str, Document], str]:
    """Run the doctor; return its exit code, what each check found, and the first cause."""
    code, out, err = run(plane, "doctor", "--json", "--probes", "0", *words, user=user)
    assert not err, err
    document = json.loads(out)
    return code, {one["check"]: one for one in document["checks"]}, document["firstCause"]


@pytest.fixture(scope="module")
def gateways(plane: ControlPlane) -> Iterator[None]:
    """The Gateway API and InferencePools, without anybody who follows them."""
    try:
        crds = istio.find() / "crds"
    except Missing as reason:
        pytest.skip(f"no definitions of the Gateway API: {reason}")
    for plural in ("gatewayclasses", "gateways", "httproutes", "referencegrants"):
        plane.kubectl("apply", "--server-side", "-f", str(crds / f"{GATEWAY_API}_{plural}.yaml"))
    code, _, err = run(plane, "crds", "install", *ONE)
    assert code == 0, err
    for name in (*KINDS, V1):
        until_served(plane, name)
    yield
    names = [f"crd/{name}" for name in (*KINDS, V1)]
    plane.kubectl("delete", "--ignore-not-found", f"--timeout={DEFINITION_PATIENCE}s", *names)


@pytest.fixture
def place(plane: ControlPlane, gateways: None) -> Iterator[str]:
    """A namespace with a Gateway, a route to a pool, and a picker whose account may do nothing."""
    name = f"doctor-{secrets.token_hex(3)}"
    plane.kubectl("create", "namespace", name)
    plane.kubectl("apply", "-n", name, "-f", "-", text="\n---\n".join(json.dumps(one) for one in objects()))
    yield name
    plane.kubectl("delete", "namespace", name, "--wait=false")
    plane.kubectl("delete", "gateways,httproutes", "--all", "-n", name, "--ignore-not-found")


def objects() -> list[Document]:
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "pool"}
    env = [{"name": "HF_TOKEN", "value": "s3cret-token"}]
    args = ["--pool-name", "pool", "--pool-namespace", "$(NAMESPACE)", "--password", "s3cret-word"]
    container = {"name": "epp", "image": "example.invalid/epp:1", "args": args, "env": env}
    labels = {"app": "epp"}
    return [
        {
            "apiVersion": f"{GATEWAY_API}/v1",
            "kind": "Gateway",
            "metadata": {"name": "gw"},
            "spec": {"gatewayClassName": "istio", "listeners": [{"name": "h", "port": 80, "protocol": "HTTP"}]},
        },
        {
            "apiVersion": f"{GATEWAY_API}/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": "llm"},
            "spec": {"parentRefs": [{"name": "gw"}], "rules": [{"backendRefs": [pool]}]},
        },
        {
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": {"name": "pool"},
            "spec": {
                "selector": {"matchLabels": {"app": "sim"}},
                "targetPorts": [{"number": 8200}],
                "endpointPickerRef": {"name": "epp", "port": {"number": 9002}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "epp"},
            "spec": {"selector": labels, "ports": [{"name": "grpc", "port": 9002}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "epp"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        },
    ]


def test_nobody_makes_the_gateway(plane: ControlPlane, place: str) -> None:
    code, checks, cause = examined(plane, "-n", place)
    assert (code, cause) == (1, "a controller makes the Gateway")
    assert "no GatewayClass at all" in checks[cause]["evidence"]
    assert checks["the inference definitions are installed"]["verdict"] == "ok"
    assert "0 replicas" in checks["the picker's Pods are ready"]["evidence"]


def test_rights_are_asked_of_the_api_server_for_the_pickers_own_account(plane: ControlPlane, place: str) -> None:
    name = "the picker's account may follow Pods and pools"
    plane.kubectl("create", "role", "r", "-n", place, "--verb=list,watch", "--resource=pods")
    plane.kubectl("create", "rolebinding", "r", "-n", place, "--role=r", f"--serviceaccount={place}:default")
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/args/3", "value": place}]
    plane.kubectl("patch", "deployment", "epp", "-n", place, "--type=json", "-p", json.dumps(patch))
    refused = examined(plane, "-n", place)[1][name]
    assert refused["verdict"] == "failed"
    wanted = f"list inferencepools.inference.networking.k8s.io in {place}; watch inferencepools"
    assert refused["evidence"].startswith(wanted)
    assert "pods" not in refused["evidence"]
    apply(plane, refused["fix"])
    assert wait_until(lambda: examined(plane, "-n", place)[1][name]["verdict"] == "ok")
    lead = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--ha-enable-leader-election"}]
    plane.kubectl("patch", "deployment", "epp", "-n", place, "--type=json", "-p", json.dumps(lead))
    refused = examined(plane, "-n", place)[1][name]
    assert refused["evidence"].startswith(f"create leases.coordination.k8s.io in {place}; get leases")
    apply(plane, refused["fix"])  # which names the lease, as roles of the operator do
    assert wait_until(lambda: examined(plane, "-n", place)[1][name]["verdict"] == "ok")


def apply(plane: ControlPlane, fix: str) -> None:
    """Do what `printf %s … | kubectl apply -f -` does."""
    words = shlex.split(fix)
    assert [*words[:2], *words[3:]] == ["printf", "%s", "|", "kubectl", "apply", "-f", "-"]
    plane.kubectl("apply", "-f", "-", text=words[2])


def test_several_gateways_must_be_told_apart(plane: ControlPlane, place: str) -> None:
    read = json.loads(plane.kubectl("get", "gateway,httproute", "-n", place, "-o", "json"))["items"]
    for one in read:
        one["metadata"] = {"name": f"{one['metadata']['name']}-2", "namespace": place}
        for parent in one["spec"].get("parentRefs", ()):
            parent["name"] = "gw-2"
        plane.kubectl("apply", "-f", "-", text=json.dumps(one))
    code, _, err = run(plane, "doctor", "-n", place, "--probes", "0")
    assert (code, f"{place}/gw, {place}/gw-2" in err, "--gateway NAME" in err) == (2, True, True)
    assert examined(plane, "-n", place, "--gateway", "gw-2")[1]["the Gateway is there"]["evidence"] == f"{place}/gw-2"


def test_what_an_account_may_not_see_is_said_and_not_guessed(plane: ControlPlane, place: str) -> None:
    code, checks, _ = examined(plane, "-n", place, user="visitor")
    assert code == 1
    assert checks["the API server answers"]["verdict"] == "warning"
    assert 'cannot list resource "pods"' in checks["the API server answers"]["evidence"]
    assert checks["the Gateway API is installed"]["verdict"] == "skipped"
    rule = ("create", "role", "look", "-n", place, "--verb=list")
    kinds = f"pods,services,deployments.apps,gateways.{GATEWAY_API},httproutes.{GATEWAY_API},{V1}"
    plane.kubectl(*rule, f"--resource={kinds}")
    plane.kubectl("create", "rolebinding", "look", "-n", place, "--role=look", "--user=visitor")
    wait_until(
        lambda: examined(plane, "-n", place, user="visitor")[1]["a route leads from the Gateway"]["verdict"] == "ok"
    )


def test_a_bundle_has_what_was_seen_and_no_secrets(plane: ControlPlane, place: str, tmp_path: Path) -> None:
    path = tmp_path / "seen.tar.gz"
    assert run(plane, "doctor", "-n", place, "--probes", "0", "--bundle", str(path))[0] == 1
    with tarfile.open(path) as archive:
        files = {one.name: archive.extractfile(one).read().decode() for one in archive.getmembers()}  # type: ignore[union-attr]
    assert {"pointsman-doctor/report.txt", "pointsman-doctor/report.json"} < set(files)
    assert "first cause: a controller makes the Gateway" in files["pointsman-doctor/report.txt"]
    names = [one["metadata"]["name"] for one in json.loads(files["pointsman-doctor/objects/Deployment.json"])]
    assert "epp" in names
    assert not [name for name, text in files.items() if "s3cret" in text]
    code, _, err = run(plane, "doctor", "-n", place, "--probes", "0", "--bundle", str(tmp_path / "no" / "where"))
    assert (code, "cannot be written" in err) == (2, True)


def test_definitions_that_are_replaced_are_what_is_wrong(plane: ControlPlane, place: str) -> None:
    """The inference definitions belong to somebody else, who may be at work on them."""
    name = "the inference definitions are installed"
    hold = json.dumps({"metadata": {"finalizers": ["example.invalid/hold"]}})
    plane.kubectl("patch", "crd", V1, "--type=merge", "-p", hold)
    plane.kubectl("delete", "crd", V1, "--wait=false")
    try:
        found = wait_until(lambda: _failing(plane, place, name))
        assert "is being deleted since" in found["evidence"]
        assert found["fix"].startswith(f"kubectl wait --for=delete crd/{V1}")
    finally:
        plane.kubectl("patch", "crd", V1, "--type=merge", "-p", json.dumps({"metadata": {"finalizers": []}}))
    plane.kubectl("wait", "--for=delete", f"crd/{V1}", f"--timeout={DEFINITION_PATIENCE}s")
    found = wait_until(lambda: _failing(plane, place, name))
    assert (found["evidence"], found["fix"]) == (f"{V1} is missing", "pointsman crds install")
    assert run(plane, "crds", "install", *ONE)[0] == 0
    wait_until(lambda: examined(plane, "-n", place)[1][name]["verdict"] == "ok")


def _failing(plane: ControlPlane, place: str, name: str) -> Document:
    found = examined(plane, "-n", place)[1][name]
    return found if found["verdict"] == "failed" else {}


def test_an_api_server_that_is_away(plane: ControlPlane) -> None:
    path = plane.kubeconfig("admin", server="https://127.0.0.1:1")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = cli._run(["doctor", "--kubeconfig", str(path), "--json"])
    document = json.loads(out.getvalue())
    assert (code, document["firstCause"]) == (1, "the API server answers")
