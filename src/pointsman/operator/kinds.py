"""The kinds that a stack consists of and that tell about it, and which of them may be missing on a cluster."""

from pointsman.kube import Kind, Ownership

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

OWNERSHIP = Ownership(manager="pointsman-operator", domain="sim.llm-d.io")
LEASE = "sim-operator.llm-d.io"
