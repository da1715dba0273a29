"""Webhook configurations, the Services in front of them, and the conversion of definitions.

A Service selects what its Deployment selects, so it has endpoints whenever the operator runs. Outside of all-namespaces
mode a webhook sees only the watched namespaces.
"""

from collections.abc import Iterator

from pointsman.bundle.model import (
    CONVERSION,
    MUTATING,
    VALIDATING,
    Bundle,
    BundleFinding,
    Csv,
    Object,
    Refused,
    Webhook,
    name_of,
)
from pointsman.bundle.render.certificates import Certificates, Serving

_KINDS = {VALIDATING: "ValidatingWebhookConfiguration", MUTATING: "MutatingWebhookConfiguration"}
_FIELDS = {
    "failurePolicy": "failure_policy",
    "matchPolicy": "match_policy",
    "objectSelector": "object_selector",
    "sideEffects": "side_effects",
    "timeoutSeconds": "timeout_seconds",
}


def configurations(
    csv: Csv, type_: str, *, namespace: str, targets: tuple[str, ...], certificates: Certificates | None
) -> Iterator[Object]:
    """Yield a configuration per definition of this type."""
    for webhook in csv.webhooks:
        if webhook.type == type_:
            made = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": _KINDS[type_],
                # OLM names the namespace although the kind has none; the API server clears it.
                "metadata": {"name": webhook.name, "namespace": namespace},
                "webhooks": [_webhook(webhook, namespace=namespace, targets=targets)],
            }
            serving = Serving(webhook.deployment_name, namespace)
            yield certificates.trusted(made, serving) if certificates else made


def services(csv: Csv, *, namespace: str, certificates: Certificates | None) -> Iterator[Object]:
    """Yield a Service for each Deployment that serves webhooks."""
    for deployment in csv.deployments:
        ports = {_port(each) for each in csv.webhooks if each.deployment_name == deployment.name}
        if not ports:
            continue
        serving = Serving(deployment.name, namespace)
        selector = (deployment.spec.get("selector") or {}).get("matchLabels") or {}
        made = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": serving.service, "namespace": namespace},
            "spec": {
                "ports": [
                    {"name": str(port), "port": port, "targetPort": target}
                    for port, target in sorted(ports, key=lambda pair: (pair[0], _number(pair[1]), str(pair[1])))
                ],
                "selector": selector,
            },
        }
        yield certificates.served(made, serving) if certificates else made


def definitions(bundle: Bundle, *, namespace: str, certificates: Certificates | None) -> Iterator[Object]:
    """Yield the definitions whole; those with a conversion webhook are told where it is."""
    conversions = {
        crd: webhook for webhook in bundle.csv.webhooks if webhook.type == CONVERSION for crd in webhook.conversion_crds
    }
    for crd in bundle.crds:
        webhook = conversions.get(name_of(crd))
        if webhook is None:
            yield crd
            continue
        made = _converted(crd, webhook, namespace=namespace, bundle=bundle)
        serving = Serving(webhook.deployment_name, namespace)
        yield certificates.trusted(made, serving) if certificates else made


def certificate_objects(csv: Csv, *, namespace: str, certificates: Certificates | None) -> Iterator[Object]:
    """Yield what the certificates of all serving Deployments need."""
    if certificates is not None:
        for deployment in sorted({webhook.deployment_name for webhook in csv.webhooks}):
            yield from certificates.objects(Serving(deployment, namespace))


def _webhook(webhook: Webhook, *, namespace: str, targets: tuple[str, ...]) -> Object:
    given = {name: getattr(webhook, attribute) for name, attribute in _FIELDS.items()}
    if webhook.type == MUTATING:
        given["reinvocationPolicy"] = webhook.reinvocation_policy
    if targets and "" not in targets:
        only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(targets)}
        given["namespaceSelector"] = {"matchExpressions": [only]}
    return {
        "name": webhook.name,
        "admissionReviewVersions": webhook.admission_review_versions,
        "clientConfig": {"service": _reference(webhook, path=webhook.webhook_path, namespace=namespace)},
        **({"rules": webhook.rules} if webhook.rules else {}),
        **{name: value for name, value in given.items() if value is not None},
    }


def _converted(crd: Object, webhook: Webhook, *, namespace: str, bundle: Bundle) -> Object:
    spec = crd.get("spec") or {}
    if spec.get("preserveUnknownFields"):
        message = (
            f"definition {name_of(crd)} has a conversion webhook and spec.preserveUnknownFields: set that to false"
        )
        raise Refused([BundleFinding("conversion-preserves-unknown-fields", message)], name=bundle.name)
    path = "/" if webhook.webhook_path is None else webhook.webhook_path
    conversion = {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"service": _reference(webhook, path=path, namespace=namespace)},
            "conversionReviewVersions": webhook.admission_review_versions,
        },
    }
    return {**crd, "spec": {**spec, "conversion": conversion}}


def _reference(webhook: Webhook, *, path: str | None, namespace: str) -> Object:
    service = Serving(webhook.deployment_name, namespace).service
    return {
        "name": service,
        "namespace": namespace,
        **({"path": path} if path is not None else {}),
        "port": webhook.port,
    }


def _port(webhook: Webhook) -> tuple[int, int | str]:
    return webhook.port, webhook.port if webhook.target_port is None else webhook.target_port


def _number(target: int | str) -> int:
    """Return a target port as a number; a name counts as nothing, as it does in OLM's order."""
    return target if isinstance(target, int) else int(target) if target.isdecimal() else 0
