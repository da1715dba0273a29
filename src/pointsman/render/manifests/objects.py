"""Kubernetes objects in the few shapes that a stack needs. Plain documents; what they mean is decided by the callers.

Every Pod gets the same safety: no root, no privilege, a read-only file system with a /tmp of its own, and time to say
goodbye. `checksum` makes a Deployment roll when a ConfigMap that its Pods read has changed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from pointsman.api.base import Resources
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.names import STACK, Names

Object = dict[str, Any]

CHECKSUM = "sim.llm-d.io/config-checksum"
NOBODY = 65_532
_ORDER = (
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "Certificate",
    "Secret",
    "ConfigMap",
    "NetworkPolicy",
    "Deployment",
    "Service",
)


def turn(document: Object) -> int:
    """Return when it is an object's turn: what Pods cannot start without, then Pods, then what leads to them.

    A Service takes the API server longest, because it is given an address; Pods start meanwhile.
    """
    kind = document["kind"]
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def head(kind: str, name: str, *, names: Names, labels: Mapping[str, str], api: str = "v1") -> Object:
    """Return what every object begins with."""
    metadata = {"name": name, "namespace": names.namespace, "labels": names.labels(**labels)}
    return {"apiVersion": api, "kind": kind, "metadata": metadata}


def config_map(name: str, *, names: Names, labels: Mapping[str, str], data: Mapping[str, str]) -> Object:
    """Return a ConfigMap."""
    return {**head("ConfigMap", name, names=names, labels=labels), "data": dict(data)}


def service(
    name: str,
    *,
    names: Names,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    ports: Sequence[Object],
    kind: str = "ClusterIP",
    headless: bool = False,
) -> Object:
    """Return a Service."""
    spec: Object = {"type": kind, "selector": dict(selector), "ports": list(ports)}
    if headless:
        spec["clusterIP"] = "None"
    return {**head("Service", name, names=names, labels=labels), "spec": spec}


def port(name: str, number: int, target: int, *, protocol: str) -> Object:
    """Return a port of a Service; `protocol` is the application's, for proxies that must not guess."""
    return {"name": name, "port": number, "targetPort": target, "protocol": "TCP", "appProtocol": protocol}


def deployment(
    name: str,
    *,
    names: Names,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    replicas: int,
    pod: Object,
    checksum: str = "",
    rolling: Object | None = None,
) -> Object:
    """Return a Deployment that rolls without being away, unless `rolling` says how else."""
    template: Object = {
        "metadata": {"labels": names.labels(**labels, **{STACK: names.mark or names.stack})},
        "spec": pod,
    }
    if checksum:
        template["metadata"]["annotations"] = {CHECKSUM: checksum}
    return {
        **head("Deployment", name, names=names, labels=labels, api="apps/v1"),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": dict(selector)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": rolling or {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": template,
        },
    }


def pod(container: Object, *, facts: Facts, grace: int, volumes: Sequence[Object] = (), **more: Any) -> Object:
    """Return the spec of a Pod with one container."""
    mounts = [*container.get("volumeMounts", []), {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the Pod's own
    user = {} if facts.openshift else {"runAsUser": NOBODY, "runAsGroup": NOBODY}
    return {
        "containers": [{**container, "securityContext": _locked(), "volumeMounts": mounts}],
        "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **user},
        "terminationGracePeriodSeconds": grace,
        # A token is mounted into the container that needs it (`api_access`), never into all of a Pod.
        "automountServiceAccountToken": False,
        **resource_claims(container),
        **more,
    }


def resource_claims(container: Object) -> Object:
    """Return the Pod's field for the devices of its container: each Pod gets its own, made from a template."""
    names = [claim["name"] for claim in container.get("resources", {}).get("claims", [])]
    claims = [{"name": name, "resourceClaimTemplateName": name} for name in names]
    return {"resourceClaims": claims} if claims else {}


def _locked() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def mounted(config: str, *, path: str) -> tuple[Object, Object]:
    """Return a volume that is a ConfigMap, and its mount."""
    return {"name": "config", "configMap": {"name": config}}, {"name": "config", "mountPath": path, "readOnly": True}


def api_access() -> tuple[Object, Object]:
    """Return a volume with an account's token for the API server, and its mount, where clients look for it."""
    name = "kube-api-access"
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    path = "/var/run/secrets/kubernetes.io/serviceaccount"
    return {"name": name, "projected": {"sources": sources}}, {"name": name, "mountPath": path, "readOnly": True}


def identity() -> list[Object]:
    """Return the environment in which a container knows who it is."""
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def resources(wanted: Resources | None, *, memory: tuple[str, str] | None = None) -> Object:
    """Return the container's field; `memory` is the request and the limit where nothing was said of memory."""
    said: Object = wanted.model_dump(mode="json", by_alias=True, exclude_none=True) if wanted is not None else {}
    amounts = {name: said.get(name, {}) for name in ("requests", "limits")}
    if memory is not None and not any("memory" in amount for amount in amounts.values()):
        for (name, amount), size in zip(amounts.items(), memory, strict=True):
            said[name] = {**amount, "memory": size}
    return {"resources": said} if said else {}


def http_probe(path: str, number: int, **timing: int) -> Object:
    """Return a probe that asks over HTTP."""
    return {"httpGet": {"path": path, "port": number}, **timing}


def tcp_probe(number: int, **timing: int) -> Object:
    """Return a probe that only connects."""
    return {"tcpSocket": {"port": number}, **timing}


def digest(data: Mapping[str, str]) -> str:
    """Return a short checksum of a ConfigMap's data."""
    code = hashlib.sha256()
    for name, text in sorted(data.items()):
        code.update(f"{name}\0{text}\0".encode())
    return code.hexdigest()[:16]
