"""The command lines of the parts, and how each shows that it serves. Pure but for the probes, which only ask."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.local.http import get
from pointsman.local.processes import Probe, Program
from pointsman.render.addresses import Address
from pointsman.render.gateway import FailureMode, FilePool, Gateway

NAMESPACE = "local"


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

    def addresses(self) -> tuple[Address, ...]:
        """Return where everything but the simulators listens."""
        return (self.gateway, self.admin, self.picker_grpc, self.picker_health, self.picker_metrics)

    def to_gateway(self, *, endpoints_file: Path) -> Gateway:
        """Return what the Envoy renderer needs of it."""
        return Gateway(
            listen=self.gateway,
            admin=self.admin,
            pickers=(self.picker_grpc,),
            picker_tls=self.picker_tls,
            failure_mode=self.failure_mode,
            pool=FilePool(str(endpoints_file)),
        )


def simulators(settings: Settings, *, names: Sequence[str], first: Address) -> Program:
    """Return the model servers of one process, on ports in a row."""
    last = Address(first.host, first.port + len(names) - 1)
    pods = ("--pods", str(len(names))) if len(names) > 1 else ()
    flags = (*("--port", str(first.port), "--model", settings.model), *pods)
    return Program(
        name=names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}",
        command=_ours("sim", *flags, *settings.simulator_arguments),
        environment={"POD_NAME": ",".join(names), "POD_NAMESPACE": NAMESPACE, "POD_IP": first.host},
        probe=_answers(last, "/health"),  # the last to listen
    )


def picker(settings: Settings, *, endpoints_file: Path) -> Program:
    """Return the picker."""
    flags = [
        *("--host", settings.picker_grpc.host),
        *("--grpc-port", str(settings.picker_grpc.port)),
        *("--grpc-health-port", str(settings.picker_health.port)),
        *("--metrics-port", str(settings.picker_metrics.port)),
        *("--endpoints-file", str(endpoints_file)),
        *("--drain-timeout", "1s"),  # Envoy is gone before the picker is asked to go
        f"--secure-serving={str(settings.picker_tls).lower()}",
    ]
    if settings.config:
        flags += ["--config-file", str(settings.config)]
    command = _ours("epp", *flags, *settings.picker_arguments)
    return Program(name="picker", command=command, probe=_answers(settings.picker_metrics, "/healthz"))


def envoy(settings: Settings, *, bootstrap_file: Path) -> Program:
    """Return the gateway."""
    command = (
        *(str(settings.envoy), "--config-path", str(bootstrap_file)),
        *("--concurrency", str(settings.envoy_workers)),
        *("--log-level", "warning", "--component-log-level", "ext_proc:error"),  # the access log has each failure
        "--use-dynamic-base-id",  # several stacks on one machine
    )
    return Program(name="envoy", command=command, probe=_answers(settings.admin, "/ready"))


def _ours(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pointsman", *arguments)


def _answers(address: Address, path: str) -> Probe:
    async def probe() -> bool:
        answer = await get(address, path)
        return answer is not None and answer.status == 200

    return probe


def picker_endpoints(replicas: Sequence[tuple[str, Address]]) -> dict[str, Any]:
    """Return the document by which the picker learns of the model servers."""
    return {
        "endpoints": [
            {
                "name": name,
                "namespace": NAMESPACE,
                "address": address.host,
                "port": address.port,
                "labels": {"app": "sim"},
            }
            for name, address in replicas
        ]
    }
