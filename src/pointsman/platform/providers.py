"""Whose cluster it is, by the labels of its nodes, and what that changes. Pure.

AKS probes a load balancer's backends by HTTP and drops gateways that answer `/` with 404, unless the Service says to
probe by TCP. Both providers name their machines, and both label nodes that have a GPU.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pointsman.core.kinds import Object
from pointsman.platform.spec import ProviderName

_GPU = "nvidia.com/gpu"
_GPU_LABELS = ("nvidia.com/gpu.present", "gpu.nvidia.com/class")
_INSTANCE = "node.kubernetes.io/instance-type"


@dataclass(frozen=True)
class Provider:
    """One provider: how it is told, which machines are meant for inference, how it is monitored."""

    name: Literal["aks", "coreweave", "other"]
    label: str = ""
    instances: Sequence[str] = ()
    probe_annotation: str = ""
    monitoring: str = "a Prometheus operator of your own"


AKS = Provider(
    "aks",
    label="kubernetes.azure.com/cluster",
    instances=(
        *("NC24ads_A100_v4", "ND96asr_v4", "ND96amsr_A100_v4"),
        *("ND96isr_H100_v5", "ND96isr_H200_v5"),
    ),
    probe_annotation="service.beta.kubernetes.io/port_{port}_health-probe_protocol",
    monitoring="Azure Managed Prometheus (ama-metrics) with the Prometheus operator's definitions",
)
COREWEAVE = Provider(
    "coreweave",
    label="cks.coreweave.com/cluster",
    instances=("b200-8x", "gd-8xh200ib-i128", "gd-8xh100ib-i128", "gd-8xa100-i128"),
    monitoring="kube-prometheus-stack, installed by yourself",
)
OTHER = Provider("other")
PROVIDERS = {each.name: each for each in (AKS, COREWEAVE, OTHER)}


@dataclass(frozen=True)
class NodeFacts:
    """What of the nodes matters for inference."""

    total: int = 0
    gpu_nodes: int = 0
    gpus: int = 0
    instances: tuple[str, ...] = field(default=())

    def known_instances(self, provider: Provider) -> list[str]:
        """Return the machines that the provider's guides are written for."""
        return [each for each in self.instances if each.removeprefix("Standard_") in provider.instances]


def find_provider(nodes: Iterable[Object], *, asked: ProviderName) -> Provider:
    """Return the provider that was asked for, or the one that the nodes' labels tell of."""
    if asked != "auto":
        return PROVIDERS[asked]
    labels = {name for node in nodes for name in _labels(node)}
    return next((each for each in (AKS, COREWEAVE) if each.label in labels), OTHER)


def node_facts(nodes: Sequence[Object]) -> NodeFacts:
    """Return how many nodes and GPUs there are, and which machines."""
    gpus = [_gpus(node) for node in nodes if any(label in _labels(node) for label in _GPU_LABELS)]
    kinds = {str(_labels(node)[_INSTANCE]) for node in nodes if _INSTANCE in _labels(node)}
    return NodeFacts(len(nodes), sum(1 for each in gpus if each), sum(gpus), tuple(sorted(kinds)))


def localised(document: Object, provider: Provider) -> Object:
    """Return an object with what the provider's load balancer needs: on a Gateway, or on a Service of that type."""
    if not provider.probe_annotation:
        return document
    spec = document.get("spec") or {}
    if document["kind"] == "Gateway":
        ports = [each.get("port") for each in spec.get("listeners") or []]
        infrastructure = spec.get("infrastructure") or {}
        annotations = {**_probes(ports, provider), **(infrastructure.get("annotations") or {})}
        return {**document, "spec": {**spec, "infrastructure": {**infrastructure, "annotations": annotations}}}
    if document["kind"] == "Service" and spec.get("type") == "LoadBalancer":
        ports = [each.get("port") for each in spec.get("ports") or []]
        metadata = document["metadata"]
        annotations = {**_probes(ports, provider), **(metadata.get("annotations") or {})}
        return {**document, "metadata": {**metadata, "annotations": annotations}}
    return document


def _probes(ports: Iterable[Any], provider: Provider) -> dict[str, str]:
    return {provider.probe_annotation.format(port=port): "tcp" for port in ports if isinstance(port, int)}


def _labels(node: Object) -> dict[str, str]:
    return node["metadata"].get("labels") or {}


def _gpus(node: Object) -> int:
    text = str(((node.get("status") or {}).get("allocatable") or {}).get(_GPU, "0"))
    return int(text) if text.isdigit() else 0
