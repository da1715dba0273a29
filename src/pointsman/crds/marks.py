"""Whose is a definition? Our own stamp, and the marks by which other installers can be told.

A definition is ours when it carries our stamp with our name, and by nothing else: not because its schema is ours, nor
because we once wrote to it. Others are recognised to name them to people; whoever is not recognised is as foreign as
they are. Marks of another installer beside our stamp are told too: it may write again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pointsman.core.kinds import Object
from pointsman.kube.ownership import MANAGED_BY

MANAGER = "pointsman-crds"
"""The field manager under which definitions are written."""
OWNER = "pointsman"
"""The name that the stamp carries unless another is given."""
STAMP = "crds.llm-d.io/owner"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

Marks = Mapping[str, str]


@dataclass(frozen=True)
class Holder:
    """Who holds a definition, for people, and whether that is us."""

    ours: bool
    name: str


def holder(live: Object, *, owner: str = OWNER) -> Holder:
    """Return who holds the definition."""
    stamp = _annotations(live).get(STAMP)
    if stamp is None:
        return Holder(ours=False, name=installer(live) or _writers(live))
    beside = installer(live)
    name = f"{stamp}, beside {beside}" if beside else stamp
    return Holder(ours=stamp == owner, name=name if stamp == owner else f"pointsman as {name}")


def stamped(document: Object, *, owner: str = OWNER) -> Object:
    """Return the document with our stamp; what it has of its own stays."""
    metadata = document["metadata"]
    return {
        **document,
        "metadata": {
            **metadata,
            "labels": {**(metadata.get("labels") or {}), MANAGED_BY: OWNER},
            "annotations": {**(metadata.get("annotations") or {}), STAMP: owner},
        },
    }


def installer(live: Object) -> str:
    """Return which other installer left its marks; empty when none did."""
    labels, annotations = _labels(live), _annotations(live)
    return next(filter(None, (told(labels, annotations) for told in _INSTALLERS)), "")


def rival(live: Object, *, manager: str = MANAGER) -> str:
    """Return who else writes the schema of a definition that is ours; empty when nobody does."""
    others = [
        str(entry.get("manager"))
        for entry in live["metadata"].get("managedFields", [])
        if entry.get("manager") != manager and "f:versions" in entry.get("fieldsV1", {}).get("f:spec", {})
    ]
    return ", ".join(sorted(set(others)))


def _olm(labels: Marks, annotations: Marks) -> str:
    prefix = "operators.coreos.com/"
    operator = next((name.removeprefix(prefix) for name in labels if name.startswith(prefix)), "")
    mine = labels.get("olm.managed") == "true" or any(
        name.startswith("operatorframework.io/installed-alongside") for name in annotations
    )
    return f"OLM ({operator})" if operator else "OLM" if mine else ""


def _helm(labels: Marks, annotations: Marks) -> str:
    release = annotations.get("meta.helm.sh/release-name")
    if release:
        return f"Helm release {annotations.get('meta.helm.sh/release-namespace', 'default')}/{release}"
    return f"Helm ({labels.get('helm.sh/chart', 'no release named')})" if labels.get(MANAGED_BY) == "Helm" else ""


def _sail(labels: Marks, _: Marks) -> str:
    if labels.get("ingress.operator.openshift.io/owned") == "true":
        return "the OpenShift ingress operator"
    return "the sail operator" if labels.get(MANAGED_BY, "").startswith("sail") else ""


def _kserve(labels: Marks, _: Marks) -> str:
    if any("opendatahub.io/" in name for name in labels):
        return "Open Data Hub"
    parts = (labels.get("app.kubernetes.io/part-of", ""), labels.get("app.kubernetes.io/name", ""))
    return "KServe" if any("kserve" in part or "llmisvc" in part for part in parts) else ""


def _gitops(labels: Marks, annotations: Marks) -> str:
    if "argocd.argoproj.io/tracking-id" in annotations:
        return f"Argo CD ({annotations['argocd.argoproj.io/tracking-id'].partition(':')[0]})"
    flux = labels.get("kustomize.toolkit.fluxcd.io/name") or labels.get("helm.toolkit.fluxcd.io/name")
    return f"Flux ({flux})" if flux else ""


def _kubectl(_: Marks, annotations: Marks) -> str:
    return "kubectl apply" if _APPLIED in annotations else ""


# In this order: OLM and Open Data Hub use Helm and kubectl themselves, and the outermost is the one to talk to.
_INSTALLERS: tuple[Callable[[Marks, Marks], str], ...] = (_olm, _sail, _kserve, _gitops, _helm, _kubectl)


def _writers(live: Object) -> str:
    """Return who wrote the definition, as the API server noted it."""
    names = {
        str(entry.get("manager"))
        for entry in live["metadata"].get("managedFields", [])
        if entry.get("subresource") != "status" and entry.get("manager") != "kube-apiserver"
    }
    return ", ".join(sorted(names)) or "nobody known"


def _labels(live: Object) -> Marks:
    return live["metadata"].get("labels") or {}


def _annotations(live: Object) -> Marks:
    return live["metadata"].get("annotations") or {}
