"""A real control plane on loopback: etcd, kube-apiserver and, where they are at hand, the controllers and
kwok.

Owns the processes and their directory; nothing survives `stop`. Each process can be killed and started again
on its old port, which is what the fault tests do. Two users exist: `admin`, who
may do everything, and `visitor`, who may do what a test grants.
"""

import json
import os
import secrets
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path

import grpc
from tests.cluster.assets import Assets
from tests.ports import fresh_port
from tools.kube.collector import SELDOM
from tools.kube.pki import API_NAMES, Authority

from pointsman.wire.protobuf import encode_field

Call = Callable[..., bytes]
PATIENCE = 90.0  # a start takes 3 to 8 s; a busy machine has needed 58
DEFINITION_PATIENCE = 150
"""Seconds until a definition is deleted: an API server whose cache of the kind is still filling (`storage is
(re)initializing`) looks again after a minute."""


class ControlPlane:
    """The processes of one cluster."""

    def __init__(self, assets: Assets, directory: Path) -> None:
        self.assets = assets
        self.directory = directory
        names = ("etcd", "peer", "api", "controllers", "scheduler", "kwok")
        self.ports = {name: fresh_port() for name in names}
        self.tokens = {user: secrets.token_hex(16) for user in ("admin", "visitor")}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._guard: subprocess.Popen[bytes] | None = None
        # Probes only: the controllers sign their own certificates.
        self._context = ssl._create_unverified_context()

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports['api']}"

    @property
    def etcd(self) -> str:
        return f"http://127.0.0.1:{self.ports['etcd']}"

    @property
    def complete(self) -> bool:
        """Tell whether there are controllers, a scheduler and Pods."""
        return all(
            self.assets.find(name) for name in ("kube-controller-manager", "kube-scheduler", "kwok", "kwok.yaml")
        )

    def start(self) -> None:
        """Start everything and wait until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        authority = Authority(self.directory)
        authority.serve("api", subject="kube-apiserver", hosts=(*API_NAMES, "127.0.0.1", "10.96.0.1"))
        authority.sign_tokens()
        groups = {"admin": '"system:masters"', "visitor": ""}
        lines = [f"{token},{user},{user},{groups[user]}" for user, token in self.tokens.items()]
        tokens = self.directory / "tokens.csv"
        tokens.write_text("\n".join(lines) + "\n")
        tokens.chmod(0o600)
        self.kubeconfig("admin")
        self.start_etcd()
        self.start_api()
        if self.complete:
            self._start_controllers()

    def start_etcd(self) -> None:
        """Start etcd on its old port and data."""
        peer = f"http://127.0.0.1:{self.ports['peer']}"
        self._spawn(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={self.etcd}",
            f"--advertise-client-urls={self.etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._wait("etcd", f"{self.etcd}/health")

    def start_api(self) -> None:
        """Start the API server on its old port."""
        at = self.directory
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers={self.etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.ports['api']}",
            "--endpoint-reconciler-type=none",  # loopback cannot be an endpoint
            f"--tls-cert-file={at / 'api.crt'}",
            f"--tls-private-key-file={at / 'api.key'}",
            f"--token-auth-file={at / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={at / 'sa.key'}",
            f"--service-account-signing-key-file={at / 'sa.key'}",
            "--allow-privileged=true",
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
            "--enable-priority-and-fairness=false",
        )
        self._wait("kube-apiserver", f"{self.server}/readyz")

    def kill(self, name: str) -> None:
        """Kill one process outright, as a crash would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        self._record()

    def pause(self, name: str) -> None:
        """Stop a process without ending it: its connections stay open and silent."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a paused process go on."""
        self._processes[name].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End every process, the last started first."""
        for process in reversed(self._processes.values()):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self._record()
        if self._guard is not None:
            self._guard.communicate()

    def kubeconfig(self, user: str, *, server: str = "") -> Path:
        """Write and return a kubeconfig of a user, for another address if one is given."""
        cluster = {"server": server} if server else {"server": self.server, "certificate-authority": "ca.crt"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "default"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
        }
        path = self.directory / f"{user}{'-' + server.rpartition(':')[2] if server else ''}.kubeconfig"
        path.write_text(json.dumps(document))
        path.chmod(0o600)
        return path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of kubectl: its cache in the home knows an earlier plane by this address."""
        return {**os.environ, "KUBECACHEDIR": str(self.directory / "kubectl")}

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl as admin and return what it prints."""
        program = self.assets.directory / "kubectl"
        command = [str(program), "--kubeconfig", str(self.kubeconfig("admin")), *arguments]
        run = subprocess.run(
            command, input=text, env=self.environment, capture_output=True, text=True, timeout=170, check=False
        )
        if run.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {run.stderr.strip()}")
        return run.stdout

    def compact(self) -> None:
        """Make etcd forget all but the present, so that no watch can start in the past."""
        status = self._post("/v3/maintenance/status", {})
        self._post("/v3/kv/compaction", {"revision": status["header"]["revision"], "physical": True})

    def seed(self, objects: Iterable[tuple[str, dict[str, object]]]) -> None:
        """Put objects straight into etcd under their registry paths: ten thousand in seconds instead of a minute.

        The API server reads, caches and serves them like any other; only admission has not seen them. One request each:
        objects of one transaction would share a version, which never happens in a cluster.
        """
        puts = ((f"/registry/{path}", json.dumps(document)) for path, document in objects)
        self._etcd_each("Put", puts)

    def unseed(self, paths: Iterable[str]) -> None:
        """Delete what was seeded."""
        self._etcd_each("DeleteRange", ((f"/registry/{path}",) for path in paths))

    def _etcd_each(self, method: str, requests: Iterable[tuple[str, ...]]) -> None:
        """Call etcd once for each: its JSON costs a machine a quarter more."""
        with grpc.insecure_channel(f"127.0.0.1:{self.ports['etcd']}") as channel:
            call: Call = channel.unary_unary(f"/etcdserverpb.KV/{method}")
            for texts in requests:
                call(b"".join(encode_field(at, text.encode()) for at, text in enumerate(texts, start=1)), timeout=30)

    def _start_controllers(self) -> None:
        at, config = self.directory, self.kubeconfig("admin")
        common = (f"--kubeconfig={config}", "--leader-elect=false", "--bind-address=127.0.0.1")
        self._spawn(
            "kube-controller-manager",
            *common,
            f"--secure-port={self.ports['controllers']}",
            f"--cert-dir={at / 'controllers'}",
            f"--service-account-private-key-file={at / 'sa.key'}",
            f"--root-ca-file={at / 'ca.crt'}",
            f"--flex-volume-plugin-dir={at / 'flex'}",  # the default is a directory of the host
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        )
        self._spawn(
            "kube-scheduler",
            *common,
            f"--secure-port={self.ports['scheduler']}",
            f"--cert-dir={at / 'scheduler'}",
        )
        self._spawn(
            "kwok",
            f"--config={self.assets.directory / 'kwok.yaml'}",
            f"--kubeconfig={config}",
            "--manage-all-nodes=true",
            "--cidr=10.244.0.0/16",
            "--node-ip=10.0.0.1",
            f"--server-address=127.0.0.1:{self.ports['kwok']}",
            "--node-lease-duration-seconds=40",
        )
        self._wait("kube-controller-manager", f"https://127.0.0.1:{self.ports['controllers']}/healthz")
        self._wait("kube-scheduler", f"https://127.0.0.1:{self.ports['scheduler']}/healthz")
        self._wait("kwok", f"http://127.0.0.1:{self.ports['kwok']}/healthz")
        self.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(_NODE))

    def _spawn(self, name: str, *flags: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self.assets.directory / name, *flags],
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                env={"HOME": str(self.directory), "PATH": os.environ.get("PATH", ""), **SELDOM},
            )

        if self._guard is None:
            # Ends the processes when ours ends without `stop`, killed or not: the pipe closes either way.
            script = "read line; kill -9 $(cat pids) 2>/dev/null"
            self._guard = subprocess.Popen(
                ["sh", "-c", script], stdin=subprocess.PIPE, cwd=self.directory, start_new_session=True
            )
        self._record()

    def _record(self) -> None:
        pids = [str(process.pid) for process in self._processes.values()]
        (self.directory / "pids").write_text(" ".join(pids))

    def _wait(self, name: str, url: str) -> None:
        deadline = time.monotonic() + PATIENCE
        request = urllib.request.Request(url, headers={"authorization": f"Bearer {self.tokens['admin']}"})
        while True:
            code = self._processes[name].poll()
            if code is not None:
                raise AssertionError(f"{name} exited {code}:\n{_tail(self.directory / f'{name}.log')}")
            try:
                with urllib.request.urlopen(request, timeout=2, context=self._context):
                    return
            except OSError as error:
                if time.monotonic() > deadline:
                    log = _tail(self.directory / f"{name}.log")
                    raise AssertionError(f"{name} not ready after {PATIENCE} s: {error}\n{log}") from None
            time.sleep(0.05)

    def _post(self, path: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(f"{self.etcd}{path}", data=json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            document: dict[str, dict[str, str]] = json.load(answer)
        return document


_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "node-0",
        "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
        "labels": {
            "type": "kwok",
            "kubernetes.io/hostname": "node-0",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        },
    },
    "status": {
        "allocatable": {"cpu": "500", "memory": "8Ti", "pods": "10000"},
        "capacity": {"cpu": "500", "memory": "8Ti", "pods": "10000"},
    },
}


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-15:])
