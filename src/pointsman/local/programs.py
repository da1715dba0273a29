"""The command lines of the parts, and how each shows that it serves. Pure but for the probes, which only ask.

`program` makes the process of a Deployment's Pods: its own flags, then those that say where it is on this machine, so
that ours win. `standard` is the plan of `pointsman up` without a file.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.core.documents import parse_yaml
from pointsman.local import envoys, flags
from pointsman.local.http import get
from pointsman.local.plan import Deployment, Plan, Ports, Service
from pointsman.local.processes import Probe, Program
from pointsman.local.state import Folder
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.bootstrap import bootstrap
from pointsman.render.envoy.gateway import FailureMode, FilePool, Gateway

NAMESPACE = "local"
HTTP, LISTEN, ADMIN = 8200, 80, 19_000
GRPC, HEALTH, METRICS = 9002, 9003, 9090
_BOOTSTRAP = "/etc/envoy/envoy.json"
_PORT_FLAGS = ("grpc-port", "grpc-health-port", "metrics-port", "host")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A stack with every port settled."""

    gateway: Address
    admin: Address
    picker_grpc: Address
    picker_health: Address
    picker_metrics: Address
    first_simulator_port: int
    replicas: int
    model: str
    envoy: Path
    envoy_workers: int
    config: Path | None = None
    failure_mode: FailureMode = "FailClose"
    picker_tls: bool = True
    simulator_arguments: tuple[str, ...] = ()
    picker_arguments: tuple[str, ...] = ()

    def to_gateway(self, *, endpoints_file: Path) -> Gateway:
        """Return what the Envoy renderer needs of it."""
        return Gateway(
            listen=Address("0.0.0.0", LISTEN),  # noqa: S104 - as a Pod's; it becomes loopback with all the rest
            admin=Address("127.0.0.1", ADMIN),
            pickers=(Address("picker.local", GRPC),),
            picker_tls=self.picker_tls,
            failure_mode=self.failure_mode,
            pool=FilePool(str(endpoints_file)),
        )


def standard(settings: Settings, *, folder: Folder) -> Plan:
    """Return the stack of `pointsman up`: simulators, a picker, a gateway."""
    return Plan(
        deployments=(_simulators(settings), _picker(settings), _gateway(settings, folder=folder)),
        services=(Service(name="picker", selector={"app": "picker"}, ports={GRPC: GRPC}, headless=True),),
        entry=settings.gateway,
        model=settings.model,
        failure_mode=settings.failure_mode,
        pool_file=folder.envoy_endpoints_file,
    )


def _simulators(settings: Settings) -> Deployment:
    return Deployment(
        name="simulator",
        role="simulator",
        naming="simulator-{n}",
        replicas=settings.replicas,
        labels={"app": "sim"},
        ports=(HTTP,),
        first_port=settings.first_simulator_port,
        arguments=("--model", settings.model, *settings.simulator_arguments),
    )


def _picker(settings: Settings) -> Deployment:
    config = ("--config-file", str(settings.config)) if settings.config else ()
    tls = f"--secure-serving={str(settings.picker_tls).lower()}"
    return Deployment(
        name="picker",
        role="picker",
        naming="picker",
        replicas=1,
        labels={"app": "picker"},
        ports=(GRPC, HEALTH, METRICS),
        pinned={GRPC: settings.picker_grpc, HEALTH: settings.picker_health, METRICS: settings.picker_metrics},
        # Envoy is gone before the picker is asked to go.
        arguments=(tls, *config, *("--drain-timeout", "1s"), *settings.picker_arguments),
    )


def _gateway(settings: Settings, *, folder: Folder) -> Deployment:
    document = bootstrap(settings.to_gateway(endpoints_file=folder.envoy_endpoints_file))
    return Deployment(
        name="envoy",
        role="gateway",
        naming="envoy",
        replicas=1,
        labels={"app": "envoy"},
        ports=(LISTEN, ADMIN),
        pinned={LISTEN: settings.gateway, ADMIN: settings.admin},
        arguments=("--config-path", _BOOTSTRAP, *envoy_flags(settings.envoy_workers)),
        files={_BOOTSTRAP: json.dumps(document, indent=1)},
    )


def envoy_flags(workers: int) -> tuple[str, ...]:
    """Return how an Envoy of ours runs beside others on one machine."""
    return (
        *("--concurrency", str(workers)),
        *("--log-level", "warning", "--component-log-level", "ext_proc:error"),  # the access log has each failure
        "--use-dynamic-base-id",
    )


