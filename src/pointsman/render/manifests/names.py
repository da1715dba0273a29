"""What the parts of a stack are called. Requirement and habit: dashboards, scripts and selectors know these names.

Only the simulators without stages are named after the resource; the rest have fixed names, to which `nameSuffix` is
added when two stacks share a namespace.
"""

from dataclasses import dataclass

from pointsman.api.simulator import GATEWAY, PICKER, STAGE, LegacyGateway, ServiceConfig, SimulatorDeployment

ROLE = "llm-d.ai/role"
SERVING = "llm-d.ai/inferenceServing"
COMPONENT = "llm-d.ai/component"
GATEWAY_TYPE = "llm-d.ai/gateway-type"
NAME = "app.kubernetes.io/name"
STACK = "sim.llm-d.io/stack"
"""On every Pod of a stack, with its name; nothing is selected by it but our own watch."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names of one stack."""

    stack: str
    namespace: str
    suffix: str
    service: str
    route: str
    """The Gateway and HTTPRoute of the old block."""
    mark: str = ""
    """By what our watch knows the Pods, where the stack's own name will not do."""

    @property
    def simulators(self) -> str:
        """The simulators of a stack without stages."""
        return f"ms-sim-{self.stack}-decode"

    def stage(self, stage: str) -> str:
        """The simulators of one stage."""
        return f"{STAGE}{stage}{self.suffix}"

    @property
    def picker(self) -> str:
        return f"{PICKER}{self.suffix}"

    @property
    def pool(self) -> str:
        return f"gaie-sim{self.suffix}"

    @property
    def gateway(self) -> str:
        return f"{GATEWAY}{self.suffix}"

    @property
    def istio_gateway(self) -> str:
        """What Istio calls the Deployment and Service of our Gateway: its name and its class."""
        return f"{self.gateway}-istio"

    def labels(self, **more: str) -> dict[str, str]:
        """Return the label that every object has, and more."""
        return {NAME: self.stack, **more}


def names_of(resource: SimulatorDeployment) -> Names:
    """Return the names of the resource's stack."""
    spec = resource.spec
    service, gateway = spec.service or ServiceConfig(), spec.gateway or LegacyGateway()

    def apart(name: str, default: str) -> str:
        """Add the suffix to a default, which the schema fills in too; a name that a person chose is meant."""
        return name + spec.name_suffix if name == default else name

    return Names(
        stack=resource.metadata.name,
        namespace=resource.metadata.namespace,
        suffix=spec.name_suffix,
        service=apart(service.name, ServiceConfig().name),
        route=apart(gateway.route_name, LegacyGateway().route_name),
    )
