"""The controller of SimulatorDeployment: render, converge, report.

Owns no decision about the stack (that is `render`) and none about its condition (`findings`). It sees to it that
nothing of another is touched, that what the server refuses becomes a condition with its fix, and that status is
written when it changes: at once when that is news (`Ready`, or why not, or for which generation), and once in `PAUSE`
while only numbers move, since those come in bursts and every write is felt by the API server.

What goes beyond the administrator's policy is refused as a whole: nothing is written but the status, and what runs
goes on as it was.

An object under deletion is left alone: the garbage collector takes what carries our owner reference, in whichever
order was asked for, and a write would bring it back.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pointsman.api.simulator import SIMULATOR_DEPLOYMENT, SimulatorDeployment
from pointsman.core.errors import PointsmanError
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
    merge,
    owned,
    owner_of,
)
from pointsman.kube.errors import ApiError, Forbidden, Invalid, NotFound
from pointsman.kube.store import Entry
from pointsman.operator.facts import ClusterFacts, ServerVersion
from pointsman.operator.findings import Findings, Observed, look
from pointsman.operator.kinds import DEPLOYMENT, GATEWAY, GATEWAY_CLASS, MADE, OWNERSHIP, POD
from pointsman.render.manifests.names import STACK
from pointsman.render.manifests.policy import Policy, refusal
from pointsman.render.manifests.stack import Stack, stack

PAUSE = 1.0
REFUSED = "LimitExceeded"
_NEWS_PAUSE = 0.25
WORKERS = 64  # they wait, mostly: for the API server, which is slow to create and quick to read
_SOON = 0.5
_LOOK_AGAIN = 5.0  # whether a name that was taken is free: no event of ours would tell


@dataclass(frozen=True)
class StackFailure:
    """Why a stack could not be made what it should be: for people, and for the queue."""

    reason: str
    message: str
    error: PointsmanError


class Simulators:
    """Reconciles SimulatorDeployments."""

    def __init__(self, runtime: Runtime, *, server: Callable[[], ServerVersion], policy: Policy) -> None:
        self._runtime = runtime
        self._server = server
        self._policy = policy
        self._sight = ClusterFacts()
        self._told: dict[Key, float] = {}

    def controller(self, *, namespace: str = "") -> Controller:
        """Return the controller, for all namespaces or one."""
        name = f"simulatordeployment-{namespace}" if namespace else "simulatordeployment"
        made = [
            owned(
                kind,
                owner=SIMULATOR_DEPLOYMENT,
                ownership=OWNERSHIP,
                source=Source(kind, namespace=namespace, labels=OWNERSHIP.selector),
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
            self._told.pop(key, None)
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
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            message = f"{field}: {first['msg']}: apply the current definition (config/crd) and correct the field"
            await self._write(live, {}, [Condition("Ready", "False", "InvalidSpec", message)])
            raise Terminal(message) from None

    def _refuse(self, live: Object, rendered: Stack) -> StackFailure | None:
        if not rendered.breaches:
            return None
        message = refusal(rendered.breaches)
        self._runtime.events.record(live, reason=REFUSED, message=message, severity="Warning")
        return StackFailure(REFUSED, message, Terminal(message))

    async def _converge(self, live: Object, rendered: Stack) -> StackFailure | None:
        owner = owner_of(SIMULATOR_DEPLOYMENT, live)
        kinds = [kind for kind in MADE if self._runtime.view.state(kind) != "absent"]
        try:
            await self._runtime.applier.converge(owner, rendered.objects, kinds=kinds)
        except (Conflict, ApiError) as error:
            if _is_leaving(error):  # the cache will know in a moment, and then the stack does without
                raise Retry(str(error), delay=_SOON) from None
            trouble = _judge(error)
            self._runtime.events.record(live, reason=trouble.reason, message=trouble.message, severity="Warning")
            return trouble
        return None

    async def _report(self, live: Object, found: Findings, trouble: StackFailure | None) -> Result | None:
        """Write the status, or later, if the last one is not old enough."""
        key, now = Key(live["metadata"]["namespace"], live["metadata"]["name"]), asyncio.get_running_loop().time()
        conditions = [*_amended(found.conditions, trouble), *self._blindness()]
        pause = _NEWS_PAUSE if _is_news(conditions, live) else PAUSE
        since = now - self._told.get(key, float("-inf"))
        if since < pause and trouble is None:
            return Result(again=pause - since)
        status = {
            "replicas": found.replicas,
            "readyReplicas": found.ready_replicas,
            "selector": found.selector,
            "endpoints": list(found.endpoints),
            **({"gatewayURL": found.gateway_url} if found.gateway_url else {}),
        }
        if await self._write(live, status, conditions):
            self._told[key] = now
        return None

    def _blindness(self) -> list[Condition]:
        """Say what may not be read: it is left out, and nobody would know why."""
        kinds = [str(kind) for kind in (*MADE, GATEWAY_CLASS, POD) if self._runtime.view.state(kind) == "forbidden"]
        message = (
            f"the operator may not read {', '.join(kinds)}; what depends on it is left out: grant it (config/rbac)"
        )
        return [Condition("ClusterAccess", "False", "Forbidden", message)] if kinds else []

    def _observe(self, live: Object, view: View) -> Observed:
        uid, namespace = live["metadata"]["uid"], live["metadata"]["namespace"]

        def ours(kind: Kind) -> dict[str, Object]:
            return {item.key.name: item.read() for item in view.find(kind, OWNERSHIP.label, uid)}

        pods = view.find(POD, STACK, f"{namespace}/{live['metadata']['name']}")
        return Observed(deployments=ours(DEPLOYMENT), gateways=ours(GATEWAY), pods=[item.read() for item in pods])

    async def _write(self, live: Object, status: Mapping[str, Any], found: Iterable[Condition]) -> bool:
        findings = list(found)
        generation = live["metadata"].get("generation", 0)
        spoken = {finding.type for finding in findings}
        known = [one for one in live.get("status", {}).get("conditions", []) if one["type"] in spoken]
        conditions = merge(known, findings, generation=generation, now=self._runtime.wall())
        whole = {"observedGeneration": generation, **status, "conditions": conditions}
        try:
            return await self._runtime.applier.status(SIMULATOR_DEPLOYMENT, live, whole)
        except NotFound:  # it went while we looked, which is nothing to complain of
            return False


def _by_stack(item: Entry) -> Iterable[str]:
    name = (item.meta.labels or {}).get(STACK)
    return () if name is None else (f"{item.key.namespace}/{name}",)


def _stack_of(item: Entry, _: View) -> Iterable[Key]:
    return [Key(item.key.namespace, value.partition("/")[2]) for value in _by_stack(item)]


def _everyone(_: Entry, view: View) -> Iterable[Key]:
    return [item.key for item in view.entries(SIMULATOR_DEPLOYMENT)]


def _is_leaving(error: Conflict | ApiError) -> bool:
    """Tell whether a write failed because the definition of its kind goes or has just gone."""
    return isinstance(error, NotFound) or "custom resource definition is terminating" in str(error)


def _judge(error: Conflict | ApiError) -> StackFailure:
    """Return what a refusal means for people and for the queue."""
    if isinstance(error, Conflict):
        message = f"{error}; or set spec.nameSuffix"
        return StackFailure("Conflict", message, Retry(message, delay=_LOOK_AGAIN))
    if isinstance(error, Forbidden):
        return StackFailure("Forbidden", f"{error}: grant it (config/rbac), or raise the quota", Retry(str(error)))
    if isinstance(error, Invalid):
        return StackFailure("Refused", f"the API server refused an object of the stack: {error}", Retry(str(error)))
    return StackFailure("ApiError", str(error), error)


def _is_news(conditions: Iterable[Condition], live: Object) -> bool:
    """Tell whether more than numbers differs from what the status says."""
    (ready,) = (found for found in conditions if found.type == "Ready")
    said = live.get("status", {})
    known = {(one["type"], one["status"], one.get("reason")) for one in said.get("conditions", [])}
    seen = said.get("observedGeneration") == live["metadata"].get("generation", 0)
    return not seen or (ready.type, ready.status, ready.reason) not in known


def _amended(conditions: Iterable[Condition], trouble: StackFailure | None) -> list[Condition]:
    """Return the conditions as they are with the trouble: whatever runs, this is not what was asked for."""
    if trouble is None:
        return list(conditions)
    words = {"Ready": Condition("Ready", "False", trouble.reason, trouble.message)}
    if trouble.reason == REFUSED:
        words["Progressing"] = Condition("Progressing", "False", REFUSED, "nothing is changed until that is put right")
    amended = [words.get(found.type, found) for found in conditions]
    if trouble.reason == "Conflict":
        amended.append(Condition("Conflict", "True", "NameTaken", trouble.message))
    return amended
