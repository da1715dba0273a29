"""What of an install goes beyond what the operator's administrator allows. Pure.

An install reaches into other namespaces than its own, with the operator's rights: the picker gets to read Pods there,
and Services and rules are made. So an administrator can name the namespaces that are open to it.
"""

from collections.abc import Iterable

from pointsman.api.scheduler import SchedulerInstall
from pointsman.render.manifests.policy import ISTIO, Breach, Policy, is_from
from pointsman.render.scheduler.places import Places


def breaches(resource: SchedulerInstall, places: Places, policy: Policy) -> tuple[Breach, ...]:
    """Return all that goes beyond the policy; parts that are not enabled ask for nothing."""
    return (
        *_sizes(resource, policy),
        *_images(resource, policy),
        *_openings(resource, policy),
        *_reach(places, policy),
    )


def _sizes(resource: SchedulerInstall, policy: Policy) -> Iterable[Breach]:
    spec, limit = resource.spec, f"at most {policy.max_replicas}"
    for field, part in (("spec.epp", spec.epp), ("spec.gateway", spec.gateway)):
        if part is not None and part.enabled and part.replicas > policy.max_replicas:
            yield Breach(field=f"{field}.replicas", value=str(part.replicas), limit=limit, flag="--max-replicas")


def _images(resource: SchedulerInstall, policy: Policy) -> Iterable[Breach]:
    picker, gateway = resource.spec.epp, resource.spec.gateway
    if picker is not None and picker.enabled and not _is_from_any(picker.image, policy.trusted_images):
        limit = f"pickers, which get a token, only from {', '.join(policy.trusted_images) or 'nowhere'}"
        yield Breach(field="spec.epp.image", value=picker.image, limit=limit, flag="--trusted-image-prefixes")
    image = gateway.image if gateway is not None and gateway.enabled else None
    if image and policy.allowed_images and not _is_from_any(image, policy.allowed_images):
        limit = f"images from {', '.join(policy.allowed_images)}"
        yield Breach(field="spec.gateway.image", value=image, limit=limit, flag="--allowed-image-prefixes")


def _is_from_any(image: str, prefixes: Iterable[str]) -> bool:
    return any(is_from(image, prefix) for prefix in prefixes)


def _openings(resource: SchedulerInstall, policy: Policy) -> Iterable[Breach]:
    gateway = resource.spec.gateway
    if policy.external_services or gateway is None or not gateway.enabled:
        return
    flag, limit = "--allow-external-services", "nothing that is reached from outside the cluster"
    if gateway.service_type != "ClusterIP":
        yield Breach(field="spec.gateway.serviceType", value=gateway.service_type, limit=limit, flag=flag)
    if gateway.class_name != ISTIO:
        yield Breach(field="spec.gateway.className", value=gateway.class_name, limit=limit, flag=flag)


def _reach(places: Places, policy: Policy) -> Iterable[Breach]:
    if not policy.install_namespaces:
        return
    limit = f"installs to reach {', '.join(policy.install_namespaces)}"
    named = {
        "spec.schedulerNamespace": places.here.namespace,
        "spec.simulatorNamespace": places.there.namespace,
        "spec.epp.poolNamespace": places.pools.namespace,
        "spec.routing.parentGateway.namespace": places.gates.namespace,
    }
    told: set[str] = set()
    for field, namespace in named.items():
        if namespace not in (*policy.install_namespaces, places.home, *told):
            told.add(namespace)
            yield Breach(field=field, value=namespace, limit=limit, flag="--install-namespaces")
