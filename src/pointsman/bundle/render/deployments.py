"""Deployments of the operator, as OLM makes them.

The pod template carries the ClusterServiceVersion's annotations, with `olm.targetNamespaces` and
`olm.operatorNamespace` that operators read through the downward API to learn what to watch. Where it serves webhooks,
its certificate is mounted at the two places that operators look at; whatever the bundle had mounted there goes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pointsman.bundle.model import Csv, DeploymentSpec, Object
from pointsman.bundle.render.certificates import Serving
from pointsman.bundle.render.config import DeploymentConfig, configured


@dataclass(frozen=True, slots=True)
class _CertVolume:
    name: str
    path: str
    certificate: str
    key: str


_CERT_VOLUMES = (
    _CertVolume("webhook-cert", "/tmp/k8s-webhook-server/serving-certs", "tls.crt", "tls.key"),  # noqa: S108 - in the pod
    _CertVolume("apiservice-cert", "/apiserver.local.config/certificates", "apiserver.crt", "apiserver.key"),
)
_PATHS = frozenset(volume.path for volume in _CERT_VOLUMES)


def deployments(
    csv: Csv, *, namespace: str, targets: tuple[str, ...], certified: bool, config: DeploymentConfig | None
) -> Iterator[Object]:
    """Yield the Deployments; `certified` says that webhooks get certificates."""
    serving = {webhook.deployment_name for webhook in csv.webhooks} if certified else set()
    for spec in csv.deployments:
        made = _deployment(csv, spec, namespace=namespace, targets=targets)
        if spec.name in serving:
            made = _mounted(made, Serving(spec.name, namespace).secret)
        yield configured(made, config) if config is not None else made


def _deployment(csv: Csv, deployment: DeploymentSpec, *, namespace: str, targets: tuple[str, ...]) -> Object:
    template = deployment.spec.get("template") or {}
    metadata = template.get("metadata") or {}
    annotations = {
        **csv.metadata.annotations,
        **(metadata.get("annotations") or {}),
        "olm.targetNamespaces": ",".join(targets),
        "olm.operatorNamespace": namespace,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": deployment.name,
            "namespace": namespace,
            **({"labels": deployment.label} if deployment.label else {}),
        },
        "spec": {
            **deployment.spec,
            "revisionHistoryLimit": 1,
            "template": {**template, "metadata": {**metadata, "annotations": annotations}},
        },
    }


def _mounted(deployment: Object, secret: str) -> Object:
    """Return the Deployment with the certificate's volumes in place of those at the same names or paths."""
    template = deployment["spec"]["template"]
    pod = template.get("spec") or {}
    containers = pod.get("containers") or []
    gone = {volume.name for volume in _CERT_VOLUMES} | {
        mount["name"]
        for container in containers
        for mount in container.get("volumeMounts") or []
        if mount.get("mountPath") in _PATHS
    }
    pod = {
        **pod,
        "containers": [_container(each, gone) for each in containers],
        "volumes": [
            *(volume for volume in pod.get("volumes") or [] if volume["name"] not in gone),
            *(_volume(each, secret) for each in _CERT_VOLUMES),
        ],
    }
    return {**deployment, "spec": {**deployment["spec"], "template": {**template, "spec": pod}}}


def _container(container: Object, gone: set[str]) -> Object:
    kept = [mount for mount in container.get("volumeMounts") or [] if mount["name"] not in gone]
    added = [{"name": volume.name, "mountPath": volume.path} for volume in _CERT_VOLUMES]
    return {**container, "volumeMounts": [*kept, *added]}


def _volume(volume: _CertVolume, secret: str) -> Object:
    items = [{"key": "tls.crt", "path": volume.certificate}, {"key": "tls.key", "path": volume.key}]
    return {"name": volume.name, "secret": {"secretName": secret, "items": items}}
