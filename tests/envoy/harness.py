"""A stack whose parts a test can break one by one: real Envoy, real picker, real simulators, ports of its own.

Unlike `pointsman up` nothing here is restarted by itself; a test that kills a part starts it again or does not. The
judge of every test is `x-inference-pod`, the name of the simulator that answered, held against the picker's pick.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ports import fresh_port
from tests.waiting import until

from pointsman.api.simulator import PICKER_PORTS
from pointsman.core.documents import to_yaml
from pointsman.core.files import replace
from pointsman.local import programs
from pointsman.local.envoys import Backend, Host, assignment, backends, localized
from pointsman.local.http import get
from pointsman.local.processes import die_with_parent
from pointsman.local.publisher import hosts
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.bootstrap import bootstrap
from pointsman.render.envoy.clusters import endpoints
from pointsman.render.envoy.filters import EXT_PROC
from pointsman.render.envoy.gateway import FailureMode, FilePool, Gateway, ServicePool
from pointsman.render.envoy.limits import GatewayLimits
from pointsman.render.envoy.paths import INFERENCE
from pointsman.render.manifests import proxy

MODEL = "test/model"
PATIENCE = 20.0


def here(port: int) -> Address:
    return Address("127.0.0.1", port)


@dataclass
class Part:
    """One process of the stack."""

    name: str
    command: Sequence[str]
    health: tuple[Address, str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    child: "subprocess.Popen[bytes] | None" = None

    async def start(self) -> None:
        self.launch()
        await self.healthy()

    def launch(self) -> None:
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(  # from the main thread: it dies with us
                self.command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, takes no lock
            )

    async def healthy(self) -> None:
        async def answers() -> bool:
            assert self.child is not None and self.child.poll() is None, self.log.read_text()[-2000:]
            answer = await get(*self.health)
            return answer is not None and answer.status == 200

        await until(answers)

    def send(self, number: signal.Signals) -> None:
        assert self.child is not None
        self.child.send_signal(number)

    def kill(self) -> None:
        """End it without a chance to say goodbye."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None

    async def ended(self) -> int:
        async def gone() -> bool:
            assert self.child is not None
            return self.child.poll() is not None

        await until(gone)
        assert self.child is not None
        return int(self.child.returncode)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How a test wants its stack."""

    replicas: int = 3
    pickers: int = 1
    failure_mode: FailureMode = "FailClose"
    tls: bool = False
    by_address: bool = False
    """Envoy has no list of the endpoints: it goes where the picker says, and to pod-0 when nobody does."""
    simulator: tuple[str, ...] = ()
    picker: tuple[str, ...] = ()
    bootstrap: Mapping[str, Any] | None = None
    """Envoy's configuration as a cluster's Pod would have it, with this stack in the place of the Services' Pods."""
    ext_proc: Mapping[str, Any] = field(default_factory=dict)
    """What is different in the filter that asks the picker."""
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    paths: tuple[str, ...] = INFERENCE


