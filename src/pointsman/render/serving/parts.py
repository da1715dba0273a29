"""Objects in the shapes that the parts of a service share. Plain documents."""

from collections.abc import Mapping, Sequence
from typing import Any

from pointsman.render.serving.names import ServiceNames

Object = dict[str, Any]
NEVER_AWAY: Object = {"maxSurge": 1, "maxUnavailable": 0}
RBAC = "rbac.authorization.k8s.io"


def head(kind: str, name: str, *, names: ServiceNames, labels: Mapping[str, str], api: str = "v1") -> Object:
    """Return what every object begins with."""
    metadata = {"name": name, "namespace": names.namespace, "labels": names.labels(dict(labels))}
    return {"apiVersion": api, "kind": kind, "metadata": metadata}


def service(
    name: str,
    *,
    names: ServiceNames,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    ports: Sequence[Object],
    headless: bool = False,
) -> Object:
    """Return a Service inside the cluster."""
    spec: Object = {"type": "ClusterIP", "selector": dict(selector), "ports": list(ports)}
    if headless:
        spec["clusterIP"] = "None"
    return {**head("Service", name, names=names, labels=labels), "spec": spec}


def account(name: str, *, names: ServiceNames, labels: Mapping[str, str]) -> Object:
    """Return a ServiceAccount whose token goes only where it is mounted."""
    return {**head("ServiceAccount", name, names=names, labels=labels), "automountServiceAccountToken": False}


def permissions(
    rules: Sequence[Object], *, role: str, binding: str, account: str, names: ServiceNames, labels: Mapping[str, str]
) -> list[Object]:
    """Return a Role, and its binding to an account."""
    api = f"{RBAC}/v1"
    return [
        {**head("Role", role, names=names, labels=labels, api=api), "rules": list(rules)},
        {
            **head("RoleBinding", binding, names=names, labels=labels, api=api),
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": names.namespace}],
        },
    ]


def deployment(
    name: str,
    *,
    names: ServiceNames,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    pod: Object,
    replicas: int | None,
    pod_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    rolling: Object | None = None,
) -> Object:
    """Return a Deployment that rolls as `rolling` says, or as Kubernetes does it.

    Without `replicas` their number is left to whoever scales them. What selects is on the Pods whatever their labels.
    """
    on_pods = {**names.labels(dict(labels)), **(pod_labels or {}), **selector}
    metadata: Object = {"labels": on_pods, **({"annotations": dict(annotations)} if annotations else {})}
    spec: Object = {
        "selector": {"matchLabels": dict(selector)},
        **({"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}} if rolling else {}),
        "template": {"metadata": metadata, "spec": pod},
    }
    if replicas is not None:
        spec = {"replicas": replicas, **spec}
    return {**head("Deployment", name, names=names, labels=labels, api="apps/v1"), "spec": spec}


def main_container(pod: Mapping[str, Any], name: str) -> Object | None:
    """Return a container of a Pod template by its name."""
    return next((dict(each) for each in pod.get("containers") or () if each.get("name") == name), None)


def with_container(pod: Mapping[str, Any], container: Object) -> Object:
    """Return a Pod template with another container of the same name in its place."""
    found = [container if each.get("name") == container["name"] else each for each in pod.get("containers") or ()]
    return {**pod, "containers": found}


def command_line(container: Mapping[str, Any]) -> list[str]:
    """Return all that a container is started with."""
    return [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
