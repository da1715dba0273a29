"""Objects of one namespace → objects that Helm can put into any, with values for what an administrator changes.

Nothing here replaces text. The renderer is given `NAMESPACE`, a mark that no bundle has, as the namespace; wherever the
mark comes out, Helm's release namespace goes in: metadata, subjects, webhooks, host names of certificates, annotations.
The bundle's own text may name the namespace that it was written for. It is taken for that only where a name says so: an
environment variable or flag with `namespace` in its name, a subject, a host name that ends in `.svc`. The same word as
the name of an operator stays as it is.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pointsman.bundle.model import Bundle, Object
from pointsman.bundle.writer import Action, Template

NAMESPACE = "\ue000namespace\ue001"
_RELEASE = Action(".Release.Namespace")
_PINNED = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}")
_POD_FIELDS = ("initContainers", "containers")


@dataclass(frozen=True, slots=True)
class Scheme:
    """What is put into templates: the chart's name, its images by name, and the namespaces that mean its own."""

    chart: str
    images: Mapping[str, str]
    homes: tuple[str, ...]


def homes_of(bundle: Bundle) -> tuple[str, ...]:
    """Return the namespaces that the bundle was written for."""
    names = (bundle.suggested_namespace, bundle.csv.metadata.namespace)
    return tuple(dict.fromkeys(name for name in names if name and name != "placeholder"))


def images_of(bundle: Bundle) -> dict[str, str]:
    """Return every image that the operator runs or hands on, by a name that is its own."""
    found: dict[str, str] = {}
    for each in bundle.csv.spec.related_images:
        _name_image(found, each.name, each.image)
    for deployment in bundle.csv.deployments:
        template = deployment.spec.get("template") or {}
        pod = template.get("spec") or {}
        for container in (each for field in _POD_FIELDS for each in pod.get(field) or []):
            _name_image(found, str(container.get("name", "")), container.get("image"))
            for variable in container.get("env") or []:
                name, value = str(variable.get("name", "")), variable.get("value")
                if name.startswith("RELATED_IMAGE_") or _is_pinned(value):
                    _name_image(found, name.removeprefix("RELATED_IMAGE_").lower(), value)
        # The mesh's operator is told its images through annotations of its own Pod.
        for name, value in ((template.get("metadata") or {}).get("annotations") or {}).items():
            if _is_pinned(value):
                _name_image(found, name.removeprefix("images."), value)
    return dict(sorted(found.items()))


def templated(document: Object, scheme: Scheme) -> Object:
    """Return the object with places for Helm to fill in."""
    if document["kind"] == "Deployment":
        document = _deployment(document, scheme)
    elif document["kind"] == "ServiceAccount":
        own = document.get("imagePullSecrets") or []
        document = {**document, "imagePullSecrets": _joined(own, ".Values.imagePullSecrets")}
    elif document["kind"] in {"RoleBinding", "ClusterRoleBinding"}:
        subjects = [_at(each, "namespace", scheme) for each in document.get("subjects") or []]
        document = {**document, "subjects": subjects}
    if document["kind"] != "CustomResourceDefinition":  # a schema's descriptions name hosts as examples
        document = _hosts(document, scheme)
    made = _marked(document)
    assert isinstance(made, dict)
    return made


def _is_pinned(value: Any) -> bool:
    return isinstance(value, str) and _PINNED.fullmatch(value) is not None


def _name_image(found: dict[str, str], name: str, image: Any) -> None:
    if not isinstance(image, str) or not image or image in found.values():
        return
    base = re.sub(r"[^a-zA-Z0-9_-]", "-", name) or "image"
    unique, count = base, 2
    while unique in found:
        unique, count = f"{base}-{count}", count + 1
    found[unique] = image


def _deployment(document: Object, scheme: Scheme) -> Object:
    spec = document["spec"]
    template = spec.get("template") or {}
    pod = dict(template.get("spec") or {})
    for field in _POD_FIELDS:
        if field in pod:
            pod[field] = [_container(each, scheme) for each in pod[field]]
    pod["nodeSelector"] = _merged(pod.get("nodeSelector") or {}, ".Values.nodeSelector")
    pod["tolerations"] = _joined(pod.get("tolerations") or [], ".Values.tolerations")
    if pod.get("serviceAccountName", "default") == "default":  # the namespace's own account is not ours to change
        pod["imagePullSecrets"] = _joined(pod.get("imagePullSecrets") or [], ".Values.imagePullSecrets")
    names = {image: name for name, image in scheme.images.items()}
    return {
        **document,
        "spec": _each(
            {**spec, "template": {**template, "spec": pod}},
            lambda text: _with_image(text, names, scheme),
        ),
    }


