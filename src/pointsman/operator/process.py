"""The operator as a process: one runtime for the whole cluster, or one for each namespace that it may see.

With namespaces named, nothing outside them is read, so Roles are enough; each namespace then has its own caches and
its own lease, in that namespace. Health and metrics are one each, over all of them; metrics are for those whom the API
server lets read them, where there is a `guard`.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.api.llminferenceservice import SERVICE
from pointsman.api.simulator import SIMULATOR_DEPLOYMENT
from pointsman.core import health, loop
from pointsman.core.errors import UserError
from pointsman.core.families import CONTENT_TYPE
from pointsman.core.http import Response
from pointsman.core.logs import get_logger
from pointsman.core.numbers import whole
from pointsman.kube import Client, Key, LeaseTerms, Runtime
from pointsman.kube.guard import Guard
from pointsman.kube.metrics import RuntimeMetrics
from pointsman.operator import crds, probes
from pointsman.operator.facts import ServerVersion, ask
from pointsman.operator.kinds import LEASE, LLM_LEASE, LLM_OWNERSHIP, OWNERSHIP
from pointsman.operator.llminferenceservice import LLMInferenceServices
from pointsman.operator.probes import Reach
from pointsman.operator.schedulerinstall import Schedulers
from pointsman.operator.simulatordeployment import Simulators
from pointsman.render.manifests.policy import Policy
from pointsman.render.serving.settings import ServingSettings

log = get_logger(__name__)

_MUST = (SIMULATOR_DEPLOYMENT, SERVICE)
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, kw_only=True)
class ProcessPlan:
    """What the process is to do; addresses are `host:port`, and an empty one serves nothing."""

    namespaces: Sequence[str] = ()
    lead: bool = False
    metrics_address: str = ""
    health_address: str = ""
    policy: Policy = field(default_factory=Policy)
    terms: LeaseTerms | None = None
    own_inference_crds: bool = False
    llm: ServingSettings | None = None
    """How LLMInferenceServices are looked after; without it they are not."""
    reach: Reach = probes.itself


class OperatorProcess:
    """The runtimes of one operator process."""

    def __init__(
        self,
        client: Client,
        plan: ProcessPlan,
        *,
        environment: Mapping[str, str] = os.environ,
        guard: Guard | None = None,
    ) -> None:
        self._plan = plan
        self._client = client
        self._guard = guard
        self._server = ServerVersion()
        self.metrics = RuntimeMetrics()
        home = own_namespace(environment)
        self.runtimes = [self._runtime(namespace, home=home) for namespace in plan.namespaces or ("",)]
        if plan.llm is not None:
            self.runtimes += [self._services(name, plan.llm, home=home) for name in plan.namespaces or ("",)]
        if plan.own_inference_crds:
            self.runtimes.append(self._definitions(home=home))

    async def serve(self) -> None:
        """Run until SIGTERM or SIGINT, then end in order: work stops, the lease is given back."""
        await loop.run_until_told(self.run())

    async def run(self) -> None:
        """Run until cancelled."""
        async with AsyncExitStack() as serving:
            for flag, (address, routes) in self._routes().items():
                host, port = split_address(address)
                guard = self._guard if "/metrics" in routes else None  # a probe has no token
                served = health.serve(routes, host=host, port=port, flag=flag, guard=guard)
                bound = await serving.enter_async_context(served)
                log.info("serving", paths=" ".join(routes), port=bound)
            self._server = await ask(self._client)
            async with asyncio.TaskGroup() as group:
                for runtime in self.runtimes:
                    group.create_task(runtime.run())

    def _runtime(self, namespace: str, *, home: str) -> Runtime:
        lease = Key(namespace or home, LEASE) if self._plan.lead else None
        runtime = Runtime(self._client, ownership=OWNERSHIP, lease=lease, terms=self._plan.terms, metrics=self.metrics)
        simulators = Simulators(runtime, server=lambda: self._server, policy=self._plan.policy)
        runtime.add(simulators.controller(namespace=namespace))
        schedulers = Schedulers(runtime, server=lambda: self._server, policy=self._plan.policy, namespace=namespace)
        runtime.add(schedulers.controller())
        return runtime

    def _services(self, namespace: str, settings: ServingSettings, *, home: str) -> Runtime:
        """Return a runtime of its own: it may read what the rest of us may not."""
        lease = Key(namespace or home, LLM_LEASE) if self._plan.lead else None
        runtime = Runtime(
            self._client, ownership=LLM_OWNERSHIP, lease=lease, terms=self._plan.terms, metrics=self.metrics
        )
        services = LLMInferenceServices(
            runtime,
            server=lambda: self._server,
            policy=self._plan.policy,
            settings=settings,
            reach=self._plan.reach,
        )
        runtime.add(services.controller(namespace=namespace))
        return runtime

    def _definitions(self, *, home: str) -> Runtime:
        """Return a runtime of its own: definitions have no namespace, whichever ones the rest of us may see."""
        lease = Key(home, crds.LEASE) if self._plan.lead else None
        runtime = Runtime(
            self._client, ownership=crds.OWNERSHIP, lease=lease, terms=self._plan.terms, metrics=self.metrics
        )
        crds.InferenceDefinitions(runtime).start()
        return runtime

    def _routes(self) -> dict[str, tuple[str, health.Routes]]:
        """Return what is served where, under the flag that says where."""
        probes: health.Routes = {"/healthz": lambda: health.text(200, "ok\n"), "/readyz": self._ready}
        served = {
            "--health-probe-bind-address": (self._plan.health_address, probes),
            "--metrics-bind-address": (self._plan.metrics_address, {"/metrics": self._scrape}),
        }
        return {flag: (address, routes) for flag, (address, routes) in served.items() if address}

    def _ready(self) -> Response:
        """A replica is ready when it follows what it must; parts that it may not read are told in conditions."""
        missing = [one for runtime in self.runtimes for one in runtime.unfollowed()]
        return health.readiness(one for one in missing if one.state != "forbidden" or one.kind in _MUST)

    def _scrape(self) -> Response:
        return Response(200, self.metrics.render(), CONTENT_TYPE)


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of `:8080`, `127.0.0.1:8080` or `[::1]:8080`.

    Raises UserError when it is not one.
    """
    host, colon, port = text.rpartition(":")
    number = whole(port, most=65_535)
    if not colon or number is None:
        raise UserError(f"{text!r} is not an address: write host:port, or :port for all addresses")
    return host.strip("[]") or "0.0.0.0", number  # noqa: S104 - kubelet asks the Pod's address


def own_namespace(environment: Mapping[str, str]) -> str:
    """Return where this process runs, for its lease."""
    named = environment.get("POD_NAMESPACE") or environment.get("NAMESPACE")
    if named:
        return named
    return _ACCOUNT.read_text().strip() if _ACCOUNT.exists() else "default"
