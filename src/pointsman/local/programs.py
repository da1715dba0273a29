"""The command lines of the parts, and how each shows that it serves. Pure but for the probes, which only ask.

`program` makes the process of a Deployment's Pods: its own flags, then those that say where it is on this machine, so
that ours win.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pointsman.api.simulator import PICKER_PORTS
from pointsman.core import flags
from pointsman.core.documents import parse_yaml
from pointsman.local import envoys
from pointsman.local.http import get
from pointsman.local.plan import Deployment, Ports
from pointsman.local.processes import Probe, Program
from pointsman.local.several import ROUTER_PORTS
from pointsman.local.state import Folder
from pointsman.render.envoy.addresses import Address

NAMESPACE = "local"
_RELAY = ("--concurrency", "1", "--log-level", "warning", "--use-dynamic-base-id")
_PORT_FLAGS = ("grpc-port", "grpc-health-port", "metrics-port", "host")


def program(
    deployment: Deployment, *, names: Sequence[str], homes: Sequence[Ports], folder: Folder, envoy: Path
) -> Program:
    """Return the process of these Pods; only simulators are several in one."""
    if deployment.role == "simulator":
        return simulators(deployment, names=names, homes=homes)
    (name,), (ports,) = names, homes
    if deployment.role == "picker":
        return picker(deployment, name=name, ports=ports, folder=folder)
    if deployment.role == "router":
        return router(deployment, name=name, ports=ports)
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
    grpc, health, metrics = (ports[port] for port in PICKER_PORTS.values())
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


def router(deployment: Deployment, *, name: str, ports: Ports) -> Program:
    """Return a body-based router; there is no cluster for it, whatever the person's own environment says."""
    grpc, health, metrics = (ports[port] for port in ROUTER_PORTS.values())
    where = (
        *("--host", grpc.host),
        *("--grpc-port", str(grpc.port)),
        *("--grpc-health-port", str(health.port)),
        *("--metrics-port", str(metrics.port)),
    )
    return Program(
        name=name,
        command=_ours("bbr", *deployment.arguments, *where),
        environment={"KUBECONFIG": "", "KUBERNETES_SERVICE_HOST": ""},
        probe=_answers(metrics, "/healthz"),
    )


def gateway(deployment: Deployment, *, name: str, ports: Ports, folder: Folder, envoy: Path) -> Program:
    """Return an Envoy; its configuration is written as JSON."""
    paths = _paths(deployment, name=name, folder=folder, suffix=".json")
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
        command=(str(envoy), "--config-path", str(path), *_RELAY),
        probe=_answers(admin, "/ready"),
        files={path: json.dumps(document, indent=1)},
    )


def _identity(deployment: Deployment, *, names: Sequence[str], host: str) -> dict[str, str]:
    namespace = deployment.namespace
    return {"POD_NAME": ",".join(names), "POD_NAMESPACE": namespace, "POD_IP": host, "NAMESPACE": namespace}


def _paths(deployment: Deployment, *, name: str, folder: Folder, suffix: str = "") -> Mapping[str, str]:
    found = {there: folder.config_file(name, Path(there).name) for there in deployment.files}
    return {there: str(here.with_suffix(suffix or here.suffix)) for there, here in found.items()}


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