def _with_image(text: str, names: Mapping[str, str], scheme: Scheme) -> str | Template:
    """Return what is an image, or a flag with one (`--proxy-image=IMAGE`), with the image from the values."""
    if text in names:
        return Template((Action(f"{_image(names[text], scheme)} | quote"),), quoted=False)
    flag, equals, image = text.partition("=")
    if image in names and flag.startswith("-"):
        return Template((f"{flag}{equals}", Action(_image(names[image], scheme))))
    return text


def _image(name: str, scheme: Scheme) -> str:
    return f'include "{scheme.chart}.image" (dict "root" $ "name" {json.dumps(name)})'


def _container(container: Object, scheme: Scheme) -> Object:
    changed = dict(container)
    for field in ("command", "args"):
        if field in changed:
            changed[field] = _flags(changed[field], scheme)
    if "env" in changed:
        changed["env"] = [
            _at(each, "value", scheme) if "namespace" in str(each.get("name", "")).lower() else each
            for each in changed["env"]
        ]
    return changed


def _flags(words: list[Any], scheme: Scheme) -> list[Any]:
    """Return a command line in which flags that are about a namespace name the release's: `--x=NS` and `--x NS`."""
    changed: list[Any] = []
    for word in words:
        flag, equals, value = str(word).partition("=")
        before = str(changed[-1]) if changed else ""
        if equals and _is_namespace_flag(flag) and value in scheme.homes:
            word = f"{flag}={NAMESPACE}"
        elif word in scheme.homes and "=" not in before and _is_namespace_flag(before):
            word = NAMESPACE
        changed.append(word)
    return changed


def _is_namespace_flag(word: str) -> bool:
    return word.startswith("-") and "namespace" in word.lower()


def _at(item: Object, field: str, scheme: Scheme) -> Object:
    return {**item, field: NAMESPACE} if item.get(field) in scheme.homes else item


def _hosts(document: Object, scheme: Scheme) -> Object:
    """Return the object with host names in the bundle's namespace moved to the release's: `name.NS.svc`, anywhere."""
    if not scheme.homes:
        return document
    homes = "|".join(map(re.escape, scheme.homes))
    pattern = re.compile(rf"(?<=[a-z0-9]\.)(?:{homes})(?=\.svc(?:[.:/,\s\"']|$))")
    made = _each(document, lambda text: pattern.sub(NAMESPACE, text) if ".svc" in text else text)
    assert isinstance(made, dict)
    return made


def _marked(value: Any) -> Any:
    """Return the value with the mark turned into an action."""
    return _each(value, lambda text: _split(text) if NAMESPACE in text else text)


def _split(text: str) -> Template:
    first, *rest = text.split(NAMESPACE)
    return Template((first, *(part for each in rest for part in (_RELEASE, each))))


def _each(value: Any, change: Callable[[str], Any]) -> Any:
    """Return the value with every text in it changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _each(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_each(each, change) for each in value]
    if isinstance(value, Template):
        return Template(tuple(_part(each, change) for each in value.parts), quoted=value.quoted)
    return value


def _part(part: str | Action, change: Callable[[str], Any]) -> str | Action:
    if isinstance(part, Action):
        return part
    changed = change(part)
    return changed if isinstance(changed, str) else part


def _joined(own: list[Any], values: str) -> Template:
    listed = f"concat (fromJsonArray {_literal(own)}) ({values} | default list)" if own else values
    return Template((Action(f"{listed} | toJson"),), quoted=False)


def _merged(own: Object, values: str) -> Template:
    # Into a mapping of its own: `merge` changes its first, and the values are every Deployment's.
    mapping = f"merge dict ({values} | default dict) (fromJson {_literal(own)})" if own else values
    return Template((Action(f"{mapping} | toJson"),), quoted=False)


def _literal(value: Any) -> str:
    """Return JSON as text in a template."""
    return json.dumps(json.dumps(value, separators=(",", ":"), sort_keys=True))
