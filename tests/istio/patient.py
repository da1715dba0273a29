"""A patient for the doctor: Istio's own way to a pool in another namespace, with real simulators and a real picker.

kwok's Pods are posed by processes at their addresses. Things are broken and repaired with kubectl, as people do it.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.istio.mesh import Mesh, fetch
from tests.waiting import wait_until

from pointsman.doctor.cluster.chain import examine
from pointsman.doctor.cluster.facts import Focus
from pointsman.doctor.findings import Finding, first_cause
from pointsman.doctor.gather.cluster import Gathered, Wish, gather
from pointsman.doctor.gather.reach import Reach
from pointsman.kube import connect

Document = dict[str, Any]
HOME, POOLS = "default", "doctor-sim"
GATEWAY = "infra-inference-scheduling-inference-gateway"
PORT, ADMIN = 28_890, 29_903
GRPC = {"name": "grpc-ext-proc", "port": 9002, "targetPort": 9002, "appProtocol": "http2"}
PICKER = [
    *("--pool-name", "pool", "--pool-namespace", POOLS, "--pool-group", "inference.networking.k8s.io"),
    *("--secure-serving=false", "--metrics-endpoint-auth=false"),
]


def deployment(name: str, labels: Document, *, replicas: int, namespace: str = POOLS, **spec: Any) -> Document:
    """Return a Deployment whose Pods are posed."""
    ports = [{"name": key, "containerPort": number} for key, number in spec.pop("ports").items()]
    container = {"name": "c", "image": "example.invalid/none:1", "ports": ports, "args": spec.pop("args", [])}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def service_of(name: str, selector: Document, port: Document, *, namespace: str = POOLS) -> Document:
    """Return a Service with one port."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector, "ports": [port]},
    }


def service() -> Document:
    """Return the picker's Service."""
    return service_of("epp", {"app": "epp"}, GRPC)


def route() -> Document:
    """Return the route to the pool."""
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "pool", "namespace": POOLS}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "llm", "namespace": HOME},
        "spec": {
            "parentRefs": [{"name": GATEWAY}],
            "hostnames": ["llm.example"],
            "rules": [{"backendRefs": [pool]}],
        },
    }


def objects() -> list[Document]:
    """Return everything but the namespace."""
    rbac = "rbac.authorization.k8s.io"
    follow = ["list", "watch"]
    inference = ("inference.networking.k8s.io", "inference.networking.x-k8s.io", "llm-d.ai")
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": follow}]
    rules += [{"apiGroups": [group], "resources": ["*"], "verbs": follow} for group in inference]
    where = {"name": "epp", "namespace": POOLS}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": where},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": where, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": where,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "epp"},
            "subjects": [{"kind": "ServiceAccount", "name": "epp", "namespace": POOLS}],
        },
        deployment("sim", {"app": "sim"}, replicas=3, ports={"http": 8200}),
        service_of("sim", {"app": "sim"}, {"name": "http", "port": 8200}),
        deployment("epp", {"app": "epp"}, replicas=1, ports={"grpc": 9002}, args=PICKER, serviceAccountName="epp"),
        service(),
        pool("pool", {"app": "sim"}, picker="epp"),
        gateway(GATEWAY, port=PORT),
        route(),
        grant(),
    ]


def pool(name: str, labels: Document, *, picker: str, namespace: str = POOLS) -> Document:
    """Return a pool of simulators."""
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "targetPorts": [{"number": 8200}],
            "endpointPickerRef": {"name": picker, "port": {"number": 9002}},
        },
    }


def gateway(name: str, *, port: int, namespace: str = HOME) -> Document:
    """Return a Gateway of Istio's."""
    annotations = {"networking.istio.io/service-type": "ClusterIP"}
    listener = {"name": "http", "port": port, "protocol": "HTTP"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"gatewayClassName": "istio", "listeners": [listener]},
    }


def grant() -> Document:
    """Return what lets the route refer to the pool."""
    api = "gateway.networking.k8s.io"
    return {
        "apiVersion": f"{api}/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": {"name": "from-scheduler", "namespace": POOLS},
        "spec": {
            "from": [{"group": api, "kind": "HTTPRoute", "namespace": HOME}],
            "to": [
                {"group": "inference.networking.k8s.io", "kind": "InferencePool"},
                {"group": "", "kind": "Service"},
            ],
        },
    }


