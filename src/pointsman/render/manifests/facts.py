"""What a cluster can do, as far as it changes what is rendered. Found out by the operator, assumed on a laptop."""

from dataclasses import dataclass

DOMAIN = "cluster.local"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The answers to the renderer's questions about a cluster."""

    inference_pool: bool = False
    """InferencePool (inference.networking.k8s.io/v1) is defined: the picker can follow a pool."""
    gateway_api: bool = False
    """Gateway and HTTPRoute are defined."""
    istio: bool = False
    """DestinationRule is defined: a mesh reads it."""
    gateway_classes: frozenset[str] = frozenset()
    """GatewayClasses whose controller has accepted them."""
    istio_classes: frozenset[str] = frozenset()
    """Those of them whose controller is Istio: their gateways can be patched."""
    envoy_filter: bool = False
    """EnvoyFilter is defined."""
    reference_grant: bool = False
    """ReferenceGrant is defined: routes can lead to other namespaces."""
    cert_manager: bool = False
    """Certificate is defined: somebody issues certificates."""
    sleep_action: bool = True
    """Containers can be told to wait before they are stopped (Kubernetes 1.30)."""
    openshift: bool = False
    """User ids are given out by the cluster and must not be chosen."""
    domain: str = DOMAIN
    endpoints_file: str = ""
    """A file with every simulator, which gateways have read before a picker may pick one; only one machine has it."""

    @property
    def istio_gateway(self) -> bool:
        """Whether Istio makes the Deployment and Service of a Gateway."""
        return self.gateway_api and "istio" in self.gateway_classes
