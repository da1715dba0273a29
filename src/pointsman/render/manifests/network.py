"""Who may reach a picker's Pods: a NetworkPolicy.

Requests for a pick (9002) and health (9003) come from gateways and from nobody else: those of the stack, and Pods that
some controller of the Gateway API made, by the label that all of these controllers put on them, since a gateway in any
namespace may lead to the pool. The administrator narrows which namespaces. Metrics (9090) ask for a token, so they may
come from anywhere; where they do not, the administrator says from which namespaces. A node's own probes pass every
policy. What a picker itself connects to is not limited: API server, simulators, collectors.

Simulators and gateways have no policy: a gateway's port is the way in and its admin stays inside the Pod; a simulator
is meant to be asked directly, too, by its Service, and has nothing to lose.
"""

from collections.abc import Mapping, Sequence

from pointsman.api.simulator import PICKER_PORTS
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.policy import Labels, Policy

MADE_BY_A_GATEWAY = "gateway.networking.k8s.io/gateway-name"
_TUNNEL = 15_008
"""Where Istio's ambient mesh delivers what its gateways send, whatever the port inside."""


def picker_policy(
    *,
    head: Object,
    pods: Mapping[str, str],
    gateways: Mapping[str, str],
    facts: Facts,
    policy: Policy,
    checkers: Sequence[Object] = (),
) -> Object:
    """Return the policy of the pickers with the labels `pods`, whose own gateways have the labels `gateways`.

    `checkers` are others who may ask for a handshake.
    """
    own = {"podSelector": {"matchLabels": dict(gateways)}}
    others = {
        "namespaceSelector": _selector(policy.gateway_namespaces),
        "podSelector": {"matchExpressions": [{"key": MADE_BY_A_GATEWAY, "operator": "Exists"}]},
    }
    tunnel = [_TUNNEL] if facts.istio else []
    ports = _ports(PICKER_PORTS["grpc"], PICKER_PORTS["health"], *tunnel)
    asking: Object = {"from": [own, others, *checkers], "ports": ports}
    scraping: Object = {"ports": _ports(PICKER_PORTS["metrics"])}
    if policy.metrics_namespaces:
        scraping["from"] = [{"namespaceSelector": _selector(policy.metrics_namespaces)}]
    return {
        **head,
        "spec": {
            "podSelector": {"matchLabels": dict(pods)},
            "policyTypes": ["Ingress"],
            "ingress": [asking, scraping],
        },
    }


def _selector(labels: Labels) -> Object:
    return {"matchLabels": dict(labels)} if labels else {}


def _ports(*numbers: int) -> list[Object]:
    return [{"port": number, "protocol": "TCP"} for number in numbers]
