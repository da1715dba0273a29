"""DeploymentConfig: what an administrator changes about the operator's own pods.

The fields are those of OLM's Subscription `spec.config`, and so are the rules: environment by name, `envFrom` and
tolerations added unless they are there, resources and node selector replaced, affinity replaced by kind of affinity (an
empty one clears), annotations added where there are none of that name. Init containers are left alone.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from pointsman.bundle.model import Object
from pointsman.core.errors import UserError

_AFFINITIES = ("nodeAffinity", "podAffinity", "podAntiAffinity")


class DeploymentConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Changes to every Deployment of a bundle; what is None stays as the bundle has it."""

    env: list[Object] = []
    env_from: list[Object] = []
    volumes: list[Object] = []
    volume_mounts: list[Object] = []
    tolerations: list[Object] = []
    resources: Object | None = None
    node_selector: dict[str, str] | None = None
    affinity: Object | None = None
    annotations: dict[str, str] = {}


def read_config(document: Any, *, name: str) -> DeploymentConfig:
    """Return a document as DeploymentConfig; raises UserError with the path of what is wrong."""
    try:
        return msgspec.convert(document or {}, DeploymentConfig)
    except msgspec.ValidationError as error:
        raise UserError(f"{name}: {error}") from None


def configured(deployment: Object, config: DeploymentConfig) -> Object:
    """Return the Deployment with the changes made."""
    template = deployment["spec"].get("template", {})
    pod = dict(template.get("spec", {}))
    pod["containers"] = [_container(each, config) for each in pod.get("containers", [])]
    _set(pod, "volumes", _by_name(pod.get("volumes", []), config.volumes))
    _set(pod, "tolerations", _added(pod.get("tolerations", []), config.tolerations))
    if config.node_selector is not None:
        pod["nodeSelector"] = config.node_selector
    if config.affinity is not None:
        _set(pod, "affinity", _affinity(pod.get("affinity", {}), config.affinity))
    template = {**template, "metadata": _annotated(template.get("metadata", {}), config), "spec": pod}
    return {
        **deployment,
        "metadata": _annotated(deployment["metadata"], config),
        "spec": {**deployment["spec"], "template": template},
    }


def _container(container: Object, config: DeploymentConfig) -> Object:
    changed = dict(container)
    _set(changed, "env", _by_name(container.get("env", []), config.env))
    _set(changed, "envFrom", _added(container.get("envFrom", []), config.env_from))
    _set(changed, "volumeMounts", _by_name(container.get("volumeMounts", []), config.volume_mounts))
    if config.resources is not None:
        changed["resources"] = config.resources
    return changed


def _set(target: Object, key: str, value: Any) -> None:
    """Set a field, or leave it out when there is nothing in it and was nothing before."""
    if value:
        target[key] = value
    else:
        target.pop(key, None)


def _by_name(present: Iterable[Object], wanted: Iterable[Object]) -> list[Object]:
    """Return the list with each wanted item in the place of its namesake, or at the end."""
    found = {str(each.get("name")): each for each in present}
    return list({**found, **{str(each.get("name")): each for each in wanted}}.values())


def _added(present: Iterable[Object], wanted: Iterable[Object]) -> list[Object]:
    found = list(present)
    return [*found, *(each for each in wanted if each not in found)]


def _affinity(present: Object, wanted: Object) -> Object:
    """Return the affinity by kind: a kind that is named replaces, an empty one clears; an empty affinity clears all."""
    if not wanted:
        return {}
    merged = {**present, **{kind: wanted[kind] for kind in _AFFINITIES if kind in wanted}}
    return {kind: value for kind, value in merged.items() if value}


def _annotated(metadata: Object, config: DeploymentConfig) -> Object:
    if not config.annotations:
        return metadata
    return {**metadata, "annotations": {**config.annotations, **(metadata.get("annotations") or {})}}
