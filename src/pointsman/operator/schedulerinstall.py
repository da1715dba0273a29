"""The controller of SchedulerInstall: gather what is around it, render, converge in every namespace, report.

Owns no decision about the install (that is `render.scheduler`) and none about its condition (`standing`). Owner
references cannot cross namespaces, so what is made carries the resource's uid as a label, and a finalizer keeps the
resource until all of that is deleted; a namespace that is no longer named loses its part in the same way as a block
that is no longer there.

What a SimulatorDeployment of the model servers' namespace wants for itself (the Service in front of simulators, its
rule) is left to it, also when the install was there first: it gives its own up.
"""

from collections.abc import Callable, Iterable
from typing import NoReturn

from pydantic import ValidationError

from pointsman.api.scheduler import SCHEDULER_INSTALL, SchedulerInstall
from pointsman.api.simulator import SIMULATOR_DEPLOYMENT, SimulatorDeployment
from pointsman.kube import (
    Condition,
    Conflict,
    Controller,
    Key,
    Kind,
    Object,
    Owner,
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
from pointsman.kube.errors import ApiError, Stale
from pointsman.kube.ownership import claim
from pointsman.kube.store import Entry
from pointsman.operator.facts import INSTALL_ASKED, ClusterFacts, ServerVersion
from pointsman.operator.failures import ReconcileFailure, amended, is_leaving, judge, misread, refused
from pointsman.operator.findings import Observed
from pointsman.operator.kinds import (
    DEPLOYMENT,
    ENDPOINT_SLICE,
    GATEWAY,
    GATEWAY_CLASS,
    HTTP_ROUTE,
    INFERENCE_POOL,
    INSTALLED,
    OWNERSHIP,
    POD,
    source_of,
)
from pointsman.operator.reports import StatusReports
from pointsman.operator.standing import InstallSight, Standing, stand
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.names import STACK
from pointsman.render.manifests.policy import Policy
from pointsman.render.manifests.stack import stack
from pointsman.render.scheduler.install import Installed, Surroundings, Taken, install
from pointsman.render.scheduler.picker import SLICE_SERVICE
from pointsman.render.scheduler.places import Places, mark_of, places_of

FINALIZER = "sim.llm-d.io/scheduler-install"
WORKERS = 8
_CONCERNS = "concerns"
_SERVICE, _PARENT = "service", "parent"
_SOON = 0.5


class Schedulers:
    """Reconciles SchedulerInstalls."""

    def __init__(
        self, runtime: Runtime, *, server: Callable[[], ServerVersion], policy: Policy, namespace: str = ""
    ) -> None:
        self._runtime = runtime
        self._server = server
        self._policy = policy
        self._namespace = namespace
        self._sight = ClusterFacts(INSTALL_ASKED)
        self._reports = StatusReports(runtime, SCHEDULER_INSTALL)

    def controller(self) -> Controller:
        """Return the controller, for all namespaces or one."""
        namespace = self._namespace
        made = [
            owned(
                kind,
                owner=SCHEDULER_INSTALL,
                ownership=OWNERSHIP,
                source=source_of(kind, namespace=namespace),
            )
            for kind in INSTALLED
        ]
        indexes = {ENDPOINT_SLICE: {_SERVICE: _by_service}, HTTP_ROUTE: {_PARENT: _by_parent}}
        named = [Watch(one.source, _concerned, indexes.get(one.source.kind, {})) for one in made]
        pods = Watch(Source(POD, namespace=namespace, labels=STACK), _install_of)
        stacks = Watch(Source(SIMULATOR_DEPLOYMENT, namespace=namespace), _concerned)
        classes = Watch(Source(GATEWAY_CLASS), _everyone)
        return Controller(
            f"schedulerinstall-{namespace}" if namespace else "schedulerinstall",
            Source(SCHEDULER_INSTALL, namespace=namespace),
            self.reconcile,
            watches=(*made, *named, pods, stacks, classes),
            indexes={_CONCERNS: _concerns},
            workers=WORKERS,
        )

    async def reconcile(self, key: Key, view: View) -> Result | None:
        """Make one install what its resource says, and its status what is true."""
        live = view.get(SCHEDULER_INSTALL, key)
        if live is None:
            self._reports.forget(key)
            return None
        if "deletionTimestamp" in live["metadata"]:
            return await self._remove(live)
        resource = await self._parse(live)
        if await self._runtime.applier.add_finalizer(SCHEDULER_INSTALL, live, FINALIZER):
            return None  # the resource changed by this, so its turn comes again
        rendered = install(resource, self._around(resource, live, view), self._policy)
        trouble = await self._make(live, rendered)
        again = await self._report(live, rendered, stand(rendered, self._look(live, rendered, view)), trouble)
        if trouble is not None:
            raise trouble.error
        return again

    async def _parse(self, live: Object) -> SchedulerInstall:
        """Read the resource; the server checked it, but perhaps against an older definition."""
        try:
            resource = SchedulerInstall.model_validate(live)
        except ValidationError as error:
            await self._refuse(live, "InvalidSpec", misread(error))
        outside = _beyond(places_of(resource), self._namespace)
        if outside:
            message = f"the operator sees namespace {self._namespace} and not {outside}: let it watch all namespaces"
            await self._refuse(live, "NamespaceNotWatched", message)
        return resource

    async def _refuse(self, live: Object, reason: str, message: str) -> NoReturn:
        await self._reports.write(live, {}, [Condition("Ready", "False", reason, message)])
        raise Terminal(message)

    async def _remove(self, live: Object) -> Result | None:
        """Delete everything in every namespace, and then let the resource go."""
        owner = owner_of(SCHEDULER_INSTALL, live)
        if FINALIZER not in live["metadata"].get("finalizers", []):
            return None
        if not await self._runtime.applier.remove(owner, kinds=self._kinds()):
            return None  # what is still there tells when it goes
        try:
            await self._runtime.applier.drop_finalizer(SCHEDULER_INSTALL, live, FINALIZER)
        except Stale:
            return Result(again=_SOON)
        return None

    async def _make(self, live: Object, rendered: Installed) -> ReconcileFailure | None:
        if rendered.breaches:
            return self._tell(live, refused(rendered.breaches))
        owner = owner_of(SCHEDULER_INSTALL, live)
        kinds = self._kinds()
        there = {(kind.api_version, kind.kind) for kind in kinds}
        objects = [one for one in rendered.objects if (one["apiVersion"], one["kind"]) in there]
        try:
            await self._runtime.applier.converge(owner, objects, kinds=kinds)
        except (Conflict, ApiError) as error:
            if is_leaving(error):  # the cache will know in a moment, and then the install does without
                raise Retry(str(error), delay=_SOON) from None
            return self._tell(live, judge(error, otherwise="choose another name in the spec"))
        return None

    def _tell(self, live: Object, trouble: ReconcileFailure) -> ReconcileFailure:
        self._runtime.events.record(live, reason=trouble.reason, message=trouble.message, severity="Warning")
        return trouble

    def _kinds(self) -> list[Kind]:
        return [kind for kind in INSTALLED if self._runtime.view.state(kind) != "absent"]

    async def _report(
        self, live: Object, rendered: Installed, found: Standing, trouble: ReconcileFailure | None
    ) -> Result | None:
        status = {
            "way": rendered.way or "None",
            "endpoints": list(found.endpoints),
            **({"gatewayURL": found.gateway_url} if found.gateway_url else {}),
        }
        blindness = self._reports.blindness((*INSTALLED, GATEWAY_CLASS, POD))
        conditions = [*amended(found.conditions, trouble), *blindness]
        return await self._reports.report(live, status, conditions, now=trouble is not None)

    def _around(self, resource: SchedulerInstall, live: Object, view: View) -> Surroundings:
        """Gather what an install depends on."""
        places, owner = places_of(resource), owner_of(SCHEDULER_INSTALL, live)
        facts = self._sight.facts(view, self._server())
        here = places.here.namespace
        pool = view.get(INFERENCE_POOL, Key(places.pools.namespace, places.pool))
        return Surroundings(
            facts=facts,
            gateway=view.get(GATEWAY, Key(places.gates.namespace, places.gateway)),
            route=_ours(view.get(HTTP_ROUTE, Key(here, places.route)), owner),
            probe=_ours(view.get(HTTP_ROUTE, Key(here, places.probe)), owner),
            others=tuple(
                one.read() for one in view.find(HTTP_ROUTE, _PARENT, f"{places.gates.namespace}/{places.gateway}")
            ),
            slices=_slices(view, Key(here, places.picker)),
            pool=None if _ours(pool, owner) else pool,
            taken=_taken(view, places, facts, self._policy),
        )

    def _look(self, live: Object, rendered: Installed, view: View) -> InstallSight:
        places, uid = rendered.places, live["metadata"]["uid"]
        deployments = {item.key.name: item.read() for item in view.find(DEPLOYMENT, OWNERSHIP.label, uid)}
        gateway = view.get(GATEWAY, Key(places.gates.namespace, places.gateway))
        pods = [item.read() for item in view.entries(POD, namespace=places.here.namespace, labels={STACK: places.mark})]
        made = {(one["kind"], one["metadata"]["name"]) for one in rendered.objects}
        known = ("Service", places.service) in made or any(n.type == "ProxyService" for n in rendered.notices)
        return InstallSight(
            parts=Observed(deployments=deployments, gateways={places.gateway: gateway} if gateway else {}, pods=pods),
            route=view.get(HTTP_ROUTE, Key(places.here.namespace, places.route)),
            slices=_slices(view, Key(places.there.namespace, places.service)),
            sees_slices=known,
        )


def _ours(found: Object | None, owner: Owner) -> Object | None:
    mine = found is not None and claim(found, owner=owner, ownership=OWNERSHIP) != "foreign"
    return found if mine else None


def _slices(view: View, service: Key) -> tuple[Object, ...]:
    """Return where a Service of this operator's finds its Pods, as the control plane counts them."""
    found = (item.read() for item in view.find(ENDPOINT_SLICE, _SERVICE, str(service)))
    return tuple(one for one in found if one["metadata"].get("ownerReferences"))


def _taken(view: View, places: Places, facts: Facts, policy: Policy) -> frozenset[Taken]:
    """Return what SimulatorDeployments of the model servers' namespace have, or will have."""
    taken: set[Taken] = set()
    for item in view.entries(SIMULATOR_DEPLOYMENT, namespace=places.there.namespace):
        if item.meta.deletion_timestamp:
            continue
        try:
            made = stack(SimulatorDeployment.model_validate(item.read()), facts, policy).objects
        except ValidationError:
            continue
        taken |= {(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) for one in made}
    return frozenset(taken)


def _beyond(places: Places, namespace: str) -> str:
    """Return a namespace that an install needs and the operator does not see."""
    needed = (places.here, places.there, places.pools, places.gates)
    return next((one.namespace for one in needed if namespace and one.namespace != namespace), "")


def _concerns(item: Entry) -> Iterable[str]:
    """Index installs by what they depend on and others make: as `kind/namespace/name`, or a namespace alone."""
    try:
        places = places_of(SchedulerInstall.model_validate(item.read()))
    except ValidationError:
        return ()
    return (
        f"Gateway/{places.gates.namespace}/{places.gateway}",
        f"InferencePool/{places.pools.namespace}/{places.pool}",
        f"Service/{places.there.namespace}/{places.service}",
        f"Service/{places.here.namespace}/{places.picker}",
        f"SimulatorDeployment/{places.there.namespace}",
    )


def _concerned(item: Entry, view: View) -> Iterable[Key]:
    """Return the installs that an object of others concerns."""
    for concern in _named(item):
        yield from (found.key for found in view.find(SCHEDULER_INSTALL, _CONCERNS, concern))


def _named(item: Entry) -> Iterable[str]:
    namespace, name = item.key.namespace, item.key.name
    if item.kind == HTTP_ROUTE:
        yield from (f"Gateway/{parent}" for parent in _by_parent(item))
    elif item.kind == ENDPOINT_SLICE:
        yield from (f"Service/{service}" for service in _by_service(item))
    elif item.kind == SIMULATOR_DEPLOYMENT:
        yield f"SimulatorDeployment/{namespace}"
    else:
        yield f"{item.kind.kind}/{namespace}/{name}"


def _by_service(item: Entry) -> Iterable[str]:
    name = (item.meta.labels or {}).get(SLICE_SERVICE)
    return () if name is None else (f"{item.key.namespace}/{name}",)


def _by_parent(item: Entry) -> Iterable[str]:
    parents = item.read().get("spec", {}).get("parentRefs") or ()
    return [f"{one.get('namespace', item.key.namespace)}/{one.get('name')}" for one in parents]


def _install_of(item: Entry, view: View) -> Iterable[Key]:
    mark = (item.meta.labels or {}).get(STACK)
    return [found.key for found in view.entries(SCHEDULER_INSTALL) if mark_of(found.key.name) == mark]


def _everyone(_: Entry, view: View) -> Iterable[Key]:
    return [item.key for item in view.entries(SCHEDULER_INSTALL)]
