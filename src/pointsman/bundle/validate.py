"""The rules that a bundle must keep, each a small function with a name that the complaint carries.

Owns the list; the first thirteen are OLMv1's. The rest keep what could not work from being written: an API served by
the operator needs OLM's own controller, a missing name breaks every reference, and an install strategy other than
`deployment` says nothing that we could make. What is wrong before a bundle can be read is refused in `load`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pointsman.bundle.model import (
    CONVERSION,
    MUTATING,
    VALIDATING,
    Bundle,
    BundleFinding,
    Object,
    Refused,
    Webhook,
    name_of,
)

NAMESPACED = frozenset(
    {"Service", "ServiceAccount", "Role", "RoleBinding", "PrometheusRule", "ServiceMonitor", "PodMonitor", "Secret"}
    | {"ConfigMap", "PodDisruptionBudget", "NetworkPolicy", "VerticalPodAutoscaler"}
)
CLUSTER_SCOPED = frozenset(
    {"ClusterRole", "ClusterRoleBinding", "PriorityClass", "ConsoleYAMLSample", "ConsoleQuickStart"}
    | {"ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin"}
)
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_FORBIDDEN_GROUPS = frozenset({"*", "olm.operatorframework.io"})
_FORBIDDEN_RESOURCES = frozenset(
    {"*"} | {f"{type_}webhookconfiguration{s}" for type_ in ("mutating", "validating") for s in ("", "s")}
)

Rule = Callable[[Bundle], Iterator[str]]
Name = TypeVar("Name", str, tuple[str, str])


def check(bundle: Bundle) -> None:
    """Raise Refused with everything that is wrong with the bundle."""
    found = findings(bundle)
    if found:
        raise Refused(found, name=bundle.name)


def findings(bundle: Bundle) -> list[BundleFinding]:
    """Return the rules that the bundle breaks."""
    return [BundleFinding(name, message) for name, rule in RULES.items() for message in rule(bundle)]


def _deployment_unique(bundle: Bundle) -> Iterator[str]:
    for name in _twice(each.name for each in bundle.csv.deployments):
        yield f"spec.install.spec.deployments has {name!r} twice"


def _deployment_name(bundle: Bundle) -> Iterator[str]:
    for name in sorted({each.name for each in bundle.csv.deployments}):
        if not _is_dns(name):
            yield f"deployment name {name!r} is no DNS name: use lower case letters, digits, '-' and '.'"


def _crd_unique(bundle: Bundle) -> Iterator[str]:
    for name in _twice(map(name_of, bundle.crds)):
        yield f"definition {name!r} stands twice among the manifests"


def _owned_crd_exists(bundle: Bundle) -> Iterator[str]:
    present = set(map(name_of, bundle.crds))
    for name in sorted({each.name for each in bundle.csv.spec.customresourcedefinitions.owned} - present):
        yield f"owned definition {name!r} is not among the manifests"


def _package_name(bundle: Bundle) -> Iterator[str]:
    if not bundle.package:
        label = "operators.operatorframework.io.bundle.package.v1"
        yield f"the package has no name: set {label} in metadata/annotations.yaml"


def _conversion_mode(bundle: Bundle) -> Iterator[str]:
    if bundle.csv.modes != {"AllNamespaces"}:
        has = ", ".join(sorted(bundle.csv.modes)) or "none"
        for webhook in _conversions(bundle):
            name = webhook.generate_name
            yield f"conversion webhook {name!r} needs AllNamespaces to be the only install mode, here: {has}"


def _webhook_deployment(bundle: Bundle) -> Iterator[str]:
    present = {each.name for each in bundle.csv.deployments}
    for webhook in sorted(bundle.csv.webhooks, key=lambda each: (each.deployment_name, each.type, each.generate_name)):
        if webhook.deployment_name not in present:
            missing = webhook.deployment_name
            yield f"{webhook.type} {webhook.generate_name!r} names deployment {missing!r}, which is not there"


def _webhook_unique(bundle: Bundle) -> Iterator[str]:
    for type_, name in _twice((each.type, each.generate_name) for each in bundle.csv.webhooks):
        yield f"{type_} {name!r} is defined twice"


def _webhook_name(bundle: Bundle) -> Iterator[str]:
    for type_, name in sorted({(each.type, each.generate_name) for each in bundle.csv.webhooks}):
        if not _is_dns(name):
            yield f"{type_} {name!r} is no DNS name: use lower case letters, digits, '-' and '.'"


def _conversion_unique(bundle: Bundle) -> Iterator[str]:
    for name in _twice(crd for webhook in _conversions(bundle) for crd in webhook.conversion_crds):
        yield f"definition {name!r} has more than one conversion webhook"


def _conversion_owned(bundle: Bundle) -> Iterator[str]:
    owned = {each.name for each in bundle.csv.spec.customresourcedefinitions.owned}
    for webhook in sorted(_conversions(bundle), key=lambda each: each.generate_name):
        for name in sorted(set(webhook.conversion_crds) - owned):
            yield f"conversion webhook {webhook.generate_name!r} names {name!r}, which the bundle does not own"


def _webhook_rules(bundle: Bundle) -> Iterator[str]:
    for webhook in bundle.csv.webhooks:
        if webhook.type != CONVERSION:
            for rule in webhook.rules:
                for what in _forbidden(rule):
                    yield f"webhook {webhook.generate_name!r} has a rule for {what}, which could lock the cluster"


def _forbidden(rule: Object) -> Iterator[str]:
    groups = rule.get("apiGroups") or []
    yield from (f"API group {group!r}" for group in groups if group in _FORBIDDEN_GROUPS)
    if "admissionregistration.k8s.io" in groups:
        resources = map(str, rule.get("resources") or [])
        yield from (f"{each!r} of admissionregistration" for each in resources if each.lower() in _FORBIDDEN_RESOURCES)


def _supported_kinds(bundle: Bundle) -> Iterator[str]:
    for document in bundle.others:
        if document["kind"] not in NAMESPACED | CLUSTER_SCOPED:
            yield f"{document['kind']} {name_of(document)!r} is of a kind that a bundle may not hold"


def _names(bundle: Bundle) -> Iterator[str]:
    if not bundle.csv.name:
        yield "the ClusterServiceVersion has no metadata.name"
    for document in (*bundle.crds, *bundle.others):
        if not name_of(document):
            yield f"a {document['kind']} among the manifests has no metadata.name"
        if not isinstance(document.get("apiVersion"), str):
            yield f"{document['kind']} {name_of(document)!r} among the manifests has no apiVersion"


def _strategy(bundle: Bundle) -> Iterator[str]:
    if bundle.csv.spec.install.strategy != "deployment":
        yield f"spec.install.strategy is {bundle.csv.spec.install.strategy!r}: only 'deployment' can be installed"


def _webhook_type(bundle: Bundle) -> Iterator[str]:
    for webhook in bundle.csv.webhooks:
        if webhook.type not in {VALIDATING, MUTATING, CONVERSION}:
            yield f"webhook {webhook.generate_name!r} is of type {webhook.type!r}, which nobody knows"


def _api_services(bundle: Bundle) -> Iterator[str]:
    for each in bundle.csv.spec.apiservicedefinitions.owned:
        yield f"API {each.version}.{each.group} is served by the operator itself: that takes OLM's own controller"


RULES: dict[str, Rule] = {
    "deployment-unique": _deployment_unique,
    "deployment-name": _deployment_name,
    "crd-unique": _crd_unique,
    "owned-crd-exists": _owned_crd_exists,
    "package-name": _package_name,
    "conversion-all-namespaces": _conversion_mode,
    "webhook-deployment": _webhook_deployment,
    "webhook-unique": _webhook_unique,
    "webhook-name": _webhook_name,
    "conversion-unique": _conversion_unique,
    "conversion-owned": _conversion_owned,
    "webhook-rules": _webhook_rules,
    "supported-kinds": _supported_kinds,
    "names": _names,  # every reference needs one
    "install-strategy": _strategy,  # there is no other that says what to install
    "webhook-type": _webhook_type,  # a misspelt one would be left out without a word
    "api-services": _api_services,  # left out, the operator would wait for ever
}


def _conversions(bundle: Bundle) -> list[Webhook]:
    return [webhook for webhook in bundle.csv.webhooks if webhook.type == CONVERSION]


def _twice(names: Iterable[Name]) -> list[Name]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _is_dns(name: str) -> bool:
    return len(name) <= 253 and _DNS.fullmatch(name) is not None
