"""Istio and the Gateway API Inference Extension's conformance suite on the node of `make e2e`.

Istio is what its own chart installs: istiod, and for each Gateway a Deployment of its agent with an Envoy. Both are
from Go modules, in images that are written here; the Envoy is upstream's and lacks Istio's own filters, so the features
that need them are off, as in tests/istio. The suite is `tools/conformance`; its manifests name an echo server, which is
built from the module that the suite comes with, and a picker, which is our image under that name.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.cluster import ROOT, Cluster
from tests.istio import assets as istio
from tools.node.image import Layer, write_image

from pointsman.local import envoy

HUB, TAG = "localhost/istio", "e2e"
ISTIO = "istio-system"
APPS, INFRA = "inference-conformance-app-backend", "inference-conformance-infra"
BASE = "resources/base.yaml"
WITHOUT_NAMESPACE = (
    "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings,"
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies"
)
VERDICT = re.compile(r"^ {4}--- (PASS|FAIL|SKIP): TestConformance/(\w+) ", flags=re.MULTILINE)
# Upstream's Envoy has none of Istio's filters; a Gateway's address is one that the node routes, without a cloud.
VALUES = {
    "autoscaleEnabled": False,
    "env": {
        "ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true",
        "PILOT_ENABLE_METADATA_EXCHANGE": "false",
        "PILOT_ENABLE_ALPN_FILTER": "false",
    },
    "gatewayClasses": {"istio": {"service": {"spec": {"type": "ClusterIP"}}}},
    "global": {"hub": HUB, "tag": TAG, "imagePullPolicy": "Never"},
    "meshConfig": {"enableAutoMtls": False},
    "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
    "telemetry": {"enabled": False},
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the suite said of each of its tests, its own report, and all that it printed."""

    verdicts: dict[str, str]
    report: dict[str, Any]
    printed: str

    def said(self, verdict: str) -> set[str]:
        """Return the tests with a verdict: PASS, FAIL or SKIP."""
        return {name for name, said in self.verdicts.items() if said == verdict}


@dataclass(frozen=True, slots=True)
class Parts:
    """Where things are: what the build scripts made, Envoy, and a place for our own files."""

    suite: Path
    istio: Path
    envoy: Path
    scratch: Path

    @classmethod
    def find(cls, scratch: Path) -> "Parts":
        """Return the parts; builds what is missing."""
        control = istio.find()  # first: the suite's build takes from Go's cache what this one compiled
        command = [ROOT / "tools" / "conformance" / "build"]
        suite = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        return cls(Path(suite), control, envoy.find(os.environ, say=print), scratch)

    @property
    def base(self) -> list[dict[str, Any]]:
        """What the suite installs before its tests."""
        return list(yaml.safe_load_all((self.suite / "manifests" / BASE).read_text()))


@contextmanager
def installed(cluster: Cluster, parts: Parts) -> Iterator[None]:
    """Have Istio and the suite's images on the node for a while; nothing of them or of the suite stays."""
    before = cluster.kubectl("get", WITHOUT_NAMESPACE, "-o", "name").split()
    _load_images(cluster, parts)
    values = parts.scratch / "values.json"
    values.write_text(json.dumps(VALUES))
    definitions = f"-f {parts.suite}/crds -f {parts.istio}/crds/istio.yaml"
    try:
        cluster.bash(f"""
            kubectl apply --server-side {definitions}
            kubectl wait --for=condition=Established crd --all --timeout=60s
            helm install istiod {parts.istio}/chart -n {ISTIO} --create-namespace -f {values} --wait --timeout=300s
            kubectl create namespace {APPS}
        """)
        cluster.apply(*_tls_to_pickers(parts))
        yield
    finally:
        cluster.bash(f"""
            helm uninstall istiod -n {ISTIO} --ignore-not-found
            for namespace in {APPS} {INFRA} {ISTIO}; do
              kubectl delete deployment,pod --all -n $namespace --force --grace-period=0 2>/dev/null
            done
            kubectl delete namespace {APPS} {INFRA} {ISTIO} --ignore-not-found --timeout=180s
            kubectl delete configmap -A --field-selector metadata.name=istio-ca-root-cert
            kubectl delete {definitions} --ignore-not-found --timeout=180s
        """)
    left = set(cluster.kubectl("get", WITHOUT_NAMESPACE, "-o", "name").split()) - set(before)
    assert not left, f"the conformance suite or Istio left {sorted(left)}"


