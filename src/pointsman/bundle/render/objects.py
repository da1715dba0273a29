"""A bundle → the Kubernetes objects that install it. Pure; equal to what OLMv1's renderer makes of it (decision 12).

Owns the order: accounts, rights, definitions, the bundle's other objects, Deployments, webhooks, their Services, their
certificates. `render` checks first: it returns everything, or raises with every rule that the bundle breaks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pointsman.bundle.model import MUTATING, VALIDATING, Bundle, Object, identity
from pointsman.bundle.render import rbac, webhooks
from pointsman.bundle.render.certificates import Certificates
from pointsman.bundle.render.config import DeploymentConfig
from pointsman.bundle.render.deployments import deployments
from pointsman.bundle.render.modes import targets_for
from pointsman.bundle.validate import NAMESPACED, check

# What the later ones need is made by the earlier ones; a kind that is not named comes before the webhooks, which guard.
_INSTALL_ORDER = (
    *("Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount", "Secret", "ConfigMap"),
    *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "Service", "Issuer", "Certificate"),
    *("PodDisruptionBudget", "Deployment"),
)
_LAST = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_RANKS = {kind: rank for rank, kind in enumerate(_INSTALL_ORDER)} | {
    kind: 1000 + rank for rank, kind in enumerate(_LAST)
}


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """Where and how a bundle is installed; no targets means what the bundle itself prefers."""

    namespace: str
    targets: Sequence[str] | None = None
    certificates: Certificates | None = None
    config: DeploymentConfig | None = None


def render(bundle: Bundle, options: InstallOptions) -> tuple[Object, ...]:
    """Return the objects that install the bundle.

    Raises Refused with the rules that it breaks, or UserError for namespaces that it cannot watch.
    """
    check(bundle)
    targets = targets_for(bundle, namespace=options.namespace, asked=options.targets)
    return tuple(_objects(bundle, options, targets=targets))


def install_order(objects: Iterable[Object]) -> list[Object]:
    """Return the objects in the order in which they can be applied, the same for the same objects."""
    return sorted(objects, key=lambda each: (_RANKS.get(each["kind"], 999), *identity(each)))


def namespace_object(name: str) -> Object:
    """Return the Namespace of the operator."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _objects(bundle: Bundle, options: InstallOptions, *, targets: tuple[str, ...]) -> Iterator[Object]:
    csv, namespace, certificates = bundle.csv, options.namespace, options.certificates
    yield from rbac.accounts(csv, namespace=namespace)
    yield from rbac.roles(csv, namespace=namespace, targets=targets)
    yield from rbac.cluster_roles(csv, namespace=namespace, targets=targets)
    yield from webhooks.definitions(bundle, namespace=namespace, certificates=certificates)
    yield from (_placed(each, namespace=namespace) for each in bundle.others)
    yield from deployments(
        csv, namespace=namespace, targets=targets, certified=certificates is not None, config=options.config
    )
    for type_ in (VALIDATING, MUTATING):
        yield from webhooks.configurations(csv, type_, namespace=namespace, targets=targets, certificates=certificates)
    yield from webhooks.services(csv, namespace=namespace, certificates=certificates)
    yield from webhooks.certificate_objects(csv, namespace=namespace, certificates=certificates)


def _placed(document: Object, *, namespace: str) -> Object:
    """Return an object of the bundle, in the operator's namespace if its kind has one."""
    if document["kind"] not in NAMESPACED:
        return document
    return {**document, "metadata": {**(document.get("metadata") or {}), "namespace": namespace}}
