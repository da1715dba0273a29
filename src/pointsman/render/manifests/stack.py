"""From a SimulatorDeployment and what the cluster can do to the objects of the stack. Pure: same in, same out.

Beside the objects a `Stack` says what it consists of, for whoever watches it come up (`Component`), and what of the
resource could not be done here, and why (`Notice`): a field is honoured or refused with a reason, never ignored. What
goes beyond the administrator's policy is rendered all the same, and told (`breaches`): whoever applies it must not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.api.published import FailureMode
from pointsman.api.simulator import GatewayInstance, SimulatorDeployment
from pointsman.render.manifests import mesh, objects, picker, proxy, simulators
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.names import Names, names_of
from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.policy import Breach, Policy, breaches
from pointsman.render.manifests.simulators import Group

_PLAIN = Policy()


@dataclass(frozen=True, kw_only=True)
class Component:
    """A part that must be up before the stack is: a Deployment, or a Gateway that another makes Pods of."""

    condition: str
    name: str
    kind: str = "Deployment"
    replicas: int = 1
    """How many Pods there should be."""
    needed: int = 1
    """How many of them must be ready."""
    role: str = ""
    """The stage of the Pods if they are simulators, such as decode."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A condition that follows from the resource and the cluster alone."""

    type: str
    holds: bool
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Everything that a resource stands for."""

    names: Names
    objects: tuple[Object, ...]
    components: tuple[Component, ...]
    notices: tuple[Notice, ...]
    gateway_url: str
    """Where requests go in; of a Gateway that another makes Pods of, its status may know better."""
    failure_mode: FailureMode = "FailOpen"
    """What happens to requests while no picker answers."""
    breaches: tuple[Breach, ...] = ()
    """What the operator's administrator does not allow."""

    @property
    def front(self) -> str:
        """The Service in front of the model servers."""
        return self.names.service


@dataclass(frozen=True)
class Piece:
    """What one part of a resource adds to all that it stands for."""

    objects: Sequence[Object] = ()
    components: Sequence[Component] = ()
    notices: Sequence[Notice] = ()
    url: str = ""


def render(resource: SimulatorDeployment, facts: Facts) -> list[Object]:
    """Return the objects of the stack, those that others need first."""
    return list(stack(resource, facts).objects)


def stack(resource: SimulatorDeployment, facts: Facts, policy: Policy = _PLAIN) -> Stack:
    """Return the whole stack of a resource on such a cluster, under such an administrator."""
    names = names_of(resource)
    groups = simulators.groups(resource, names=names)
    pieces = [
        _picker(resource, groups, names=names, facts=facts, policy=policy),
        _simulators(resource, groups, names=names, facts=facts),
        _standard(resource, groups[0], names=names, facts=facts),
        _istio(resource, groups[0], names=names, facts=facts),
        _legacy(resource, names=names, facts=facts, policy=policy),
        _balancing(resource, names=names, facts=facts),
        _disaggregation(resource, groups),
    ]
    return Stack(
        names=names,
        objects=tuple(sorted((one for piece in pieces for one in piece.objects), key=objects.turn)),
        components=tuple(component for piece in pieces for component in piece.components),
        notices=tuple(notice for piece in pieces for notice in piece.notices),
        gateway_url=next((piece.url for piece in pieces if piece.url), ""),
        failure_mode=resource.spec.epp.failure_mode if resource.spec.epp else "FailOpen",
        breaches=breaches(resource, facts, policy),
    )


def _picker(
    resource: SimulatorDeployment, groups: Sequence[Group], *, names: Names, facts: Facts, policy: Policy
) -> Piece:
    config = resource.spec.epp
    if config is None or not config.enabled:
        return Piece()
    documents = picker.render(resource, config, groups, names=names, facts=facts, policy=policy)
    needed = min(config.replicas, 1)  # of several, the one that leads
    component = Component(condition="EPPReady", name=names.picker, replicas=config.replicas, needed=needed)
    return Piece(documents, [component], [_discovery(names=names, facts=facts)])


def _discovery(*, names: Names, facts: Facts) -> Notice:
    """Say by what the picker finds Pods, which follows the definitions that a cluster has."""
    if facts.inference_pool:
        reason, text = "InferencePool", f"the picker follows InferencePool {names.pool}"
    else:
        reason = "Selector"
        text = "the picker follows Pods by their labels: InferencePool is not defined (pointsman crds install)"
    return Notice(type="Discovery", holds=True, reason=reason, message=text)


def _simulators(resource: SimulatorDeployment, groups: Sequence[Group], *, names: Names, facts: Facts) -> Piece:
    headless = any(_own_envoys(resource, facts=facts))
    documents = simulators.render(resource, groups, names=names, facts=facts, headless=headless)
    return Piece(
        documents,
        [
            Component(
                condition=f"{group.role.title()}Ready" if group.staged else "SimulatorsReady",
                name=group.name,
                replicas=group.replicas,
                needed=group.replicas,
                role=group.role,
            )
            for group in groups
        ],
    )


def _instances(resource: SimulatorDeployment) -> tuple[GatewayInstance | None, GatewayInstance | None]:
    wanted = resource.spec.inference_gateway
    if wanted is None or not wanted.enabled:
        return None, None
    standard, istio = wanted.standard, wanted.istio
    return (standard if standard and standard.enabled else None), (istio if istio and istio.enabled else None)


def _own_envoys(resource: SimulatorDeployment, *, facts: Facts) -> tuple[bool, bool]:
    """Tell which gateways are Envoys of our own."""
    standard, istio = _instances(resource)
    return standard is not None, istio is not None and not facts.istio_gateway


