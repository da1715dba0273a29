"""ConfigMaps of a cluster, followed: what they say of adapters is told to `Adapters` as it changes."""

import os

from pointsman.core.kinds import Kind, Source
from pointsman.core.logs import get_logger
from pointsman.epp.bbr.adapters import MANAGED, Adapters
from pointsman.kube.client import Client
from pointsman.kube.reflector import Reflector
from pointsman.kube.store import Change, Store

log = get_logger(__name__)

_CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")


def followers(client: Client, *, adapters: Adapters) -> list[Reflector]:
    """Return one to run for each label, in the namespace of the environment, or in all."""
    return [_follower(client, label=label, adapters=adapters) for label in MANAGED]


def _follower(client: Client, *, label: str, adapters: Adapters) -> Reflector:
    def changed(change: Change) -> None:
        if change.new is not None:
            wrong = adapters.take(change.new.read(), label=label)
            if wrong:
                log.warning("bbr: a ConfigMap is not used", reason=wrong)
        elif change.old is not None:
            adapters.gone(change.old.read(), label=label)

    source = Source(_CONFIG_MAP, namespace=os.environ.get("NAMESPACE", ""), labels=f"{label}=true")
    reflector = Reflector(client, source=source, store=Store(_CONFIG_MAP))
    reflector.subscribe(changed)
    return reflector
