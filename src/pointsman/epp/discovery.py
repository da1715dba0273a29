"""Where a picker's endpoints, objectives and rewrites come from: a file, or the cluster that it runs on.

A pool may say which protocol it speaks; while the configured parsers are made for another one, nobody is served.
"""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.core.errors import UserError
from pointsman.core.logs import get_logger
from pointsman.epp.assembly import Assembly
from pointsman.epp.body.parsers import contradiction
from pointsman.epp.extproc.health import POOL
from pointsman.epp.plugins.declared import FileDiscoveryParameters
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.sources.file import FileSource, Listing
from pointsman.epp.sources.pool import Cluster

if TYPE_CHECKING:  # imported where a cluster is used: elsewhere it would only cost time at the start
    from pointsman.epp.sources.kube import ClusterSource
    from pointsman.kube.client import Client

log = get_logger(__name__)


class Discovery:
    """Tells a picker's parts who the endpoints are."""

    def __init__(self, parts: Assembly) -> None:
        self._parts = parts
        self._protocol = ""  # the pool's appProtocol, where there is a pool that has one

    @property
    def in_cluster(self) -> bool:
        """Whether endpoints come from Kubernetes: where the configuration names a discovery, that decides.

        llm-d's picker wants a pool's name or a selector on its command line even then.
        """
        return self._parts.settings.in_cluster and not self._parts.configuration.current.plan.discovery

    def source(self, client: "Client | None") -> "FileSource | ClusterSource":
        """Return what to follow: the cluster where there is a client of one, else a file."""
        if client is None:
            return self._file_source()
        from pointsman.epp.sources.kube import follow_cluster

        return follow_cluster(self._parts.settings, client=client, namespace=self._namespace, use=self.use_cluster)

    def watch(self) -> None:
        """Say of every change whether there is a pool at all."""
        pool, health = self._parts.pool, self._parts.health
        pool.watch(lambda _members: health.note(POOL, obstacle="" if pool.synced else "it knows no pool"))

    async def stand_for_election(self, client: "Client") -> None:
        """Serve while no other replica does."""
        from pointsman.epp.sources.kube import stand_for_election

        health = self._parts.health
        await stand_for_election(
            client,
            namespace=self._namespace,
            pool=self._parts.settings.pool_name,
            identity=os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            leads=lambda leads: health.note("leader", obstacle="" if leads else "another replica leads"),
        )

    @property
    def _namespace(self) -> str:
        return self._parts.settings.pool_namespace or os.environ.get("NAMESPACE") or "default"

    def use_cluster(self, cluster: Cluster) -> None:
        """Take over what a cluster says."""
        parts = self._parts
        parts.objectives.replace(cluster.objectives())
        parts.rewrites.replace(cluster.rewrites())
        parts.metrics.exempt_models(parts.rewrites.models)
        if cluster.spec is None:
            parts.pool.clear()
        else:
            parts.pool.replace(cluster.endpoints())
        self._protocol = cluster.spec.app_protocol if cluster.spec is not None else ""
        self.check_protocol()

    def check_protocol(self) -> None:
        """Serve nobody while the parsers are made for another protocol than the pool's."""
        health, parsers = self._parts.health, self._parts.director.scheduler.parsers
        wrong = contradiction(parsers, protocol=self._protocol) if self._protocol else ""
        if wrong and wrong not in health.obstacles:
            log.error("picker: not serving", reason=wrong)
        health.note("protocol", obstacle=wrong)

    def _file_source(self) -> FileSource:
        """Return the endpoints file that the command line names, or the configuration."""
        parts = self._parts
        if parts.settings.endpoints_file is not None:
            return FileSource(parts.settings.endpoints_file, use=self._use_file, failed=parts.count_bad_file)
        plan = parts.configuration.current.plan
        declared = plan.get(plan.discovery)
        if declared is None or not isinstance(declared.parameters, FileDiscoveryParameters):
            raise UserError("no endpoints: list them in a YAML file and name it with --endpoints-file")
        path, watch = Path(declared.parameters.path), declared.parameters.watch_file
        return FileSource(path, use=self._use_file, failed=parts.count_bad_file, watch=watch)

    def _use_file(self, listing: Listing, endpoints: tuple[Endpoint, ...]) -> None:
        parts = self._parts
        parts.objectives.replace(listing.objectives)
        parts.rewrites.replace(listing.rewrites)
        parts.metrics.exempt_models(parts.rewrites.models)
        parts.pool.replace(endpoints)
