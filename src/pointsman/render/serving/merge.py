"""One spec over another, as Kubernetes merges Pod templates: strategic merge. Pure.

Blocks are merged field by field; a list replaces a list, except those whose elements have a name in Kubernetes' own
schema (`_KEYS`): there elements of the same name are merged and others are added. Null counts as left out. Where the
two disagree about what a field is, or an element of such a list has no name, that is a conflict and says where.
"""

from collections.abc import Mapping
from typing import Any

from pointsman.core.errors import UserError

Object = dict[str, Any]

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
}
NESTED = 60
# An element is what it says and nothing of another: a volume has one source, a variable one value.
_WHOLE = ("volumes", "env")
# What is opaque to Kubernetes is one value.
_ATOMIC = ("inline",)


class MergeConflict(UserError):
    """Two specs that cannot be one."""


def merged(base: Mapping[str, Any], over: Mapping[str, Any], *, path: str = "spec") -> Object:
    """Return `base` with `over` on top of it. Raises MergeConflict."""
    if path.count(".") > NESTED:
        raise MergeConflict(f"{path[:120]}…: blocks are nested more than {NESTED} deep: no part of a Pod is")
    result = dict(base)
    for name, value in over.items():
        if value is None:
            continue
        here = f"{path}.{name}"
        result[name] = _one(base.get(name), value, name=name, path=here)
    return result


def _one(old: Any, new: Any, *, name: str, path: str) -> Any:
    if old is None or name in _ATOMIC:
        return new
    if isinstance(new, Mapping) != isinstance(old, Mapping) or isinstance(new, list) != isinstance(old, list):
        raise MergeConflict(f"{path} is {_what(new)} here and {_what(old)} in what it is merged over: make them alike")
    if isinstance(new, Mapping):
        return merged(old, new, path=path)
    if isinstance(new, list) and name in _KEYS and _keyed(old, new, key=_KEYS[name], name=name, path=path):
        return _listed(old, new, key=_KEYS[name], whole=name in _WHOLE, path=path)
    return new


def _keyed(old: list[Any], new: list[Any], *, key: str, name: str, path: str) -> bool:
    """Tell whether a list's elements have names; Kubernetes has other lists of the name `ports`."""
    for at, each in enumerate(new):
        if not isinstance(each, Mapping):
            raise MergeConflict(f"{path}[{at}] is {_what(each)}: it is a block with a {key}")
        if each.get(key) is None and name != "ports":
            raise MergeConflict(f"{path}[{at}] has no {key}, by which it is merged: give it one")
    return all(isinstance(each, Mapping) and key in each for each in (*old, *new))


def _listed(old: list[Any], new: list[Any], *, key: str, whole: bool, path: str) -> list[Any]:
    result = {each[key]: each for each in old}
    for at, each in enumerate(new):
        known = result.get(each[key])
        result[each[key]] = each if known is None or whole else merged(known, each, path=f"{path}[{at}]")
    return list(result.values())


def _what(value: Any) -> str:
    return "a block" if isinstance(value, Mapping) else "a list" if isinstance(value, list) else f"{value!r:.40}"
