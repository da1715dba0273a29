"""The stack of `pointsman up` without a file: a SimulatorDeployment like any other, made from flags.

`resource` has everything that a cluster would understand too; it is rendered and translated as a file's resource is.
What only this machine has is laid over the plan afterwards (`plan`): who listens where, short names for Pods, the
person's own picker configuration, and no hop through the ports of Services, because every part has a port of its own
that the person knows. Envoy reads the simulators from a file that has each of them before the picker does
(`Facts.endpoints_file`), so a pick is a list of endpoints that Envoy tries one after the other.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pointsman.api import SimulatorDeployment, parse
from pointsman.api.published import FailureMode
from pointsman.api.simulator import PICKER_PORTS
from pointsman.core import flags
from pointsman.local import objects, several
from pointsman.local.plan import Deployment, StackPlan
from pointsman.local.pods import HOST
from pointsman.local.ports import Wish, settle
from pointsman.local.state import Folder
from pointsman.render.envoy.addresses import Address
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.proxy import ADMIN, LISTEN
from pointsman.render.manifests.stack import stack

_SOURCE = "the flags of `pointsman up`"
_VERBOSITY = 2  # what simulators and pickers have by themselves


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the parts listen that have one Pod."""

    gateway: Address
    admin: Address
    picker_grpc: Address
    picker_health: Address
    picker_metrics: Address


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the flags say, with every port settled."""

    places: Places
    first_simulator_port: int
    replicas: int
    model: str
    envoy_workers: int
    config: Path | None = None
    failure_mode: FailureMode = "FailClose"
    picker_tls: bool = True
    models: tuple[str, ...] = ()
    """Two or more have a pool each; `model` is not heeded then."""
    simulator_arguments: tuple[str, ...] = ()
    picker_arguments: tuple[str, ...] = ()


def settled(
    *,
    port: int,
    admin_port: int,
    grpc_port: int | None = None,
    grpc_health_port: int | None = None,
    metrics_port: int | None = None,
) -> Places:
    """Return where the parts of a new stack listen: 0 lets the system choose, None gives way to a taken port.

    Raises PortTaken when a port is taken that a person named, or the gateway's or the admin's.
    """
    given: set[int] = set()

    def take(port: int | None, default: int, flag: str, what: str) -> Address:
        wish = Wish(port=default if port is None else port, flag=flag, what=what, named=port is not None)
        chosen = settle(wish, host=HOST, given_out=given)
        given.add(chosen)
        return Address(HOST, chosen)

    return Places(
        gateway=take(port, port, "--port", "the gateway"),
        admin=take(admin_port, admin_port, "--admin-port", "Envoy's admin"),
        picker_grpc=take(grpc_port, PICKER_PORTS["grpc"], "--grpc-port", "the picker"),
        picker_health=take(grpc_health_port, PICKER_PORTS["health"], "--grpc-health-port", "the picker's health"),
        picker_metrics=take(metrics_port, PICKER_PORTS["metrics"], "--metrics-port", "the picker's metrics"),
    )


def resource(settings: Settings, *, suffix: str = "") -> SimulatorDeployment:
    """Return the resource that the flags describe; one of several has a suffix to its name and its parts' names."""
    simulators = {
        "enabled": True,
        "replicas": settings.replicas,
        "logVerbosity": _VERBOSITY,
        "args": ["--model", settings.model, *settings.simulator_arguments],
    }
    picker = {
        "enabled": True,
        "failureMode": settings.failure_mode,
        "verbosity": _VERBOSITY,
        "args": [
            f"--secure-serving={str(settings.picker_tls).lower()}",
            *("--zap-encoder", "console", "--tracing=true"),  # a person reads its log, and may have a collector
            *("--drain-timeout", "1s"),  # Envoy is gone before the picker is asked to go
            *(("--config-file", str(settings.config)) if settings.config else ()),
            *settings.picker_arguments,
        ],
    }
    gateway = {"enabled": True, "standard": {"enabled": True}}
    document: dict[str, Any] = {
        "apiVersion": "sim.llm-d.io/v1alpha1",
        "kind": "SimulatorDeployment",
        "metadata": {"name": f"up{suffix}", "namespace": "local"},
        "spec": {"nameSuffix": suffix, "decode": simulators, "epp": picker, "inferenceGateway": gateway},
    }
    return parse(document, source=_SOURCE)


def plan(settings: Settings, *, folder: Folder) -> StackPlan:
    """Return what runs on this machine."""
    if not settings.models:
        return _pool(settings, folder=folder)
    shorts = several.short_names(settings.models)
    pools = {
        model: _named(_pool(_of_pool(settings, at=at), folder=folder, suffix=f"-{at}"), short, first=at == 0)
        for at, (model, short) in enumerate(zip(settings.models, shorts, strict=True))
    }
    return several.together(pools, router_tls=settings.picker_tls)


def _pool(settings: Settings, *, folder: Folder, suffix: str = "") -> StackPlan:
    facts = Facts(endpoints_file=str(folder.envoy_endpoints_file))
    rendered = objects.plan(stack(resource(settings, suffix=suffix), facts))
    return replace(
        rendered,
        deployments=tuple(_LAID_OUT[each.role](each, settings) for each in rendered.deployments),
        services=tuple(replace(each, headless=True) for each in rendered.services),
        entry=settings.places.gateway,
        pool_file=folder.envoy_endpoints_file,
    )


def _of_pool(settings: Settings, *, at: int) -> Settings:
    return replace(settings, model=settings.models[at], models=())


def _named(pool: StackPlan, short: str, *, first: bool) -> StackPlan:
    """Let the parts of one of several pools be known by its model; the ports that people know are the first one's."""
    names = {"simulator": f"simulator-{short}-{{n}}", "picker": f"picker-{short}"}
    deployments = [
        replace(each, naming=names.get(each.role, each.naming), pinned=each.pinned if first else {})
        for each in pool.deployments
    ]
    return replace(pool, deployments=tuple(deployments))


def _simulators(rendered: Deployment, settings: Settings) -> Deployment:
    return replace(rendered, naming="simulator-{n}", first_port=settings.first_simulator_port)


def _picker(rendered: Deployment, settings: Settings) -> Deployment:
    """Let the picker have the person's configuration, or else its own default, instead of the rendered one."""
    places, arguments = settings.places, rendered.arguments
    nobody_chose = flags.value(arguments, "config-file") in rendered.files
    return replace(
        rendered,
        naming="picker",
        pinned={
            PICKER_PORTS["grpc"]: places.picker_grpc,
            PICKER_PORTS["health"]: places.picker_health,
            PICKER_PORTS["metrics"]: places.picker_metrics,
        },
        arguments=flags.without(arguments, ("config-file",)) if nobody_chose else arguments,
        files={},
    )


def _gateway(rendered: Deployment, settings: Settings) -> Deployment:
    workers = ("--concurrency", str(settings.envoy_workers))
    return replace(
        rendered,
        naming="envoy",
        pinned={LISTEN: settings.places.gateway, ADMIN: settings.places.admin},
        arguments=(*flags.without(rendered.arguments, ("concurrency",)), *workers),
    )


_LAID_OUT = {"simulator": _simulators, "picker": _picker, "gateway": _gateway}
