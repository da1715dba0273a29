"""istiod on a real control plane, and an Envoy that poses as the Pod of a Gateway. Only inside the namespace.

Upstream Envoy lacks Istio's own filters, so the features that need them are off: metadata exchange, the ALPN filter,
Istio's telemetry and automatic mutual TLS. Everything else is what istiod sends to any gateway.
"""

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, TypeVar

import yaml
from tests.cluster.controlplane import ControlPlane
from tests.waiting import wait_until

T = TypeVar("T")
XDS_PORT = 25010
READY_PORT = 28080
ADMIN_PORT = 29901
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(url: str, *, host: str = "") -> tuple[int, dict[str, str], str]:
    """Return status, headers (names in lower case) and body of a GET, whatever the status."""
    request = urllib.request.Request(url, headers={"host": host} if host else {})
    try:
        answer = _DIRECT.open(request, timeout=3)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status, headers, answer.read().decode()


class Mesh:
    """istiod and the Envoys that it programs."""

    def __init__(self, plane: ControlPlane, *, istio: Path, envoy: Path, directory: Path) -> None:
        self.plane = plane
        self._istio = istio
        self._envoy = envoy
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._istiod: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Install Istio's CRDs and configuration and start istiod."""
        self.plane.kubectl("apply", "--server-side", "-f", str(self._istio / "crds"))
        self.plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        self.plane.kubectl("create", "namespace", "istio-system")
        self.plane.kubectl("apply", "--server-side", "-f", "-", text=self._configuration())
        self.start_istiod()

    def start_istiod(self, *, pools: bool = True) -> None:
        """Start istiod, or start it again; it knows InferencePools when `pools` says so."""
        if self._istiod is not None:
            self._istiod.terminate()
            self._istiod.wait(30)
        self._istiod = self.spawn(
            "istiod",
            [
                str(self._istio / "pilot-discovery"),
                "discovery",
                f"--kubeconfig={self.plane.kubeconfig('admin')}",
                "--namespace=istio-system",
                f"--httpAddr=127.0.0.1:{READY_PORT}",
                "--httpsAddr=127.0.0.1:25017",
                f"--grpcAddr=127.0.0.1:{XDS_PORT}",
                "--secureGRPCAddr=127.0.0.1:25012",
                "--monitoringAddr=127.0.0.1:25014",
                "--ctrlz_address=127.0.0.1",
            ],
            {
                "POD_NAME": "istiod-local",
                "POD_NAMESPACE": "istio-system",
                "SERVICE_ACCOUNT": "istiod",
                "REVISION": "default",
                "CLUSTER_ID": "Kubernetes",
                "PILOT_CERT_PROVIDER": "istiod",
                "ISTIOD_CUSTOM_HOST": "localhost",
                "VALIDATION_WEBHOOK_CONFIG_NAME": "",
                "INJECTION_WEBHOOK_CONFIG_NAME": "",
                "PILOT_ENABLE_METADATA_EXCHANGE": "false",
                "PILOT_ENABLE_ALPN_FILTER": "false",
                "PILOT_ENABLE_GATEWAY_API": "true",
                "ENABLE_GATEWAY_API_INFERENCE_EXTENSION": str(pools).lower(),
            },
        )
        wait_until(lambda: fetch(f"http://127.0.0.1:{READY_PORT}/ready")[0] == 200, within=90)

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply documents."""
        self.plane.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(documents))

    def pods(self, selector: str, *, namespace: str = "default") -> list[dict[str, Any]]:
        """Return the Pods of a namespace that have an address."""
        found = json.loads(self.plane.kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json"))["items"]
        return [pod for pod in found if pod["status"].get("podIP")]

    def pose(self, gateway: str, *, admin_port: int = ADMIN_PORT, namespace: str = "default") -> None:
        """Start an Envoy in the place of the Gateway's first Pod."""
        selector = f"gateway.networking.k8s.io/gateway-name={gateway}"
        pod, *_ = wait_until(lambda: self.pods(selector, namespace=namespace))
        path = self._directory / f"{namespace}-{gateway}.json"
        path.write_text(json.dumps(bootstrap(pod, workload=f"{gateway}-istio", admin_port=admin_port)))
        self.spawn("envoy", [str(self._envoy), "-c", str(path), "--concurrency", "1", "--use-dynamic-base-id"], {})

    def stop(self) -> None:
        """End what was started, the last first."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _configuration(self) -> str:
        templates = ("istiod-injector-configmap", "configmap", "configmap-values")
        command = [
            str(self.plane.assets.directory / "helm"),
            "template",
            "istiod",
            str(self._istio / "chart"),
            "--namespace=istio-system",
            "--set=telemetry.enabled=false",
            "--set=meshConfig.enableAutoMtls=false",
            *(f"--show-only=templates/{name}.yaml" for name in templates),
        ]
        environment = {**os.environ, "HOME": str(self._directory)}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=60).stdout

    def spawn(self, name: str, command: list[str], extra: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a process that ends with the mesh; what it says is in a file of its name."""
        with (self._directory / f"{name}.log").open("ab") as log:
            environment = {"HOME": str(self._directory), "PATH": os.environ["PATH"], **extra}
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._directory, env=environment
            )
        self._processes.append(process)
        return process


def bootstrap(pod: dict[str, Any], *, workload: str, admin_port: int) -> dict[str, Any]:
    """Return the bootstrap with which an Envoy asks istiod for the configuration of this Pod."""
    address, metadata = pod["status"]["podIP"], pod["metadata"]
    namespace = metadata["namespace"]
    ads = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
    options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    endpoint = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": XDS_PORT}}}
    xds = {
        "name": "xds-grpc",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            options: {
                "@type": f"type.googleapis.com/{options}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {"cluster_name": "xds-grpc", "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
    }
    return {
        "node": {
            "id": f"router~{address}~{metadata['name']}.{namespace}~{namespace}.svc.cluster.local",
            "cluster": f"{workload}.{namespace}",
            "metadata": {
                "NAMESPACE": namespace,
                "NAME": metadata["name"],
                "CLUSTER_ID": "Kubernetes",
                "WORKLOAD_NAME": workload,
                "SERVICE_ACCOUNT": pod["spec"]["serviceAccountName"],
                "LABELS": metadata["labels"],
                "INSTANCE_IPS": address,
                "MESH_ID": "cluster.local",
                "ISTIO_VERSION": "1.31.0",
                "INTERCEPTION_MODE": "NONE",
            },
        },
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin_port}}},
        "dynamic_resources": {
            "lds_config": ads,
            "cds_config": ads,
            "ads_config": {
                "api_type": "GRPC",
                "set_node_on_first_message_only": True,
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
            },
        },
        "static_resources": {"clusters": [xds]},
    }