class Lab:
    """The stack of one test."""

    def __init__(self, folder: Path, *, envoy: Path, wishes: Wishes) -> None:
        self.folder, self.wishes = folder, wishes
        self.gateway, self.admin = here(fresh_port()), here(fresh_port())
        self.url = f"http://{self.gateway}"
        self.pods = {f"pod-{n}": here(fresh_port()) for n in range(wishes.replicas)}
        self.picker_metrics = [here(fresh_port()) for _ in range(wishes.pickers)]
        self._eds, self._endpoints = folder / "eds.json", folder / "endpoints.yaml"
        self._version = 0
        self.simulators = {name: self._simulator(name) for name in self.pods}
        self.picker_addresses = [here(fresh_port()) for _ in range(wishes.pickers)]
        self.pickers = [self._picker(n, address) for n, address in enumerate(self.picker_addresses)]
        self.envoy = self._envoy(envoy)

    # life

    async def start(self) -> None:
        self.envoy_knows(self.pods)
        self.picker_knows(self.pods)
        for part in (*self.simulators.values(), *self.pickers):
            part.launch()
        for part in (*self.simulators.values(), *self.pickers):
            await part.healthy()
        await self.envoy.start()
        await until(self.answers)

    async def answers(self) -> bool:
        answer = await get(self.gateway, "/v1/models")
        return answer is not None and answer.status == 200

    def close(self) -> None:
        for part in (self.envoy, *self.pickers, *self.simulators.values()):
            part.kill()

    # what Envoy and the picker know

    def envoy_knows(self, names: Sequence[str] | Mapping[str, Address]) -> None:
        self._version += 1
        document = endpoints([self.pods[name] for name in names], version=str(self._version))
        replace(self._eds, json.dumps(document))

    async def envoy_has(self, names: Sequence[str] | Mapping[str, Address]) -> None:
        """Give Envoy these endpoints and wait until it has them."""
        self.envoy_knows(names)

        async def taken() -> bool:
            answer = await get(self.admin, "/clusters")
            return answer is not None and hosts(answer.body.decode()) == {str(self.pods[name]) for name in names}

        await until(taken)

    def picker_knows(
        self, names: Sequence[str] | Mapping[str, Address], *, labels: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        document = programs.picker_endpoints([(name, self.pods[name]) for name in names])
        for row in document["endpoints"]:
            row["labels"] = {**row.get("labels", {}), **(labels or {}).get(row["name"], {})}
        replace(self._endpoints, to_yaml(document))

    async def picker_has(self, names: Sequence[str] | Mapping[str, Address]) -> None:
        """Give the picker these endpoints and wait until it has them."""
        self.picker_knows(names)

        async def taken() -> bool:
            return set(await self.inflight()) == set(names)

        await until(taken)

    # what the picker says

    async def _ask(self, path: str, *, picker: int) -> Any:
        answer = await until(lambda: get(self.picker_metrics[picker], path))
        assert answer.status == 200, (path, answer)
        return json.loads(answer.body)

    async def rows(self, *, picker: int = 0) -> list[dict[str, Any]]:
        document = await self._ask("/debug/endpoints", picker=picker)
        return list(document["endpoints"])

    async def inflight(self) -> dict[str, int]:
        return {row["name"]: row["inflight"] for row in await self.rows()}

    async def picks(self, *, picker: int = 0) -> dict[str, int]:
        return {row["name"]: row["picks"] for row in await self.rows(picker=picker)}

    async def picked(self, request_id: str) -> list[str]:
        """Return the names of the endpoints that the picker chose for the request, best first."""
        (decision,) = (await self._ask(f"/debug/decisions?id={request_id}", picker=0))["decisions"]
        names = {str(address): name for name, address in self.pods.items()}
        return [names[address] for address in decision["picked"]]

    # parts

    def _simulator(self, name: str) -> Part:
        address = self.pods[name]
        flags = ["--port", str(address.port), "--model", MODEL, *self.wishes.simulator]
        return self._part(name, ["sim", *flags], health=(address, "/health"), environment={"POD_NAME": name})

    def _picker(self, number: int, grpc: Address) -> Part:
        metrics = self.picker_metrics[number]
        flags = [
            *("--host", "127.0.0.1", "--grpc-port", str(grpc.port), "--grpc-health-port", str(fresh_port())),
            *("--metrics-port", str(metrics.port), "--endpoints-file", str(self._endpoints)),
            f"--secure-serving={str(self.wishes.tls).lower()}",
        ]
        return self._part(f"picker-{number}", ["epp", *flags, *self.wishes.picker], health=(metrics, "/healthz"))

    def _part(self, name: str, arguments: Sequence[str], **more: Any) -> Part:
        command = [sys.executable, "-m", "pointsman", *arguments]
        return Part(name=name, command=command, log=self.folder / f"{name}.log", **more)

    def _pool(self) -> FilePool | ServicePool:
        if not self.wishes.by_address:
            return FilePool(str(self._eds))
        return ServicePool(service=Address("localhost", self.pods["pod-0"].port))

    def _envoy(self, program: Path) -> Part:
        gateway = Gateway(
            listen=self.gateway,
            admin=self.admin,
            pickers=tuple(self.picker_addresses),
            picker_tls=self.wishes.tls,
            failure_mode=self.wishes.failure_mode,
            pool=self._pool(),
            limits=self.wishes.limits,
            paths=self.wishes.paths,
        )
        config = self.folder / "envoy.json"
        document = self._localized(dict(self.wishes.bootstrap)) if self.wishes.bootstrap else bootstrap(gateway)
        replace(config, json.dumps(self._adapted(document)))
        flags = ["--config-path", str(config), "--concurrency", "2", "--log-level", "warning", "--use-dynamic-base-id"]
        command = [str(program), *flags]
        return Part(name="envoy", command=command, health=(self.admin, "/ready"), log=self.folder / "envoy.log")

    def _localized(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a Pod's configuration for this machine: its ports are ours, and Services have our Pods behind them."""
        places = {proxy.LISTEN: self.gateway, proxy.ADMIN: self.admin, proxy.READY: here(fresh_port())}
        picking = [Host(address, health_port=address.port) for address in self.picker_addresses]
        serving = [Host(address) for address in self.pods.values()]
        for backend in backends(document):
            hosts = picking if backend.port == PICKER_PORTS["grpc"] else serving
            replace(self._file(backend), json.dumps(assignment(backend, hosts)))
        return localized(document, ports=places, file=self._file)

    def _file(self, backend: Backend) -> Path:
        return self.folder / f"{backend.name}.json"

    def _adapted(self, document: dict[str, Any]) -> dict[str, Any]:
        manager = document["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        for each in manager["http_filters"]:
            if each["name"] == EXT_PROC:
                each["typed_config"] |= self.wishes.ext_proc
        return document
