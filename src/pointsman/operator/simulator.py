"""The controller of SimulatorDeployment: render, converge, report.

Owns no decision about the stack (that is `render`) and none about its condition (`findings`). It sees to it that
nothing of another is touched, that what the server refuses becomes a condition with its fix, and that status is
written when it changes, at most every `PAUSE` while numbers move.

An object under deletion is left alone: the garbage collector takes what carries our owner reference, in whichever
order was asked for, and a write would bring it back.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

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
    merge,
    owned,
    owner_of,
)
from pointsman.kube.errors import ApiError, Forbidden, Invalid
from pointsman.kube.store import Entry
from pointsman.operator.facts import Server, Sight
from pointsman.operator.findings import Observed, failed, look
from pointsman.operator.kinds import DEPLOYMENT, GATEWAY, GATEWAY_CLASS, MADE, OWNERSHIP, POD
from pointsman.render.names import STACK
from pointsman.render.stack import Stack, stack

PAUSE = 0.25
WORKERS = 16
_LOOK_AGAIN = 15.0  # whether a name that was taken is free: no event of ours would tell


class Simulators:
    """Reconciles SimulatorDeployments."""

    def __init__(self, runtime: Runtime, *, server: Callable[[], Server]) -> None:
        self._runtime = runtime
        self._server = server
        self._sight = Sight()
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
        rendered = stack(await self._parse(live), self._sight.facts(view, self._server()))
        await self._converge(live, rendered)
        return await self._report(live, rendered, view)

    async def _parse(self, live: Object) -> SimulatorDeployment:
        """Read the resource; the server checked it, but perhaps against an older definition."""
        try:
            return SimulatorDeployment.model_validate(live)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            message = f"{field}: {first['msg']}: apply the current definition (config/crd) and correct the field"
            await self._fail(live, "InvalidSpec", message)
            raise Terminal(message) from None

    async def _converge(self, live: Object, rendered: Stack) -> None:
        owner = owner_of(SIMULATOR_DEPLOYMENT, live)
        kinds = [kind for kind in MADE if self._runtime.view.state(kind) != "absent"]
        try:
            await self._runtime.applier.converge(owner, rendered.objects, kinds=kinds)
        except Conflict as conflict:
            message = f"{conflict}; or set spec.nameSuffix"
            also = [Condition("Conflict", "True", "NameTaken", message)]
            await self._fail(live, "Conflict", message, also=also)
            raise Retry(message, delay=_LOOK_AGAIN) from None
        except Forbidden as error:
            await self._fail(live, "Forbidden", f"{error}: grant it (config/rbac), or raise the quota")
            raise Retry(str(error)) from None
        except Invalid as error:
            await self._fail(live, "Refused", f"the API server refused an object of the stack: {error}")
            raise Retry(str(error)) from None
        except ApiError as error:
            await self._fail(live, "ApiError", str(error))
            raise

    async def _report(self, live: Object, rendered: Stack, view: View) -> Result | None:
        """Write the status; soon, if the last one is not old enough: numbers come in bursts."""
        found = look(rendered, self._observe(live, view))
        key, now = Key(live["metadata"]["namespace"], live["metadata"]["name"]), asyncio.get_running_loop().time()
        since = now - self._told.get(key, float("-inf"))
        if since < PAUSE:
            return Result(again=PAUSE - since)
        blind = [str(kind) for kind in (*MADE, GATEWAY_CLASS, POD) if view.state(kind) == "forbidden"]
        extra = [_blindness(blind)] if blind else []
        status = {
            "replicas": found.replicas,
            "readyReplicas": found.ready_replicas,
            "selector": found.selector,
            "endpoints": list(found.endpoints),
            **({"gatewayURL": found.gateway_url} if found.gateway_url else {}),
        }
        if await self._write(live, status, [*found.conditions, *extra]):
            self._told[key] = now
        return None

    def _observe(self, live: Object, view: View) -> Observed:
        uid, namespace = live["metadata"]["uid"], live["metadata"]["namespace"]

        def ours(kind: Kind) -> dict[str, Object]:
            return {item.key.name: item.read() for item in view.find(kind, OWNERSHIP.label, uid)}

        pods = view.find(POD, STACK, f"{namespace}/{live['metadata']['name']}")
        return Observed(deployments=ours(DEPLOYMENT), gateways=ours(GATEWAY), pods=[item.read() for item in pods])

    async def _fail(self, live: Object, reason: str, message: str, *, also: Iterable[Condition] = ()) -> None:
        """Say what went wrong, where people look: in the status and as an Event. The numbers stay as they were."""
        known = live.get("status", {})
        numbers = ("replicas", "readyReplicas", "selector", "endpoints", "gatewayURL")
        await self._write(
            live, {name: known[name] for name in numbers if name in known}, failed(reason, message, also=also)
        )
        self._runtime.events.record(live, reason=reason, message=message, severity="Warning")

    async def _write(self, live: Object, status: Mapping[str, Any], found: Iterable[Condition]) -> bool:
        findings = list(found)
        generation = live["metadata"].get("generation", 0)
        spoken = {finding.type for finding in findings}
        known = [one for one in live.get("status", {}).get("conditions", []) if one["type"] in spoken]
        conditions = merge(known, findings, generation=generation, now=self._runtime.wall())
        whole = {"observedGeneration": generation, **status, "conditions": conditions}
        return await self._runtime.applier.status(SIMULATOR_DEPLOYMENT, live, whole)


def _by_stack(item: Entry) -> Iterable[str]:
    name = (item.meta.labels or {}).get(STACK)
    return () if name is None else (f"{item.key.namespace}/{name}",)


def _stack_of(item: Entry, _: View) -> Iterable[Key]:
    return [Key(item.key.namespace, value.partition("/")[2]) for value in _by_stack(item)]


def _everyone(_: Entry, view: View) -> Iterable[Key]:
    return [item.key for item in view.entries(SIMULATOR_DEPLOYMENT)]


def _blindness(kinds: list[str]) -> Condition:
    message = f"the operator may not read {', '.join(kinds)}, so what depends on it is left out: grant it (config/rbac)"
    return Condition("ClusterAccess", "False", "Forbidden", message)
