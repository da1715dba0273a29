"""What is wanted of one component, and the steps that bring it about, in order. Pure.

    namespace → definitions → presync → pull-secret │ install → wait │ postsync

`before` and `after` are the parts around the release, for those whose helmfile does the release itself. A step has a
fingerprint of everything that goes into it: a step that an interrupted run has done is skipped only while that is the
same.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from pointsman.core.kinds import Object
from pointsman.platform.marks import RELEASE_VALUES, marked

StepName = Literal["namespace", "definitions", "presync", "pull-secret", "install", "wait", "postsync"]
Part = Literal["all", "before", "after"]
STEPS: tuple[StepName, ...] = ("namespace", "definitions", "presync", "pull-secret", "install", "wait", "postsync")
_PARTS: Mapping[Part, tuple[StepName, ...]] = {"all": STEPS, "before": STEPS[:4], "after": STEPS[5:]}
_NO_NAMESPACE = frozenset(
    {"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "PriorityClass", "GatewayClass"}
)
MOST_DEFINITION = 1_400_000
"""Bytes of JSON that a definition may have: etcd takes 1.5 MiB, and the server adds what it keeps of its own."""


@dataclass(frozen=True)
class Wanted:
    """One component as it shall be on the cluster."""

    name: str
    namespace: str
    release: str = ""
    version: str = ""
    chart: Mapping[str, str] = field(default_factory=dict, repr=False)
    remote_chart: str = ""
    remote_version: str = ""
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    operand_namespaces: Sequence[str] = ()
    own_definitions: Sequence[Object] = field(default=(), repr=False)
    """Those of the bundle: the operator needs them as they are."""
    shared_definitions: Sequence[Object] = field(default=(), repr=False)
    """Those that may be anybody's: needed where the cluster has none."""
    groups: Sequence[str] = ()
    """API groups that the operator needs from whoever has them."""
    presync: Sequence[Object] = field(default=(), repr=False)
    postsync: Sequence[Object] = field(default=(), repr=False)
    pull_secret: str = ""
    docker_config: str = field(default="", repr=False)
    deployments: Sequence[str] = ()
    webhook_loop: bool = False

    @property
    def installs(self) -> bool:
        """Say whether there is a release at all."""
        return bool(self.chart or self.remote_chart)

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.namespace, *self.operand_namespaces)))

    @property
    def all_values(self) -> dict[str, Any]:
        """Return the release's values, with the mark that makes it ours."""
        own = dict(self.values)
        return {**own, "global": {**(own.get("global") or {}), **RELEASE_VALUES["global"]}}


@dataclass(frozen=True)
class Step:
    """One step of one component."""

    component: str
    name: StepName
    fingerprint: str
    objects: tuple[Object, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"{self.component}: {self.name}"


def steps_of(wanted: Wanted, *, part: Part = "all") -> list[Step]:
    """Return the steps that have something to do."""
    return [step for name in _PARTS[part] if (step := _step(wanted, name)) is not None]


def placed(document: Object, *, namespace: str) -> Object:
    """Return an object in the component's namespace, unless it names one or its kind has none."""
    metadata = document["metadata"]
    if "namespace" in metadata or document["kind"] in _NO_NAMESPACE or document["kind"].startswith("Cluster"):
        return document
    return {**document, "metadata": {**metadata, "namespace": namespace}}


def too_large(wanted: Wanted) -> list[str]:
    """Return a sentence for each definition that no API server would store."""
    sizes = {each["metadata"]["name"]: len(msgspec.json.encode(each)) for each in wanted.own_definitions}
    return [
        f"{name} has {size} bytes, and an API server stores at most {MOST_DEFINITION}: cut its descriptions"
        for name, size in sizes.items()
        if size > MOST_DEFINITION
    ]


def _step(wanted: Wanted, name: StepName) -> Step | None:
    material = _MATERIAL[name](wanted)
    if material is None:
        return None
    objects = tuple(marked(each, component=wanted.name, step=name) for each in material)
    extra = (wanted.chart, wanted.remote_chart, wanted.remote_version, wanted.all_values) if name == "install" else ()
    secret = name == "pull-secret"  # not even a hash of a password goes into the journal
    text = msgspec.json.encode([name, wanted.version, () if secret else objects, extra], order="deterministic")
    return Step(wanted.name, name, hashlib.sha256(text).hexdigest()[:16], objects)


def _namespaces(wanted: Wanted) -> list[Object]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}} for each in wanted.namespaces]


def _definitions(wanted: Wanted) -> list[Object] | None:
    return [*wanted.own_definitions, *wanted.shared_definitions] or None


def _presync(wanted: Wanted) -> list[Object] | None:
    return [_with_secret(placed(each, namespace=wanted.namespace), wanted) for each in wanted.presync] or None


def _with_secret(document: Object, wanted: Wanted) -> Object:
    """Return an account with the pull secret; other objects as they are."""
    if document["kind"] != "ServiceAccount" or not wanted.pull_secret:
        return document
    secrets = [*(document.get("imagePullSecrets") or []), {"name": wanted.pull_secret}]
    return {**document, "imagePullSecrets": secrets}


def _pull_secret(wanted: Wanted) -> list[Object] | None:
    if not wanted.docker_config:
        return None
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": wanted.pull_secret, "namespace": namespace},
            "data": {".dockerconfigjson": base64.b64encode(wanted.docker_config.encode()).decode()},
        }
        for namespace in wanted.namespaces
    ]


def _release(wanted: Wanted) -> list[Object] | None:
    return [] if wanted.installs else None


def _postsync(wanted: Wanted) -> list[Object] | None:
    found = [placed(each, namespace=wanted.namespace) for each in wanted.postsync]
    return found if found or wanted.webhook_loop else None


_MATERIAL: Mapping[StepName, Callable[[Wanted], list[Object] | None]] = {
    "namespace": _namespaces,
    "definitions": _definitions,
    "presync": _presync,
    "pull-secret": _pull_secret,
    "install": _release,
    "wait": _release,
    "postsync": _postsync,
}