def _standard(resource: SimulatorDeployment, serving: Group, *, names: Names, facts: Facts) -> Piece:
    wanted = resource.spec.inference_gateway
    instance, istio = _instances(resource)
    if instance is None:
        idle = wanted is not None and wanted.enabled and istio is None
        message = "inferenceGateway.enabled is true and no gateway is: set standard.enabled or istio.enabled"
        return Piece(notices=[_notice("GatewayReady", "NoneEnabled", message)] if idle else [])
    documents = _envoy(resource, instance, serving, kind="standard", name=names.gateway, names=names, facts=facts)
    component = Component(
        condition="GatewayReady", name=names.gateway, replicas=instance.replicas, needed=min(instance.replicas, 1)
    )
    return Piece(documents, [component], url=_url(names.gateway, instance, names=names, facts=facts))


def _envoy(
    resource: SimulatorDeployment,
    instance: GatewayInstance,
    serving: Group,
    *,
    kind: str,
    name: str,
    names: Names,
    facts: Facts,
) -> list[Object]:
    wanted = proxy.envoy(resource, serving, names=names, facts=facts)
    pull = resource.spec.image_pull_policy
    return proxy.render(wanted, instance, pull=pull, kind=kind, name=name, names=names, facts=facts)


def _istio(resource: SimulatorDeployment, serving: Group, *, names: Names, facts: Facts) -> Piece:
    _, instance = _instances(resource)
    if instance is None:
        return Piece()
    name, condition = names.istio_gateway, "IstioGatewayReady"
    url = _url(name, instance, names=names, facts=facts)
    if facts.istio_gateway:
        made = Notice(
            type="IstioGateway",
            holds=True,
            reason="MadeByIstio",
            message=f"Istio makes Deployment and Service {name} of Gateway {names.gateway}",
        )
        documents = mesh.istio_gateway(resource, instance, names=names, facts=facts)
        return Piece(documents, [Component(condition=condition, name=names.gateway, kind="Gateway")], [made], url)
    missing = "the Gateway API is not installed" if not facts.gateway_api else "there is no GatewayClass istio"
    why = f"{missing}: Deployment {name} runs the image's own Envoy with this stack's configuration"
    documents = _envoy(resource, instance, serving, kind="istio", name=name, names=names, facts=facts)
    component = Component(condition=condition, name=name, replicas=instance.replicas, needed=min(instance.replicas, 1))
    return Piece(documents, [component], [_notice("IstioGateway", "IstioMissing", why)], url)


def _legacy(resource: SimulatorDeployment, *, names: Names, facts: Facts, policy: Policy) -> Piece:
    wanted = resource.spec.gateway
    if wanted is None or not wanted.enabled:
        return Piece()
    condition = "LegacyGateway"
    _, istio = _instances(resource)
    if istio is not None and facts.istio_gateway and names.route == names.gateway:
        message = f"spec.gateway gives way to inferenceGateway.istio, which makes {names.gateway}: remove spec.gateway"
        return Piece(notices=[_notice(condition, "Superseded", message)])
    if not facts.gateway_api:
        message = "spec.gateway needs the Gateway API: install its definitions, or use inferenceGateway.standard"
        return Piece(notices=[_notice(condition, "GatewayAPIMissing", message)])
    if wanted.class_name not in facts.gateway_classes:
        message = f"GatewayClass {wanted.class_name} does not exist or is not accepted: install its controller"
        told = [_notice(condition, "GatewayClassMissing", message)]
    else:
        text = f"Gateway and HTTPRoute {names.route} are made; inferenceGateway is the successor of this block"
        told = [Notice(type=condition, holds=True, reason="Honoured", message=text)]
    documents = mesh.legacy_gateway(resource, wanted, names=names, facts=facts, outside=policy.external_services)
    return Piece(documents, notices=told)


def _balancing(resource: SimulatorDeployment, *, names: Names, facts: Facts) -> Piece:
    wanted, condition = resource.spec.load_balancing, "LoadBalancing"
    if wanted is None or not wanted.enabled:
        return Piece()
    name = f"{names.service}-lb"
    if facts.istio:
        text = f"DestinationRule {name} sets {wanted.algorithm} inside the mesh; the stack's own gateways follow it too"
        held = Notice(type=condition, holds=True, reason="DestinationRule", message=text)
        return Piece([mesh.destination_rule(wanted, names=names, facts=facts)], notices=[held])
    if any(_own_envoys(resource, facts=facts)):
        without = f"Istio is not installed, so there is no DestinationRule {name}"
        text = f"{without}; the stack's own gateways apply the same policy"
        return Piece(notices=[Notice(type=condition, holds=True, reason="GatewayOnly", message=text)])
    message = "no component can apply loadBalancing: install Istio, or enable inferenceGateway.standard"
    return Piece(notices=[_notice(condition, "IstioMissing", message)])


def _disaggregation(resource: SimulatorDeployment, groups: Sequence[Group]) -> Piece:
    if len(groups) < 2:
        return Piece()
    if resource.spec.epp is None or not resource.spec.epp.enabled:
        message = "prefill Pods run and nothing sends them work: enable epp"
        return Piece(notices=[_notice("Disaggregation", "NoPicker", message)])
    message = (
        "the picker chooses a prefill Pod and names it to the decode Pod (x-prefiller-host-port); "
        "the side-car that acts on it is not part of this version, so decode Pods do both"
    )
    return Piece(notices=[_notice("Disaggregation", "HeadersOnly", message)])


def _url(name: str, instance: GatewayInstance, *, names: Names, facts: Facts) -> str:
    return f"http://{name}.{names.namespace}.svc.{facts.domain}:{instance.port}"


def _notice(type_: str, reason: str, message: str) -> Notice:
    return Notice(type=type_, holds=False, reason=reason, message=message)