class Patient:
    """The objects, the processes behind them, and the doctor in front of them."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._posing: list[subprocess.Popen[bytes]] = []

    def admit(self) -> None:
        """Make everything and wait until the doctor finds nothing."""
        self.mesh.plane.kubectl("create", "namespace", POOLS)
        self.mesh.apply(*objects())
        for pod in wait_until(lambda: self._pods("app=sim", 3)):
            name, address = pod["metadata"]["name"], pod["status"]["podIP"]
            flags = ("--model", "random", "--port", "8200", "--host", address)
            environment = {**os.environ, "POD_NAME": name, "POD_IP": address}
            self._posing.append(self.mesh.spawn(name, _ours("sim", *flags), environment))
        self.start_picker()
        self.mesh.plane.kubectl("wait", "--for=condition=Programmed", f"gateway/{GATEWAY}", "--timeout=60s")
        self.mesh.pose(GATEWAY, admin_port=ADMIN)
        self.recovers()

    def start_picker(self, *flags: str) -> None:
        """Run the picker at its Pod's address."""
        (pod,) = wait_until(lambda: self._pods("app=epp", 1))
        address = str(pod["status"]["podIP"])
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.mesh.plane.kubeconfig("admin")),
            "NAMESPACE": POOLS,
            "POD_NAME": pod["metadata"]["name"],
        }
        command = _ours("epp", *PICKER, *flags, "--host", address)
        self._posing.append(self.mesh.spawn("doctor-picker", command, environment))
        wait_until(lambda: fetch(f"http://{address}:9090/healthz")[0] == 200)

    def stop_picker(self) -> None:
        """Let the picker die; its Pod stays ready, as kwok's do."""
        process = self._posing.pop()
        process.kill()
        process.wait()

    def hang_picker(self) -> Callable[[], None]:
        """Stop the picker in the middle of whatever it does; return what lets it go on."""
        process = self._posing[-1]
        process.send_signal(signal.SIGSTOP)
        return lambda: process.send_signal(signal.SIGCONT)

    def start_without_alpn(self, folder: Path) -> None:
        """Let a server of TLS that settles on no protocol pose as the picker."""
        (pod,) = wait_until(lambda: self._pods("app=epp", 1))
        address = str(pod["status"]["podIP"])
        command = [sys.executable, "-c", _WITHOUT_ALPN, address, str(folder)]
        self._posing.append(self.mesh.spawn("doctor-picker", command, dict(os.environ)))
        wait_until(lambda: _is_open(address, 9002))

    def discharge(self) -> None:
        """Take everything away; kwok gives the addresses to the next Pods, so nobody may stay there."""
        for process in self._posing:
            process.kill()
            process.wait()
        self.mesh.plane.kubectl("delete", "gateway", GATEWAY, "-n", HOME)
        self.mesh.plane.kubectl("delete", "httproute", "llm", "-n", HOME)
        self.mesh.plane.kubectl("delete", "namespace", POOLS, "--wait=false")

    async def _look(self, reader: str) -> Gathered:
        focus = Focus(namespace=HOME, gateway=GATEWAY)
        wish = Wish(focus=focus, envoy=f"http://127.0.0.1:{ADMIN}", reader=reader)
        async with connect(self.mesh.plane.kubeconfig("admin")) as client, Reach(()) as reach:
            return await gather(client, reach, wish, now=lambda: datetime.now(UTC), nonce=os.urandom(4).hex())

    def findings(self, *, reader: str = "") -> list[Finding]:
        """Return what the doctor says."""
        return examine(asyncio.run(self._look(reader)).cluster)

    def suffers(self, check: str, *, evidence: str = "") -> Finding:
        """Wait until a check is the first cause; istiod and Envoy need a moment for every change."""
        seen: list[Finding | None] = []

        def named() -> Finding | None:
            cause = first_cause(self.findings())
            seen[:] = [cause]
            return cause if cause and cause.check == check and evidence in cause.evidence else None

        try:
            found = wait_until(named)
        except AssertionError:
            raise AssertionError(f"the first cause is {seen}") from None
        assert found is not None
        return found

    def recovers(self) -> None:
        """Wait until the doctor finds nothing, neither failures nor warnings."""
        seen: list[Finding | None] = []

        def well() -> bool:
            seen[:] = [first_cause(self.findings())]
            return seen == [None]

        try:
            wait_until(well)
        except AssertionError:
            raise AssertionError(f"still: {seen}") from None

    def next_cause(self, *, after: Finding) -> Finding | None:
        """Wait until a cause is gone, and return the next one, if there is one."""
        found: list[Finding | None] = []

        def another() -> bool:
            found[:] = [first_cause(self.findings())]
            return found[0] is None or found[0].check != after.check

        wait_until(another)
        return found[0]

    def take(self, fix: str) -> None:
        """Run a fix as a person would who copies it."""
        tools = self.mesh.plane.assets.directory
        environment: Mapping[str, str] = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.mesh.plane.kubeconfig("admin")),
        }
        run = subprocess.run(
            ["sh", "-c", fix], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert run.returncode == 0, f"{fix}: {run.stderr}"

    def patch(self, kind: str, name: str, body: object, *, namespace: str, how: str = "merge") -> None:
        """Change an object."""
        self.mesh.plane.kubectl("patch", kind, name, "-n", namespace, f"--type={how}", "-p", json.dumps(body))

    def _pods(self, selector: str, count: int) -> list[Document]:
        listed = self.mesh.plane.kubectl("get", "pods", "-n", POOLS, "-l", selector, "-o", "json")
        found = [pod for pod in json.loads(listed)["items"] if pod["status"].get("podIP")]
        return found if len(found) == count else []


_WITHOUT_ALPN = """
import asyncio, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{sys.argv[2]}/tls.crt", f"{sys.argv[2]}/tls.key")
async def silent(reader, writer):
    await reader.read()
async def serve():
    server = await asyncio.start_server(silent, sys.argv[1], 9002, ssl=context)
    await server.serve_forever()
asyncio.run(serve())
"""


def _is_open(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False


def _ours(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pointsman", *arguments]