def program(
    deployment: Deployment, *, names: Sequence[str], homes: Sequence[Ports], folder: Folder, envoy: Path
) -> Program:
    """Return the process of these Pods; only simulators are several in one."""
    if deployment.role == "simulator":
        return simulators(deployment, names=names, homes=homes)
    (name,), (ports,) = names, homes
    if deployment.role == "picker":
        return picker(deployment, name=name, ports=ports, folder=folder)
    return gateway(deployment, name=name, ports=ports, folder=folder, envoy=envoy)


def simulators(deployment: Deployment, *, names: Sequence[str], homes: Sequence[Ports]) -> Program:
    """Return the model servers of one process, on ports in a row."""
    (port,) = deployment.ports
    first, last = homes[0][port], homes[-1][port]
    pods = ("--pods", str(len(names))) if len(names) > 1 else ()
    where = ("--host", first.host, "--port", str(first.port), *pods)
    return Program(
        name=names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}",
        command=_ours("sim", *deployment.arguments, *where),
        environment=_identity(deployment, names=names, host=first.host),
        probe=_answers(last, "/health"),  # the last to listen
    )


def picker(deployment: Deployment, *, name: str, ports: Ports, folder: Folder) -> Program:
    """Return a picker."""
    paths = _paths(deployment, name=name, folder=folder)
    given = flags.relocated(flags.without(deployment.arguments, _PORT_FLAGS), paths=paths)
    grpc, health, metrics = (ports[port] for port in deployment.ports)
    where = (
        *("--host", grpc.host),
        *("--grpc-port", str(grpc.port)),
        *("--grpc-health-port", str(health.port)),
        *("--metrics-port", str(metrics.port)),
        *("--endpoints-file", str(folder.picker_file(deployment.group))),
    )
    # What is under way when another picker takes its place is finished.
    drain = () if flags.value(given, "drain-timeout") else ("--drain-timeout", "10s")
    return Program(
        name=name,
        command=_ours("epp", *given, *drain, *where),
        environment=_identity(deployment, names=[name], host=grpc.host),
        probe=_answers(metrics, "/healthz"),
        files={Path(here): deployment.files[there] for there, here in paths.items()},
        grace=15.0,
    )


def gateway(deployment: Deployment, *, name: str, ports: Ports, folder: Folder, envoy: Path) -> Program:
    """Return an Envoy."""
    paths = _paths(deployment, name=name, folder=folder)
    identity = _identity(deployment, names=[name], host="127.0.0.1")
    given = flags.expanded(flags.relocated(deployment.arguments, paths=paths), variables=identity)
    documents = {
        Path(paths[there]): envoys.localized(
            parse_yaml(text, name=there), ports=ports, file=lambda backend: folder.endpoints_file(backend.name)
        )
        for there, text in deployment.files.items()
    }
    return Program(
        name=name,
        command=(str(envoy), *given),
        probe=_answers(ports[deployment.ports[-1]], "/ready"),
        files={path: json.dumps(document, indent=1) for path, document in documents.items()},
    )


def relay(*, admin: Address, folder: Folder, envoy: Path) -> Program:
    """Return the Envoy that stands for all Services."""
    document = envoys.relay(admin=admin, listeners_file=folder.listeners_file, clusters_file=folder.clusters_file)
    path = folder.config_file("services", "envoy.json")
    return Program(
        name="services",
        command=(str(envoy), "--config-path", str(path), *envoy_flags(1)),
        probe=_answers(admin, "/ready"),
        files={path: json.dumps(document, indent=1)},
    )


def _identity(deployment: Deployment, *, names: Sequence[str], host: str) -> dict[str, str]:
    namespace = deployment.namespace
    return {"POD_NAME": ",".join(names), "POD_NAMESPACE": namespace, "POD_IP": host, "NAMESPACE": namespace}


def _paths(deployment: Deployment, *, name: str, folder: Folder) -> Mapping[str, str]:
    return {there: str(folder.config_file(name, Path(there).name)) for there in deployment.files}


def _ours(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pointsman", *arguments)


def _answers(address: Address, path: str) -> Probe:
    async def probe() -> bool:
        answer = await get(address, path)
        return answer is not None and answer.status == 200

    return probe


def picker_endpoints(replicas: Sequence[tuple[str, Address]]) -> dict[str, Any]:
    """Return the document by which the picker learns of model servers that have nothing but a name."""
    return {"endpoints": [endpoint(name, address, labels={"app": "sim"}) for name, address in replicas]}


def endpoint(name: str, address: Address, *, labels: Mapping[str, str], namespace: str = NAMESPACE) -> dict[str, Any]:
    """Return one model server as the picker's file has it."""
    where = {"address": address.host, "port": address.port}
    return {"name": name, "namespace": namespace, **where, "labels": dict(labels)}
