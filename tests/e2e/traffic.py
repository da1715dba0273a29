"""Requests, from inside the cluster, until told to stop; each answer is held against the pick.

`traffic` runs a Pod of our image. What runs in it is this very file, with nothing but the standard library, so it needs
no way into the cluster's network from outside. It ends when a file appears, and prints what it saw as one line of JSON.
"""

import http.client
import json
import socket
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster

STOP = Path("/tmp/stop")
TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
WORKERS = 5
PAUSE = 0.05  # seconds of a worker between two requests: without, they take every core while Pods start


def request(host: str, method: str, path: str, *, body: str = "", headers: dict[str, str]) -> tuple[int, Any, bytes]:
    """Send one request on a connection of its own."""
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def resolved(host: str) -> str:
    """Return a host with its address, once it has one: lookups that get lost on a busy node are no request's fault."""
    name, _, port = host.rpartition(":")
    while True:
        try:
            return f"{socket.gethostbyname(name)}:{port}"
        except socket.gaierror:
            time.sleep(1)


def picked_for(picker: str, identity: str) -> set[str]:
    """Return the Pods that the picker chose for a request, the second choice after a failed first one included."""
    headers = {"authorization": f"Bearer {TOKEN.read_text()}"}
    _, _, text = request(picker, "GET", f"/debug/decisions?id={identity}", headers=headers)
    return {
        candidate["name"].removesuffix("-rank-0")
        for decision in json.loads(text)["decisions"]
        for candidate in decision["candidates"]
        if candidate["address"] in decision["picked"]
    }


def send(gateway: str, picker: str, *, served: "Counter[str]", wrong: list[str]) -> None:
    """Send one request and note who answered, or what was wrong."""
    identity = str(uuid.uuid4())
    headers = {"content-type": "application/json", "x-request-id": identity}
    body = json.dumps({"model": "random", "prompt": identity, "max_tokens": 8})  # no two alike: none sticks to a Pod
    try:
        status, answer, text = request(gateway, "POST", "/v1/completions", body=body, headers=headers)
    except (OSError, http.client.HTTPException) as error:
        wrong.append(f"{identity}: {error!r}")
        return
    pod = answer.get("x-inference-pod", "")
    if status != 200 or not json.loads(text)["choices"]:
        wrong.append(f"{identity}: {status} {text[:200]!r}")
    elif picker and pod not in (chosen := picked_for(picker, identity)):
        wrong.append(f"{identity}: {pod} answered, {sorted(chosen)} was picked")
    served[pod] += 1


def main(gateway: str, picker: str = "") -> None:
    gateway, picker = resolved(gateway), picker and resolved(picker)
    served: Counter[str] = Counter()
    wrong: list[str] = []

    def work() -> None:
        while not STOP.exists():
            send(gateway, picker, served=served, wrong=wrong)
            time.sleep(PAUSE)

    workers = [threading.Thread(target=work) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(json.dumps({"served": served, "wrong": wrong}))


@contextmanager
def traffic(cluster: "Cluster", namespace: str, *, gateway: str, picker: str = "") -> Iterator[dict[str, Any]]:
    """Send requests while the block runs; what came of them is in the dictionary afterwards.

    Without a picker to ask, who answered is noted and not compared: one that is replaced takes its memory with it.
    """
    metadata = {"name": "traffic", "namespace": namespace}
    container = {
        "name": "traffic",
        "image": cluster.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/venv/bin/python", "/code/traffic.py", gateway, *filter(None, (picker,))],
        "volumeMounts": [{"name": "code", "mountPath": "/code"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    volumes = [{"name": "code", "configMap": {"name": "traffic"}}, {"name": "tmp", "emptyDir": {}}]
    spec = {"containers": [container], "volumes": volumes, "restartPolicy": "Never"}
    code = {"traffic.py": Path(__file__).read_text()}
    rbac = "rbac.authorization.k8s.io"
    reader = f"traffic-{namespace}"
    cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": code},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": reader},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "pointsman-metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    )
    where = ("-n", namespace)
    cluster.kubectl("wait", "pod/traffic", *where, "--for=condition=Ready", "--timeout=60s")
    seen: dict[str, Any] = {}
    yield seen
    cluster.kubectl("exec", "traffic", *where, "--", "touch", str(STOP))
    cluster.kubectl("wait", "pod/traffic", *where, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    seen |= json.loads(cluster.kubectl("logs", "traffic", *where).splitlines()[-1])
    cluster.kubectl("delete", "clusterrolebinding", reader)


if __name__ == "__main__":
    main(*sys.argv[1:])
