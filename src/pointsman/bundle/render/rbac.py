"""Accounts and rights: ServiceAccounts, Roles per watched namespace, ClusterRoles.

An operator that watches every namespace has its Roles lifted to ClusterRoles, with the right to see namespaces added,
as OLM does; a Role in one namespace would leave it blind. The account `default` belongs to the namespace and is not
made.
"""

from collections.abc import Iterator

import msgspec

from pointsman.bundle.model import Csv, Object, Permission, PolicyRule
from pointsman.bundle.render.modes import ALL
from pointsman.bundle.render.names import role_name

GROUP = "rbac.authorization.k8s.io"
_NAMESPACES = PolicyRule(verbs=["get", "list", "watch"], api_groups=[""], resources=["namespaces"])


def accounts(csv: Csv, *, namespace: str) -> Iterator[Object]:
    """Yield the ServiceAccounts that permissions name."""
    spec = csv.spec.install.spec
    names = {permission.account for permission in (*spec.permissions, *spec.cluster_permissions)} - {"default"}
    for name in sorted(names):
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def roles(csv: Csv, *, namespace: str, targets: tuple[str, ...]) -> Iterator[Object]:
    """Yield Role and RoleBinding for each permission in each watched namespace; none when all are watched."""
    if targets == ALL:
        return
    for target in targets:
        for permission in csv.spec.install.spec.permissions:
            yield from _pair("Role", csv, permission, where={"namespace": target}, namespace=namespace)


def cluster_roles(csv: Csv, *, namespace: str, targets: tuple[str, ...]) -> Iterator[Object]:
    """Yield ClusterRole and ClusterRoleBinding for what is granted everywhere."""
    spec = csv.spec.install.spec
    lifted = map(_lifted, spec.permissions) if targets == ALL else ()
    for permission in (*spec.cluster_permissions, *lifted):
        yield from _pair("ClusterRole", csv, permission, where={}, namespace=namespace)


def _lifted(permission: Permission) -> Permission:
    return msgspec.structs.replace(permission, rules=[*(permission.rules or ()), _NAMESPACES])


def _pair(kind: str, csv: Csv, permission: Permission, *, where: Object, namespace: str) -> Iterator[Object]:
    name = role_name(csv.name, permission)
    yield {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, **where},
        "rules": [_rule(each) for each in permission.rules or ()],
    }
    yield {
        "apiVersion": f"{GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": name, **where},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": permission.account, "namespace": namespace}],
    }


def _rule(rule: PolicyRule) -> Object:
    fields = {
        "apiGroups": rule.api_groups,
        "nonResourceURLs": rule.non_resource_urls,
        "resourceNames": rule.resource_names,
        "resources": rule.resources,
    }
    return {**{name: values for name, values in fields.items() if values}, "verbs": rule.verbs or []}
