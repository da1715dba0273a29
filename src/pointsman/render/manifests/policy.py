"""What the administrator of an operator has decided, and what of a resource goes beyond it. Pure.

Who may create a SimulatorDeployment writes in one namespace what the operator then makes with rights of its own. So an
administrator says how far that goes: how many Pods, from which images, reachable from where. A picker gets a token for
the API server, so its image must be one that the administrator trusts; simulators and gateways have none, and may be
anything unless the administrator says otherwise.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.api.simulator import GatewayInstance, PickerConfig, SimulatorDeployment, SimulatorSpec, Stage
from pointsman.render.manifests.facts import Facts

Labels = tuple[tuple[str, str], ...]

TRUSTED = ("ghcr.io/llm-d/llm-d-inference-scheduler", "docker.io/library/pointsman")
ISTIO = "istio"
"""The class of Gateways whose Service can be kept inside the cluster."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The administrator's decisions; the defaults are those of an operator without flags."""

    max_replicas: int = 100
    """The most Pods of one component."""
    trusted_images: tuple[str, ...] = TRUSTED
    """What a picker's image begins with."""
    allowed_images: tuple[str, ...] = ()
    """What any image begins with; empty for whatever people name."""
    external_services: bool = False
    """Whether Services may be reached from outside the cluster (NodePort, LoadBalancer)."""
    network_policies: bool = True
    """Whether pickers get a NetworkPolicy."""
    gateway_namespaces: Labels = ()
    """The labels of namespaces whose gateways may ask pickers; empty for all namespaces."""
    metrics_namespaces: Labels = ()
    """The labels of namespaces that may reach pickers' metrics; empty for all."""
    install_namespaces: tuple[str, ...] = ()
    """The namespaces that SchedulerInstalls may reach beside their own; empty for all."""
    metrics_auth: bool = True
    """Whether pickers' metrics are only for those whom the API server lets read them."""


@dataclass(frozen=True, kw_only=True)
class Breach:
    """One thing that a resource asks for and may not have."""

    field: str
    value: str
    limit: str
    flag: str

    @property
    def message(self) -> str:
        """The sentence: what is wrong and what to do."""
        return (
            f"{self.field} is {self.value}, and the operator allows {self.limit}: change it, or have the operator's "
            f"administrator change {self.flag}"
        )


def breaches(resource: SimulatorDeployment, facts: Facts, policy: Policy) -> tuple[Breach, ...]:
    """Return all that goes beyond the policy; parts that are not enabled ask for nothing."""
    spec = resource.spec
    return (*_sizes(spec, policy), *_images(spec, policy), *_openings(spec, facts, policy))


def refusal(found: Iterable[Breach]) -> str:
    """Return what to tell people, one sentence for each."""
    return "; ".join(breach.message for breach in found)


Part = PickerConfig | GatewayInstance | Stage | SimulatorSpec


def _parts(spec: SimulatorSpec) -> Iterable[tuple[str, Part]]:
    stages = [("spec.prefill", spec.prefill), ("spec.decode", spec.decode)]
    staged = [(field, stage) for field, stage in stages if stage is not None and stage.enabled]
    yield from staged
    if not staged:
        yield "spec", spec
    if spec.epp is not None and spec.epp.enabled:
        yield "spec.epp", spec.epp
    gateways = spec.inference_gateway
    if gateways is not None and gateways.enabled:
        for name, instance in (("standard", gateways.standard), ("istio", gateways.istio)):
            if instance is not None and instance.enabled:
                yield f"spec.inferenceGateway.{name}", instance


def _sizes(spec: SimulatorSpec, policy: Policy) -> Iterable[Breach]:
    limit = f"at most {policy.max_replicas}"
    for field, part in _parts(spec):
        if part.replicas > policy.max_replicas:
            yield Breach(field=f"{field}.replicas", value=str(part.replicas), limit=limit, flag="--max-replicas")


def _images(spec: SimulatorSpec, policy: Policy) -> Iterable[Breach]:
    for field, part in _parts(spec):
        where, image = f"{field}.image", part.image
        if image is None:
            where, image = ("spec.image", spec.image) if isinstance(part, Stage) else (where, "")
        if isinstance(part, PickerConfig):
            prefixes, flag = policy.trusted_images, "--trusted-image-prefixes"
            limit = f"pickers, which get a token, only from {', '.join(prefixes) or 'nowhere'}"
        else:
            prefixes, flag = policy.allowed_images, "--allowed-image-prefixes"
            limit = f"images from {', '.join(prefixes)}"
            if not prefixes:
                continue
        if image and not any(is_from(image, prefix) for prefix in prefixes):
            yield Breach(field=where, value=image, limit=limit, flag=flag)


def _openings(spec: SimulatorSpec, facts: Facts, policy: Policy) -> Iterable[Breach]:
    if policy.external_services:
        return
    flag, limit = "--allow-external-services", "nothing that is reached from outside the cluster"
    if spec.service is not None and spec.service.type != "ClusterIP":
        yield Breach(field="spec.service.type", value=spec.service.type, limit=limit, flag=flag)
    gateway = spec.gateway
    if facts.gateway_api and gateway is not None and gateway.enabled and gateway.class_name != ISTIO:
        yield Breach(field="spec.gateway.className", value=gateway.class_name, limit=limit, flag=flag)


def is_from(image: str, prefix: str) -> bool:
    """Tell whether an image is of a repository, or below it; both as the nodes read them."""
    whole, start = _full(image), _full(prefix)
    rest = whole[len(start) :]
    return whole.startswith(start) and (not rest or start[-1] in "/:@" or rest[0] in "/:@")


def _full(image: str) -> str:
    """Return an image's name with what container runtimes put before a short one."""
    first, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    return image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"
