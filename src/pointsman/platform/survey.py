"""Ask a cluster what it has of a component. Reads only; what it means is `observed`'s to say."""

from collections.abc import Iterable

from pointsman.bundle.reader import read_documents
from pointsman.core.kinds import BUILT_IN, CUSTOM_RESOURCE_DEFINITION, Kind, Object
from pointsman.platform.cluster import Cluster, ref_of
from pointsman.platform.marks import COMPONENT
from pointsman.platform.observed import Observed
from pointsman.platform.releases import Release, newest
from pointsman.platform.steps import Wanted, placed
from pointsman.platform.webhooks import PREFIXES, WebhookState, istio_webhooks, looping

DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
SECRET = Kind("", "v1", "Secret", "secrets")
POD = Kind("", "v1", "Pod", "pods")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
_ADMISSION = "admissionregistration.k8s.io"
_WEBHOOKS = {
    "MutatingWebhookConfiguration": Kind(
        _ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False
    ),
    "ValidatingWebhookConfiguration": Kind(
        _ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False
    ),
}


async def observe(cluster: Cluster, wanted: Wanted, *, loops: bool = False) -> Observed:
    """Return what is there of a component; with `loops` its webhooks are looked at twice."""
    release = await find_release(cluster, wanted)
    mine = {each["metadata"]["name"] for each in wanted.own_definitions}
    definitions = {
        each["metadata"]["name"]: each
        for each in await cluster.listed(CUSTOM_RESOURCE_DEFINITION)
        if each["metadata"]["name"] in mine or _is_of(each, wanted)
    }
    deployments = [
        each
        for each in await cluster.listed(DEPLOYMENT)
        if each["metadata"]["name"] in wanted.deployments or each["metadata"]["namespace"] == wanted.namespace
    ]
    namespaces = {
        each["metadata"]["name"]: each
        for each in await cluster.listed(NAMESPACE)
        if each["metadata"]["name"] in wanted.namespaces
    }
    webhooks, going = await see_webhooks(cluster, wanted, twice=loops) if wanted.webhook_loop else ([], [])
    beside = [
        live
        for each in (*wanted.presync, *wanted.postsync)
        if (live := await cluster.get(ref_of(placed(each, namespace=wanted.namespace)))) is not None
    ]
    return Observed(
        release,
        definitions,
        deployments,
        namespaces,
        customs=await _customs(cluster, wanted, release),
        pods=await cluster.listed(POD, namespace=wanted.namespace),
        beside=beside,
        webhooks=webhooks,
        loops=going,
    )


async def find_release(cluster: Cluster, wanted: Wanted) -> Release | None:
    """Return the component's release; nothing when there is none."""
    if not wanted.release:
        return None
    secrets = await cluster.listed(SECRET, namespace=wanted.namespace, labels=f"owner=helm,name={wanted.release}")
    return next(iter(newest(secrets)), None)


async def see_webhooks(
    cluster: Cluster, wanted: Wanted, *, twice: bool, pause: float = 1.0
) -> tuple[list[WebhookState], list[WebhookState]]:
    """Return istiod's webhook configurations, and those that change while we look."""
    import asyncio

    first = await _webhooks(cluster, wanted)
    if not twice or not first:
        return first, []
    await asyncio.sleep(pause)
    second = await _webhooks(cluster, wanted)
    return second, looping(first, second)


async def _webhooks(cluster: Cluster, wanted: Wanted) -> list[WebhookState]:
    found: list[Object] = []
    for kind in PREFIXES:
        found += await cluster.listed(_WEBHOOKS[kind])
    return istio_webhooks(found, namespace=wanted.namespace)


async def _customs(cluster: Cluster, wanted: Wanted, release: Release | None) -> list[Object]:
    live = [await cluster.get(ref_of(each)) for each in custom_objects(wanted, release)]
    return [each for each in live if each is not None]


def custom_objects(wanted: Wanted, release: Release | None) -> list[Object]:
    """Return the custom resources of a release and of what comes after it."""
    found = read_documents(release.manifest.encode(), name="release") if release and release.ours else []
    inside = [each for each in found if isinstance(each, dict) and isinstance(each.get("metadata"), dict)]
    return [placed(each, namespace=wanted.namespace) for each in _custom([*inside, *wanted.postsync])]


def _custom(objects: Iterable[Object]) -> list[Object]:
    return [each for each in objects if str(each.get("apiVersion", "")).rpartition("/")[0] not in BUILT_IN]


def _is_of(live: Object, wanted: Wanted) -> bool:
    return bool((live["metadata"].get("labels") or {}).get(COMPONENT) == wanted.name)
