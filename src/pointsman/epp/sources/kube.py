"""Endpoints, objectives and rewrites from a cluster, followed live.

One reflector per kind feeds `Cluster`, which says what follows; this module only connects them. Changes are handed over
once per turn of the event loop, so a rollout of a hundred pods is not a hundred new pools. Nothing is handed over
before pool and pods have been listed once. A kind that the cluster does not have is empty, and is found when its CRD
comes; permission that is missing shows in the log and, for pool and pods, keeps the picker from being ready.

A pool that goes is kept in mind for a grace time, and so are objectives and rewrites when their definition goes
(`departures`): a definition that is replaced must not cost a request. Pods are followed all the while.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Literal

from pointsman.core.kinds import Key, Kind, Object, Source
from pointsman.epp.settings import Settings
from pointsman.epp.sources.departures import Departures
from pointsman.epp.sources.pool import OLD_GROUP, OUR_GROUP, POOL_GROUP, Cluster, PoolSpec
from pointsman.epp.sources.pool import Kind as Name
from pointsman.epp.sources.selector import parse_selector
from pointsman.kube.client import Client
from pointsman.kube.lease import Election
from pointsman.kube.reflector import Reflector
from pointsman.kube.store import Change, Store

PODS = Kind("", "v1", "Pod", "pods")
POOLS = {
    POOL_GROUP: Kind(POOL_GROUP, "v1", "InferencePool", "inferencepools"),
    OLD_GROUP: Kind(OLD_GROUP, "v1alpha2", "InferencePool", "inferencepools"),
}
OPTIONAL = tuple(
    Kind(group, "v1alpha2", kind, plural)
    for group in (OUR_GROUP, OLD_GROUP)
    for kind, plural in (
        ("InferenceObjective", "inferenceobjectives"),
        ("InferenceModelRewrite", "inferencemodelrewrites"),
    )
)

Event = Literal["ADDED", "MODIFIED", "DELETED"]


class ClusterSource:
    """Follows one pool, or the pods of one selector, in one namespace."""

    def __init__(
        self,
        client: Client,
        *,
        cluster: Cluster,
        namespace: str,
        pool: str,
        group: str,
        grace: float,
        use: Callable[[Cluster], None],
    ) -> None:
        self._cluster = cluster
        self._use = use
        self._pending = False
        needed = [Source(PODS, namespace=namespace)]
        if pool:
            needed.append(Source(POOLS[group], namespace=namespace, fields=f"metadata.name={pool}"))
        self._needed = [self._reflect(client, source) for source in needed]
        optional = OPTIONAL if pool else ()
        self._optional = [self._reflect(client, Source(kind, namespace=namespace)) for kind in optional]
        self._departures = Departures(
            client, grace=grace, kept=POOLS.values(), judged=OPTIONAL, drop=lambda *gone: self._take("DELETED", *gone)
        )

    async def start(self) -> None:
        """Have nothing to wait for: until the first lists are in, the pool is not synced and health says so."""

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._departures.run())
            for reflector in (*self._needed, *self._optional):
                tasks.create_task(reflector.run())
            for reflector in self._needed:
                await reflector.settled.wait()
            self._hand_over()

    def _reflect(self, client: Client, source: Source) -> Reflector:
        reflector = Reflector(client, source=source, store=Store(source.kind))
        reflector.subscribe(self._changed)
        return reflector

    def _changed(self, change: Change) -> None:
        event: Event = "MODIFIED"
        if change.old is None:
            event = "ADDED"
        item = change.new
        if item is None:
            event, item = "DELETED", change.old
        assert item is not None
        document = item.read()
        if item.kind != PODS:
            pool_ends = item.kind in POOLS.values() and "deletionTimestamp" in document["metadata"]
            if event == "DELETED" or pool_ends:
                self._departures.went(item.kind, document)
                return
            self._departures.came(item.kind, document)
        self._take(event, item.kind, document)

    def _take(self, event: Event, kind: Kind, document: Object) -> None:
        self._cluster.apply(_name(kind.kind), event, document)
        if not self._pending:
            self._pending = True
            asyncio.get_running_loop().call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._pending = False
        if all(reflector.settled.is_set() for reflector in self._needed):
            self._use(self._cluster)


def _name(kind: str) -> Name:
    names: dict[str, Name] = {
        "Pod": "Pod",
        "InferencePool": "InferencePool",
        "InferenceObjective": "InferenceObjective",
        "InferenceModelRewrite": "InferenceModelRewrite",
    }
    return names[kind]


def follow_cluster(
    settings: Settings, *, client: Client, namespace: str, use: Callable[[Cluster], None]
) -> ClusterSource:
    """Return the source that the flags ask for: a pool, or a selector with ports.

    Raises UserError when the selector or the ports cannot be read.
    """
    standalone = None
    if settings.endpoint_selector:
        selector = parse_selector(settings.endpoint_selector, where="--endpoint-selector")
        standalone = PoolSpec(selector=selector, ports=settings.target_ports)
    pool, group = settings.pool_name, settings.pool_group
    cluster = Cluster(pool=pool, group=group, standalone=standalone)
    grace = settings.pool_grace_period
    return ClusterSource(client, cluster=cluster, namespace=namespace, pool=pool, group=group, grace=grace, use=use)


async def stand_for_election(
    client: Client, *, namespace: str, pool: str, identity: str, leads: Callable[[bool], None]
) -> None:
    """Take part in the election of the replica that is ready, and say when that is us; until cancelled.

    Without a pool the Deployment is what replicas have in common: pickers of another one have another election.
    """

    async def lead() -> None:
        leads(True)
        try:
            await asyncio.Event().wait()
        finally:
            leads(False)

    leads(False)
    name = f"epp-{namespace}-{pool or deployment_of(identity)}.llm-d.ai"
    election = Election(client, key=Key(namespace, name), identity=identity)
    await election.run(lead)


def deployment_of(pod: str) -> str:
    """Return the Deployment in a Pod's name; the same word for all others."""
    found = re.fullmatch(r"(.+)-[a-z0-9]+-[a-z0-9]+", pod)
    return found[1] if found else "selector"
