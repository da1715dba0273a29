"""The controller of SimulatorDeployment: render, converge, report.

Owns no decision about the stack (that is `render`) and none about its condition (`findings`). It sees to it that
nothing of another is touched, that what the server refuses becomes a condition with its fix (`failures`), and that
status is written when it changes (`reports`).

What goes beyond the administrator's policy is refused as a whole: nothing is written but the status, and what runs
goes on as it was.

An object under deletion is left alone: the garbage collector takes what carries our owner reference, in whichever
order was asked for, and a write would bring it back.
"""

from collections.abc import Callable, Iterable

from pydantic import ValidationError

from pointsman.api.simulator import SIMULATOR_DEPLOYMENT, SimulatorDeployment
from pointsman.kube import (
    Condition,
    Conflict,
    Controller,
    Key,
    Kind,
    Object,
    Result,
    Retry,
    Runtime,
    Source,
    Terminal,
    View,
    Watch,
    owned,
    owner_of,
)
from pointsman.kube.errors import ApiError
from pointsman.kube.store import Entry
from pointsman.operator.facts import ClusterFacts, ServerVersion
from pointsman.operator.failures import ReconcileFailure, amended, is_leaving, judge, misread, refused
from pointsman.operator.findings import Findings, Observed, look
from pointsman.operator.kinds import DEPLOYMENT, GATEWAY, GATEWAY_CLASS, MADE, OWNERSHIP, POD, source_of
from pointsman.operator.reports import StatusReports
from pointsman.render.manifests.names import STACK
from pointsman.render.manifests.policy import Policy
from pointsman.render.manifests.stack import Stack, stack

WORKERS = 64  # they wait, mostly: for the API server, which is slow to create and quick to read
_SOON = 0.5


class Simulators:
    """Reconciles SimulatorDeployments."""

    def __init__(self, runtime: Runtime, *, server: Callable[[], ServerVersion], policy: Policy) -> None:
        self._runtime = runtime
        self._server = server
        self._policy = policy
        self._sight = ClusterFacts()
        self._reports = StatusReports(runtime, SIMULATOR_DEPLOYMENT)

    def controller(self, *, namespace: str = "") -> Controller:
        """Return the controller, for all namespaces or one."""
        name = f"simulatordeployment-{namespace}" if namespace else "simulatordeployment"
        made = [
            owned(
                kind,
                owner=SIMULATOR_DEPLOYMENT,
                ownership=OWNERSHIP,
                source=source_of(kind, namespace=namespace),
            )
            for kind in MADE
        ]
        pods = Watch(Source(POD, namespace=namespace, labels=STACK), _stack_of, indexes={STACK: _by_stack})
        classes = Watch(Source(GATEWAY_CLASS), _everyone)
        source = Source(SIMULATOR_DEPLOYMENT, namespace=namespace)
        return Controller(name, source, self.reconcile, watches=(*made, pods, classes), workers=WORKERS)

    async def reconcile(self, key: Key, view: View) -> Result | None:
        """Make one stack what its resource says, and its status what is true."""
        live = view.get(SIMULATOR_DEPLOYMENT, key)
        if live is None:
            self._reports.forget(key)
            return None
        if "deletionTimestamp" in live["metadata"]:
            return None
        rendered = stack(await self._parse(live), self._sight.facts(view, self._server()), self._policy)
        trouble = self._refuse(live, rendered) or await self._converge(live, rendered)
        again = await self._report(live, look(rendered, self._observe(live, view)), trouble)
        if trouble is not None:
            raise trouble.error
        return again

    async def _parse(self, live: Object) -> SimulatorDeployment:
        """Read the resource; the server checked it, but perhaps against an older definition."""
        try:
            return SimulatorDeployment.model_validate(live)
        except ValidationError as error:
            message = misread(error)
            await self._reports.write(live, {}, [Condition("Ready", "False", "InvalidSpec", message)])
            raise Terminal(message) from None

    def _refuse(self, live: Object, rendered: Stack) -> ReconcileFailure | None:
        if not rendered.breaches:
            return None
        trouble = refused(rendered.breaches)
        self._runtime.events.record(live, reason=trouble.reason, message=trouble.message, severity="Warning")
        return trouble

    async def _converge(self, live: Object, rendered: Stack) -> ReconcileFailure | None:
        owner = owner_of(SIMULATOR_DEPLOYMENT, live)
        kinds = [kind for kind in MADE if self._runtime.view.state(kind) != "absent"]
        try:
            await self._runtime.applier.converge(owner, rendered.objects, kinds=kinds)
        except (Conflict, ApiError) as error:
            if is_leaving(error):  # the cache will know in a moment, and then the stack does without
                raise Retry(str(error), delay=_SOON) from None
            trouble = judge(error, otherwise="set spec.nameSuffix")
            self._runtime.events.record(live, reason=trouble.reason, message=trouble.message, severity="Warning")
            return trouble
        return None

    async def _report(self, live: Object, found: Findings, trouble: ReconcileFailure | None) -> Result | None:
        blindness = self._reports.blindness((*MADE, GATEWAY_CLASS, POD))
        status = {
            "replicas": found.replicas,
            "readyReplicas": found.ready_replicas,
            "selector": found.selector,
            "endpoints": list(found.endpoints),
            **({"gatewayURL": found.gateway_url} if found.gateway_url else {}),
        }
        conditions = [*amended(found.conditions, trouble), *blindness]
        return await self._reports.report(live, status, conditions, now=trouble is not None)

    def _observe(self, live: Object, view: View) -> Observed:
        uid, namespace = live["metadata"]["uid"], live["metadata"]["namespace"]

        def ours(kind: Kind) -> dict[str, Object]:
            return {item.key.name: item.read() for item in view.find(kind, OWNERSHIP.label, uid)}

        pods = view.find(POD, STACK, f"{namespace}/{live['metadata']['name']}")
        return Observed(deployments=ours(DEPLOYMENT), gateways=ours(GATEWAY), pods=[item.read() for item in pods])


def _by_stack(item: Entry) -> Iterable[str]:
    name = (item.meta.labels or {}).get(STACK)
    return () if name is None else (f"{item.key.namespace}/{name}",)


def _stack_of(item: Entry, _: View) -> Iterable[Key]:
    return [Key(item.key.namespace, value.partition("/")[2]) for value in _by_stack(item)]


def _everyone(_: Entry, view: View) -> Iterable[Key]:
    return [item.key for item in view.entries(SIMULATOR_DEPLOYMENT)]
