"""The kinds that a stack consists of and that tell about it, and which of them may be missing on a cluster."""

from pointsman.kube import Kind, Ownership, Source

GATEWAY_API = "gateway.networking.k8s.io"
RBAC = "rbac.authorization.k8s.io"

SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
ROLE = Kind(RBAC, "v1", "Role", "roles")
ROLE_BINDING = Kind(RBAC, "v1", "RoleBinding", "rolebindings")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SERVICE = Kind("", "v1", "Service", "services")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
INFERENCE_POOL = Kind("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools")
GATEWAY = Kind(GATEWAY_API, "v1", "Gateway", "gateways")
HTTP_ROUTE = Kind(GATEWAY_API, "v1", "HTTPRoute", "httproutes")
DESTINATION_RULE = Kind("networking.istio.io", "v1beta1", "DestinationRule", "destinationrules")

REFERENCE_GRANT = Kind(GATEWAY_API, "v1beta1", "ReferenceGrant", "referencegrants")
ENVOY_FILTER = Kind("networking.istio.io", "v1alpha3", "EnvoyFilter", "envoyfilters")
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
SECRET = Kind("", "v1", "Secret", "secrets")
CERTIFICATE = Kind("cert-manager.io", "v1", "Certificate", "certificates")
WEBHOOKS = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)

GATEWAY_CLASS = Kind(GATEWAY_API, "v1", "GatewayClass", "gatewayclasses", namespaced=False)
POD = Kind("", "v1", "Pod", "pods")

# What we make, in the order in which it is of use. Deleted in the reverse order.
MADE = (
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    CONFIG_MAP,
    NETWORK_POLICY,
    SERVICE,
    DEPLOYMENT,
    INFERENCE_POOL,
    GATEWAY,
    HTTP_ROUTE,
    DESTINATION_RULE,
)
# What an install consists of beside.
INSTALLED = (*MADE, ENDPOINT_SLICE, REFERENCE_GRANT, ENVOY_FILTER)

# What LLMInferenceServices are made of, in the same order.
SERVED = (
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    CERTIFICATE,
    SECRET,
    CONFIG_MAP,
    NETWORK_POLICY,
    DEPLOYMENT,
    SERVICE,
    INFERENCE_POOL,
    HTTP_ROUTE,
    DESTINATION_RULE,
)

OWNERSHIP = Ownership(manager="pointsman-operator", domain="sim.llm-d.io")
LEASE = "sim-operator.llm-d.io"
LLM_OWNERSHIP = Ownership(manager="pointsman-llm-operator", domain="serving.llm-d.io")
LLM_LEASE = "llm-operator.llm-d.io"
# Of these others' objects matter, too: the Gateway that a route names, routes that lead to a pool of ours, pools.
_OTHERS_TOO = (GATEWAY, HTTP_ROUTE, INFERENCE_POOL)


def source_of(kind: Kind, *, namespace: str = "") -> Source:
    """Return what is cached of a kind that we make; all controllers of a runtime share it."""
    return Source(kind, namespace=namespace, labels="" if kind in _OTHERS_TOO else OWNERSHIP.selector)