def run(cluster: Cluster, parts: Parts, *flags: str) -> Outcome:
    """Run the suite inside the node; what it installs before its tests stays there for the next run."""
    report = Path(tempfile.mkdtemp(dir=parts.scratch)) / "report.yaml"
    common = ("-test.v", "-test.timeout=15m", "-gateway-class=istio", "-cleanup-base-resources=false")
    command = [str(parts.suite / "conformance"), *common, f"-report-output={report}", *flags]
    printed = cluster.bash(f"{shlex.join(command)} 2>&1 || true", within=960)
    assert report.exists(), f"the suite did not come to its end:\n{printed[-3000:]}"
    verdicts = {name: verdict for verdict, name in VERDICT.findall(printed)}
    return Outcome(verdicts, yaml.safe_load(report.read_text()), printed)


def with_configuration(cluster: Cluster, parts: Parts, configuration: dict[str, Any]) -> Path:
    """Give all pickers another configuration; returns manifests for the suite's next runs, which then leave it so.

    The configuration is all that these bring before the tests: the rest is there, and updates of one Deployment by
    several runs would be in each other's way.
    """
    manifests = parts.scratch / "manifests"
    shutil.copytree(parts.suite / "manifests", manifests)
    (holder,) = (each for each in parts.base if each["kind"] == "ConfigMap")
    (name,) = holder["data"]
    holder["data"] = {name: json.dumps(configuration)}
    (manifests / BASE).write_text(yaml.safe_dump(holder))
    cluster.kubectl("replace", "-f", "-", text=json.dumps(holder))
    pickers = f"app in ({', '.join(_pickers(parts).values())})"
    cluster.kubectl("delete", "pods", "-n", APPS, "-l", pickers, "--force", "--grace-period=0")
    return manifests


def _load_images(cluster: Cluster, parts: Parts) -> None:
    (echo,), (picker,) = _named(parts, "echo-basic"), _named(parts, "epp")
    proxy = [
        *_with_libraries(parts.envoy, at="/usr/local/bin/envoy"),
        Layer(parts.suite / "envoy_bootstrap.json", at="/var/lib/istio/envoy/envoy_bootstrap_tmpl.json"),
    ]
    for name, program, more in (
        (f"{HUB}/pilot:{TAG}", parts.istio / "pilot-discovery", []),
        (f"{HUB}/proxyv2:{TAG}", parts.suite / "pilot-agent", proxy),
        (echo, parts.suite / "echo-basic", []),
    ):
        at, archive = f"/usr/local/bin/{program.name}", parts.scratch / f"{program.name}.tar"
        write_image(archive, name=name, layers=[*more, Layer(program, at=at)], command=[at], user="1337:1337")
        cluster.bash(f"ctr -n k8s.io images import {archive}")
        archive.unlink()
    cluster.bash(f"ctr -n k8s.io images tag --force {cluster.image} {picker}")


def _named(parts: Parts, program: str) -> set[str]:
    """Return the images of a program that the suite's manifests name."""
    images: Sequence[str] = re.findall(r"image: (\S+)", (parts.suite / "manifests" / BASE).read_text())
    return {image for image in images if f"/{program}:" in image}


def _with_libraries(program: Path, *, at: str) -> list[Layer]:
    """Return a program and the libraries that it was linked with, where it looks for them."""
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"(/\S+) \(0x", linked)
    return [Layer(program, at=at), *(Layer(Path(library).resolve(), at=library) for library in libraries)]


def _pickers(parts: Parts) -> dict[str, str]:
    """Return the Services of the pickers, with the label `app` of the Pods behind them."""
    services = (each for each in parts.base if each["kind"] == "Service")
    return {each["metadata"]["name"]: each["spec"]["selector"]["app"] for each in services}


def _tls_to_pickers(parts: Parts) -> list[dict[str, Any]]:
    """Return what makes Istio speak TLS to the pickers, whose certificates are their own."""
    policy = {"tls": {"mode": "SIMPLE", "insecureSkipVerify": True}}
    return [
        {
            "apiVersion": "networking.istio.io/v1",
            "kind": "DestinationRule",
            "metadata": {"name": service, "namespace": APPS},
            "spec": {"host": service, "trafficPolicy": policy},
        }
        for service in _pickers(parts)
    ]
