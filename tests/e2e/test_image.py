"""The one image in every role, under every name that resources give it."""

import json
import re
from typing import Any

from tests.e2e.cluster import Cluster
from tests.waiting import wait_until
from tools.node.ours import IMAGE, NAMES, ROOT


def container(image: str, *, name: str = "it", **more: Any) -> dict[str, Any]:
    """Return a container as strict as ours are."""
    security = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return {"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "securityContext": security, **more}


def run(cluster: Cluster, namespace: str, *containers: dict[str, Any]) -> list[str]:
    """Run a Pod with the containers to its end and return what each printed."""
    spec = {"containers": containers, "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "it", "namespace": namespace}, "spec": spec}
    cluster.apply(pod)
    wait_until(lambda: cluster.get("pod", "it", "-n", namespace)["status"]["phase"] in {"Succeeded", "Failed"})
    return [cluster.kubectl("logs", "it", "-n", namespace, "-c", each["name"]) for each in containers]


def test_every_name_is_our_image(cluster: Cluster, named: None, namespace: str) -> None:
    role = [{"name": "POINTSMAN_COMMAND", "value": "sim"}]
    ours = [container(name, name=f"it-{n}", env=role, args=["--help"]) for n, name in enumerate(NAMES)]
    for name, printed in zip(NAMES, run(cluster, namespace, *ours), strict=True):
        assert "--max-num-seqs" in printed, name


def test_the_samples_name_nothing_else() -> None:
    text = "".join(path.read_text() for path in (ROOT / "config" / "samples").glob("*.yaml"))
    assert set(re.findall(r"image: (\S+)", text)) <= set(NAMES)
    assert re.findall(r"image: (\S+)", (ROOT / "config" / "manager" / "manager.yaml").read_text()) == [IMAGE]


def test_a_gateway_finds_envoy_and_what_its_hooks_need(cluster: Cluster, namespace: str) -> None:
    bootstrap = {"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}}
    script = f"sleep 0 && exec /usr/local/bin/envoy --mode validate --config-yaml '{json.dumps(bootstrap)}'"
    (printed,) = run(cluster, namespace, container(cluster.image, command=["bash", "-c", script]))
    assert "OK" in printed
