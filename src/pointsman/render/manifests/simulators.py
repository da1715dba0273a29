"""The simulators of a stack: one Deployment, or one per stage of disaggregated serving, and the Services in front.

The Service of the requirement (`gaie-inference-scheduling-proxy`) is there in both modes and leads to the Pods that
answer requests: those of the decode stage, or of prefill when there is no other. Simulators are told who they are,
because the answer's `x-inference-pod` comes from that, and wait a little before they stop, so that everyone has heard
of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pointsman.api.base import Resources
from pointsman.api.simulator import ServiceConfig, SimulatorDeployment, Stage
from pointsman.render.manifests import objects
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.names import NAME, ROLE, SERVING, Names
from pointsman.render.manifests.objects import Object

_FAREWELL = 5
_GRACE = 60


@dataclass(frozen=True, kw_only=True)
class Group:
    """Simulators that are alike."""

    name: str
    role: str
    replicas: int
    port: int
    image: str
    verbosity: int
    resources: Resources | None
    args: tuple[str, ...] = ()
    staged: bool = True

    @property
    def pods(self) -> str:
        """The headless Service, by which a gateway knows the Pods' addresses."""
        return f"{self.name}-pods"

    def labels(self) -> dict[str, str]:
        """Return what other systems select these Pods by."""
        return {ROLE: self.role, SERVING: "true"}

    def selector(self, names: Names) -> dict[str, str]:
        """Return what our own Services and Deployments select them by."""
        return {ROLE: self.role, NAME: names.stack, **({SERVING: "true"} if self.staged else {})}


def groups(resource: SimulatorDeployment, *, names: Names) -> list[Group]:
    """Return the simulators of the stack; the first are those that answer requests."""
    spec = resource.spec
    stages = [(role, stage) for role, stage in (("decode", spec.decode), ("prefill", spec.prefill))]
    staged = [_staged(role, stage, resource, names=names) for role, stage in stages if stage and stage.enabled]
    if staged:
        return staged
    return [
        Group(
            name=names.simulators,
            role="decode",
            replicas=spec.replicas,
            port=(spec.service or ServiceConfig()).port,
            image=spec.image,
            verbosity=spec.log_verbosity,
            resources=spec.resources,
            staged=False,
        )
    ]


def _staged(role: str, stage: Stage, resource: SimulatorDeployment, *, names: Names) -> Group:
    spec = resource.spec
    return Group(
        name=names.stage(role),
        role=role,
        replicas=stage.replicas,
        port=stage.port,
        image=stage.image or spec.image,
        verbosity=spec.log_verbosity if stage.log_verbosity is None else stage.log_verbosity,
        resources=stage.resources or spec.resources,
        args=stage.args,
    )


def render(
    resource: SimulatorDeployment, made: Sequence[Group], *, names: Names, facts: Facts, headless: bool
) -> list[Object]:
    """Return the Services, then the Deployments."""
    serving = made[0]
    front = [_front(resource, serving, names=names)]
    if headless:
        front.append(_headless(serving, names=names))
    own = [_own(group, names=names) for group in made if group.staged]
    policy = resource.spec.image_pull_policy
    return [*front, *own, *(_deployment(group, names=names, facts=facts, policy=policy) for group in made)]


def _front(resource: SimulatorDeployment, serving: Group, *, names: Names) -> Object:
    wanted = resource.spec.service or ServiceConfig()
    return objects.service(
        names.service,
        names=names,
        labels={},
        selector=serving.selector(names),
        ports=[objects.port("http", wanted.port, serving.port, protocol="http")],
        kind=wanted.type,
    )


def _headless(serving: Group, *, names: Names) -> Object:
    return objects.service(
        serving.pods,
        names=names,
        labels={},
        selector=serving.selector(names),
        ports=[objects.port("http", serving.port, serving.port, protocol="http")],
        headless=True,
    )


def _own(group: Group, *, names: Names) -> Object:
    return objects.service(
        group.name,
        names=names,
        labels=group.labels(),
        selector=group.selector(names),
        ports=[objects.port("http", group.port, group.port, protocol="http")],
    )


def _deployment(group: Group, *, names: Names, facts: Facts, policy: str) -> Object:
    return objects.deployment(
        group.name,
        names=names,
        labels=group.labels(),
        selector=group.selector(names),
        replicas=group.replicas,
        pod=objects.pod(_container(group, facts=facts, policy=policy), facts=facts, grace=_GRACE),
    )


def _container(group: Group, *, facts: Facts, policy: str) -> Object:
    container: Object = {
        "name": group.role,
        "image": group.image,
        "imagePullPolicy": policy,
        "args": [*_flags(group), *group.args],
        # Our image is one for all parts and asks which one it is; others do not look.
        "env": [*objects.identity(), {"name": "POINTSMAN_COMMAND", "value": "sim"}],
        "ports": [{"name": "http", "containerPort": group.port, "protocol": "TCP"}],
        "startupProbe": objects.http_probe(
            "/health", group.port, periodSeconds=1, timeoutSeconds=2, failureThreshold=60
        ),
        "readinessProbe": objects.http_probe(
            "/health", group.port, periodSeconds=2, timeoutSeconds=2, failureThreshold=2
        ),
        "livenessProbe": objects.http_probe(
            "/health", group.port, periodSeconds=10, timeoutSeconds=5, failureThreshold=3
        ),
        **objects.resources(group.resources),
    }
    if facts.sleep_action:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": _FAREWELL}}}
    return container


def _flags(group: Group) -> list[str]:
    flags: Mapping[str, str] = {
        "--model": "random",
        "--mode": "random",
        "--v": str(group.verbosity),
        "--port": str(group.port),
    }
    return [word for pair in flags.items() for word in pair]
