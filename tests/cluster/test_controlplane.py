"""The control plane is a whole one: controllers, scheduler, Pods and endpoints, and Helm on top."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.cluster.controlplane import ControlPlane
from tests.waiting import eventually

from pointsman.kube import Client, Key, Kind, Object

DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
SERVICE = Kind("", "v1", "Service", "services")


@pytest.fixture(autouse=True)
def whole(plane: ControlPlane) -> None:
    if not plane.complete:
        pytest.skip(f"{plane.assets.origin} has no controllers, scheduler and kwok: tools/kube/build makes them")


def deployment(namespace: str) -> Object:
    container = {"name": "c", "image": "example.invalid/none:1", "ports": [{"containerPort": 80}]}
    return {
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }


async def test_a_deployment_rolls_out_and_its_service_has_endpoints(client: Client, namespace: str) -> None:
    service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    await client.create(SERVICE, {"metadata": {"name": "web", "namespace": namespace}, "spec": service})
    await client.create(DEPLOYMENT, deployment(namespace))

    async def ready() -> None:
        found = await client.get(DEPLOYMENT, Key(namespace, "web"))
        assert found["status"].get("readyReplicas") == 3
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        (slice_,) = json.loads(await client.request("GET", path))["items"]
        assert len([one for one in slice_["endpoints"] or () if one["conditions"]["ready"]]) == 3

    await eventually(ready)


def test_helm_installs_and_uninstalls(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 0.1.0\n")
    (chart / "templates" / "map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: small}\ndata: {who: {{ .Release.Name }}}\n"
    )
    program, config = str(plane.assets.directory / "helm"), str(plane.kubeconfig("admin"))
    base = [program, "--kubeconfig", config, "-n", namespace]
    environment = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run([*base, "install", "it", chart], check=True, capture_output=True, env=environment, timeout=60)
    assert plane.kubectl("get", "cm", "small", "-n", namespace, "-o", "jsonpath={.data.who}") == "it"
    subprocess.run([*base, "uninstall", "it"], check=True, capture_output=True, env=environment, timeout=60)
    assert plane.kubectl("get", "cm", "-n", namespace, "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name") == ""
