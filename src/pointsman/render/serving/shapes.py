"""What of a Pod template, a route or a pool is read here must be what it is in Kubernetes. Pure.

These parts are opaque in our definitions, so nobody else has looked at them before we merge, change and name what is in
them; what is not read here is for the API server to check.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Shape = dict[str, Any] | list[Any] | type
"""Fields of a block, of which those with ! must be there; the one shape of a list's elements; or a type of values."""

_NAMED = {"name!": str}
_CONTAINER = {
    "name!": str,
    "command": [str],
    "args": [str],
    "env": [_NAMED],
    "ports": [{"containerPort!": int}],
    "volumeMounts": [{"mountPath!": str}],
}
_POD = {"containers": [_CONTAINER], "initContainers": [_CONTAINER], "volumes": [_NAMED]}
_ROUTE = {"parentRefs": [_NAMED], "rules": [{"backendRefs": [_NAMED]}]}
_POOL: Shape = {"selector": {}, "targetPorts": [{}], "endpointPickerRef": {}, "extensionRef": {}}
SPEC: Shape = {
    "template": _POD,
    "prefill": {"template": _POD},
    "router": {
        "route": {"http": {"spec": _ROUTE}},
        "scheduler": {"image": str, "template": _POD, "pool": {"spec": _POOL}},
    },
}
_WORDS = {str: "a text", int: "a number"}


def misshapen(value: Any, *, shape: Shape = SPEC, path: str = "spec") -> Iterator[str]:
    """Yield what is not as it must be, each with the field and what to write; null counts as left out."""
    if value is None:
        return
    if isinstance(shape, dict):
        yield from _block(value, shape, path)
    elif isinstance(shape, list):
        yield from _list(value, shape[0], path)
    elif not isinstance(value, shape) or isinstance(value, bool):
        yield f"{path} is {value!r:.40}: write {_WORDS[shape]}"


def _block(value: Any, fields: dict[str, Any], path: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{path} is {value!r:.40}: write a block"
        return
    for name, shape in fields.items():
        field = name.removesuffix("!")
        if field != name and value.get(field) is None:
            yield f"{path} has no {field}: give it one"
        yield from misshapen(value.get(field), shape=shape, path=f"{path}.{field}")


def _list(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path} is {value!r:.40}: write a list"
        return
    for at, each in enumerate(value):
        if each is None:
            yield f"{path}[{at}] is nothing: take it away"
        yield from misshapen(each, shape=shape, path=f"{path}[{at}]")
