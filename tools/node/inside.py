"""The first process of the node, inside its namespaces: start everything in order, then only reap.

Runs as `python -m tools.node.inside` with the places in its environment. When it ends, the kernel ends every process of
the namespace, Pods included. A file `ready` says that Pods can be scheduled and names resolve; a file `failed` says why
not.
"""

import json
import os
import signal
import ssl
import subprocess
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.kube.collector import SELDOM
from tools.kube.pki import API_NAMES, Authority
from tools.node import configs
from tools.node.isolation import enter_mounts, enter_network
from tools.node.places import ADDRESS, API, NODE, SERVICES, Places

SERVER = f"https://{ADDRESS}:6443"
PATIENCE = 180.0
USERS = {
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    "kubelet-client": ("kube-apiserver-kubelet-client", "system:masters"),
}


class Node:
    """The processes of the node."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._began = time.monotonic()
        self.times: dict[str, float] = {}

    def start(self) -> None:
        """Bring the node up, from namespaces to names."""
        enter_mounts(self._places)
        enter_network()
        self._write_files()
        self._spawn("etcd", f"--data-dir={self._places.state / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn")
        self._spawn("containerd", "--config", str(self._places.state / "containerd.toml"))
        images = threading.Thread(target=self._import_images)
        images.start()
        self._start_api()
        self._start_controllers()
        self._start_node()
        self._wait_schedulable()
        images.join()
        self._mark("images")
        self._start_dns()

    def _write_files(self) -> None:
        places = self._places
        authority = Authority(places.pki)
        authority.serve("api", subject="kube-apiserver", hosts=(*API_NAMES, "127.0.0.1", ADDRESS, API))
        authority.serve("kubelet-server", subject=f"system:node:{NODE}", group="system:nodes", hosts=(ADDRESS, NODE))
        authority.sign_tokens()
        for name, (subject, group) in USERS.items():
            authority.identify(name, subject=subject, group=group)
            document = configs.kubeconfig(places, name, server=SERVER)
            places.kubeconfig(name).write_text(json.dumps(document))
        (places.state / "containerd.toml").write_text(configs.containerd(places))
        (places.state / "kubelet.json").write_text(json.dumps(configs.kubelet(places)))
        (places.state / "proxy.json").write_text(json.dumps(configs.kube_proxy(places)))
        (places.state / "pod-resolv.conf").write_text("# no name server beyond the cluster's\n")
        (places.state / "cni").mkdir()
        (places.state / "cni" / "10-pods.conflist").write_text(json.dumps(configs.cni(places)))

    def _start_api(self) -> None:
        pki = self._places.pki
        self._spawn(
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={ADDRESS}",
            f"--tls-cert-file={pki / 'api.crt'}",
            f"--tls-private-key-file={pki / 'api.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki / 'sa.key'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={pki / 'kubelet-client.key'}",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
        )
        self._wait("kube-apiserver", f"{SERVER}/readyz")

    def _start_controllers(self) -> None:
        places = self._places
        common = ("--leader-elect=false", "--bind-address=127.0.0.1")
        self._spawn(
            "kube-controller-manager",
            *common,
            f"--kubeconfig={places.kubeconfig('controllers')}",
            f"--service-account-private-key-file={places.pki / 'sa.key'}",
            f"--root-ca-file={places.pki / 'ca.crt'}",
            "--use-service-account-credentials=true",  # without it the not-ready taint stays for ever
            f"--cert-dir={places.state / 'controllers'}",
            f"--flex-volume-plugin-dir={places.state / 'flex'}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        )
        scheduler = places.kubeconfig("scheduler")
        self._spawn("kube-scheduler", *common, f"--kubeconfig={scheduler}", f"--cert-dir={places.state / 'scheduler'}")

    def _start_node(self) -> None:
        state = self._places.state
        self._until(Path(configs.SOCKET).exists, what="containerd's socket")
        self._spawn(
            "kubelet",
            f"--config={state / 'kubelet.json'}",
            f"--kubeconfig={self._places.kubeconfig('kubelet')}",
            f"--root-dir={state / 'kubelet'}",
            f"--cert-dir={state / 'kubelet-certificates'}",
            f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
        )
        self._spawn("kube-proxy", f"--config={state / 'proxy.json'}")
        self._wait("kubelet", "http://127.0.0.1:10248/healthz")
        self._wait("kube-proxy", "http://127.0.0.1:10256/healthz")

    def _wait_schedulable(self) -> None:
        """Wait for a Ready node without its first taint, and for the account that Pods get."""

        def schedulable() -> bool:
            node = self._kubectl("get", "node", NODE, "-o", "json")
            account = self._kubectl("get", "serviceaccount", "default", "-o", "name")
            if not node or not account:
                return False
            document = json.loads(node)
            ready = {one["type"]: one["status"] for one in document["status"].get("conditions", [])}
            taints = [taint["key"] for taint in document["spec"].get("taints", [])]
            return ready.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints

        self._until(schedulable, what="a node that takes Pods")
        self._mark("schedulable")

    def _start_dns(self) -> None:
        documents = {"apiVersion": "v1", "kind": "List", "items": configs.coredns()}
        self._kubectl("apply", "--server-side", "-f", "-", text=json.dumps(documents), check=True)
        where = ("get", "deployment", "coredns", "-n", "kube-system", "-o", "jsonpath={.status.readyReplicas}")
        self._until(lambda: self._kubectl(*where) == "1", what="CoreDNS")
        self._mark("names")

    def _import_images(self) -> None:
        self._until(Path(configs.SOCKET).exists, what="containerd's socket")
        for archive in sorted((self._places.state / "images").glob("*.tar")):
            command = [self._places.program("ctr"), "-n", "k8s.io", "images", "import", str(archive)]
            self._until(partial(self._quietly, command), what=f"the import of {archive.name}")

    def _quietly(self, command: list[str]) -> bool:
        environment = self._places.environment()
        return subprocess.run(command, capture_output=True, env=environment, check=False).returncode == 0

    def _kubectl(self, *arguments: str, text: str | None = None, check: bool = False) -> str:
        command = [self._places.program("kubectl"), *arguments]
        environment = self._places.environment()
        run = subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)
        if check and run.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {run.stderr}")
        return run.stdout.strip() if run.returncode == 0 else ""

    def _spawn(self, name: str, *flags: str) -> None:
        with (self._places.state / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self._places.program(name), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._places.state,
                env={**self._places.environment(), **SELDOM},
                start_new_session=True,
            )

    def _wait(self, name: str, url: str) -> None:
        context = None
        if url.startswith("https"):
            context = ssl.create_default_context(cafile=self._places.pki / "ca.crt")
            context.load_cert_chain(self._places.pki / "admin.crt", self._places.pki / "admin.key")

        def answers() -> bool:
            try:
                with urllib.request.urlopen(url, context=context, timeout=2) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        self._until(answers, what=name)
        self._mark(name)

    def _until(self, attempt: Callable[[], object], *, what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not attempt():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} exited {process.returncode}:\n{self._tail(name)}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"no {what} after {PATIENCE:.0f} s:\n{self._tail('kubelet')}")
            time.sleep(0.05)

    def _tail(self, name: str) -> str:
        path = self._places.state / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-15:]) if path.exists() else ""

    def _mark(self, name: str) -> None:
        self.times[name] = round(time.monotonic() - self._began, 2)


def main() -> None:
    places = Places(*(Path(os.environ[f"NODE_{name}"]) for name in ("STATE", "KUBE", "BUILT")))
    if os.fork() == 0:
        _bring_up(places)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.2)


def _bring_up(places: Places) -> None:
    node = Node(places)
    try:
        node.start()
        (places.state / "ready").write_text(json.dumps(node.times))
    except BaseException:
        (places.state / "failed").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
