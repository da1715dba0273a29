"""Two pools behind one Gateway of real Istio: the model in the body decides, as the how-to page sets it up.

The router is applied from the page and posed with the flags that it says there; so are simulators and pickers. Which
Pod answered is the proof.
"""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.istio.inside.conftest import ROOT, ours
from tests.istio.mesh import Mesh, fetch
from tests.istio.patient import GRPC, deployment, gateway, pool, service_of
from tests.waiting import wait_until

WHERE = GATEWAY = "models"
MODELS = ("llama", "qwen")
PORT, ADMIN = 28_893, 29_905
PAGE = ROOT / "docs" / "how-to" / "route-by-model.md"
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def page() -> list[dict[str, Any]]:
    """Return the objects of the page."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return list(yaml.safe_load_all(block))


def of_model(model: str) -> list[dict[str, Any]]:
    here: dict[str, Any] = {"namespace": WHERE}
    simulators, picker = {"app": model}, f"{model}-epp"
    return [
        deployment(model, simulators, replicas=2, ports={"http": 8200}, **here),
        deployment(picker, {"app": picker}, replicas=1, ports={"grpc": 9002}, **here),
        service_of(picker, {"app": picker}, GRPC, **here),
        pool(model, simulators, picker=picker, **here),
    ]


class Posing:
    """The processes behind Pods."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {**os.environ, "KUBECONFIG": str(mesh.plane.kubeconfig("admin")), "NAMESPACE": WHERE}

    def pods(self, app: str, count: int) -> list[dict[str, Any]]:
        return wait_until(lambda: [p for p in [self._mesh.pods(f"app={app}", namespace=WHERE)] if len(p) == count])[0]

    def pose(self, pod: dict[str, Any], *command: str) -> str:
        name, address = pod["metadata"]["name"], str(pod["status"]["podIP"])
        environment = {**self._environment, "POD_NAME": name, "POD_IP": address}
        self._processes.append(self._mesh.spawn(name, ours(*command, "--host", address), environment))
        return address

    def end(self) -> None:
        """End all: kwok gives their addresses to the next Pods."""
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def pods(mesh: Mesh) -> Iterator[dict[str, set[str]]]:
    """Everything at work; yields the names of each model's Pods."""
    posing = Posing(mesh)
    mesh.plane.kubectl("create", "namespace", WHERE)
    try:
        documents = [each for model in MODELS for each in of_model(model)]
        mesh.apply(gateway(GATEWAY, port=PORT, namespace=WHERE), *documents, *page())
        waiting = []
        for model in MODELS:
            flags = ("--pool-name", model, "--pool-namespace", WHERE, "--pool-group", "inference.networking.k8s.io")
            plain = ("--secure-serving=false", "--metrics-endpoint-auth=false")
            waiting.append(posing.pose(posing.pods(f"{model}-epp", 1)[0], "epp", *flags, *plain))
            for pod in posing.pods(model, 2):
                posing.pose(pod, "sim", "--model", model, "--port", "8200")
        (router,) = posing.pods("body-based-router", 1)
        waiting.append(posing.pose(router, "bbr", *router["spec"]["containers"][0]["args"]))
        for address in waiting:
            wait_until(lambda where=address: fetch(f"http://{where}:9090/healthz")[0] == 200)  # type: ignore[misc]
        mesh.plane.kubectl("-n", WHERE, "wait", "--for=condition=Programmed", f"gateway/{GATEWAY}", "--timeout=60s")
        mesh.pose(GATEWAY, admin_port=ADMIN, namespace=WHERE)
        yield {model: {pod["metadata"]["name"] for pod in posing.pods(model, 2)} for model in MODELS}
    finally:
        posing.end()
        mesh.plane.kubectl("delete", "namespace", WHERE, "--wait=false")


def send(model: str, *, size: int = 10, claims: str = "") -> tuple[int, str]:
    """Send a prompt with the model behind it; return the status and the Pod that answered."""
    body = json.dumps({"prompt": "x" * size, "max_tokens": 1, "model": model}).encode()
    headers = {"content-type": "application/json"} | ({"x-gateway-model-name": claims} if claims else {})
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", data=body, headers=headers)
    try:
        answer = _DIRECT.open(request, timeout=20)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        answer.read()
        return answer.status, str(answer.headers["x-inference-pod"])


def test_the_model_in_the_body_decides_whose_pod_answers(pods: dict[str, set[str]]) -> None:
    for model in MODELS:
        wait_until(lambda model=model: send(model)[0] == 200, despite=(OSError,))  # type: ignore[misc]
    for size in (10, 3000):
        for _ in range(3):
            for model in MODELS:
                status, pod = send(model, size=size)
                assert (status, pod in pods[model]) == (200, True), (model, pod, pods)
    assert send("nobody")[0] == 404, "no route is for it"
    forged = send("qwen", claims="llama")
    assert forged[0] == 200 and forged[1] in pods["qwen"], "the body decides, not the client's header"
