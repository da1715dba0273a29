"""DeploymentConfig: what an administrator changes about the operator's own pods.

The fields are those of OLM's Subscription `spec.config`, and so are the rules: environment by name, `envFrom` and
tolerations added unless they are there, resources and node selector replaced, affinity replaced by kind of affinity (an
empty one clears), annotations added where there are none of that name. Init containers are left alone.
"""

from collections.abc import Iterable, Iterator
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
    whole = (
        {key: each for key, each in document.items() if each is not None} if isinstance(document, dict) else document
    )
    try:
        config = msgspec.convert({} if whole is None else whole, DeploymentConfig)
    except msgspec.ValidationError as error:
        raise UserError(f"{name}: {error}") from None
    for problem in _problems(config):
        raise UserError(f"{name}: {problem}")
    return config


def _problems(config: DeploymentConfig) -> Iterator[str]:
    """Yield what could only be guessed at: an item that replaces by name and has none, a kind that is misspelt."""
    by_name = {"env": config.env, "volumes": config.volumes, "volumeMounts": config.volume_mounts}
    for field, items in by_name.items():
        for at, each in enumerate(items):
            if not isinstance(each.get("name"), str) or not each["name"]:
                yield f"{field}[{at}] has no name: say whose place it takes"
    for kind, value in (config.affinity or {}).items():
        if kind not in _AFFINITIES:
            yield f"affinity.{kind} is no kind of affinity: there is {', '.join(_AFFINITIES)}"
        elif value is not None and not isinstance(value, dict):
            yield f"affinity.{kind} must be a mapping"


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
    """Return the list with each wanted item in the place of its namesake, the last if there are several, or at the end.

    Namesakes are no mistake: one volume may be mounted at two places.
    """
    found = list(present)
    places = {str(each.get("name")): at for at, each in enumerate(found)}
    for each in wanted:
        at = places.get(str(each.get("name")), len(found))
        found[at : at + 1] = [each]
    return found


def _added(present: Iterable[Object], wanted: Iterable[Object]) -> list[Object]:
    found = list(present)
    for each in wanted:
        if each not in found:
            found.append(each)
    return found


def _affinity(present: Object, wanted: Object) -> Object:
    """Return the affinity by kind: a kind that is named replaces, an empty one clears; an empty affinity clears all."""
    named = {kind: each for kind, each in wanted.items() if each is not None}
    if not named:
        return {}
    merged = {**present, **named}
    kept = {kind: value for kind, value in merged.items() if kind not in named or not _hollow(value)}
    return {} if _hollow(kept) else kept


def _hollow(value: Any) -> bool:
    """Say whether nothing is asked for: `requiredDuringScheduling…: []` is as empty as `{}`."""
    if isinstance(value, dict):
        return all(map(_hollow, value.values()))
    return value is None or value == []


def _annotated(metadata: Object, config: DeploymentConfig) -> Object:
    if not config.annotations:
        return metadata
    return {**metadata, "annotations": {**config.annotations, **(metadata.get("annotations") or {})}}
