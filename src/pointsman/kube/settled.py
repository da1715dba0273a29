"""Is there anything to write? Compare a document that we want with the one that is there, without asking the
server.

Pure. Server-side apply is a no-op when our field manager already owns exactly the fields of the document and
their values are the same. Both are visible in the live object: its `managedFields` entry of our manager is a
tree of the fields that we own, with the keys by which list elements are told apart, so no schema is needed.
Extra fields and elements in the live object are defaults or other managers' and do not count; a field that we
own and no longer want does.

It may say "write" where the server would find nothing to do (it rewrites `1000m` as `1`); the opposite must
never happen.
"""

from typing import Any

import msgspec

from pointsman.core.kinds import Object

_IDENTITY = frozenset({"name", "namespace", "uid", "resourceVersion"})
_MISSING = object()


def is_settled(desired: Object, live: Object, *, manager: str, subresource: str = "") -> bool:
    """Tell whether applying `desired` as `manager` would change nothing in `live`."""
    fields = owned_fields(live, manager=manager, subresource=subresource)
    return fields is not None and _same(fields, _body(desired), live)


def owned_fields(live: Object, *, manager: str, subresource: str = "") -> dict[str, Any] | None:
    """Return the tree of fields that the manager applied, or None when it has applied nothing."""
    for managed in live["metadata"].get("managedFields", []):
        told = (managed.get("manager"), managed.get("operation"), managed.get("subresource", ""))
        if told == (manager, "Apply", subresource):
            fields: dict[str, Any] = managed.get("fieldsV1", {})
            return fields
    return None


def owned_values(live: Object, *, manager: str) -> Any:
    """Return the part of the live object that the manager owns: what others change in it does not show here."""
    return _project(owned_fields(live, manager=manager) or {}, live)


def _project(fields: dict[str, Any], live: Any) -> Any:
    if not fields or any(name.startswith("i:") for name in fields):
        return live
    return {name: _project(tree, _child(live, name)) for name, tree in fields.items() if name != "."}


def _child(live: Any, name: str) -> Any:
    how, _, text = name.partition(":")
    if how == "f":
        return live.get(text) if isinstance(live, dict) else None
    found = _element(live, msgspec.json.decode(text), by_key=how == "k") if isinstance(live, list) else _MISSING
    return None if found is _MISSING else found


def _body(desired: Object) -> Object:
    """Return the fields that managers own: what names the object and its type is nobody's."""
    body = {name: value for name, value in desired.items() if name not in {"apiVersion", "kind", "metadata"}}
    metadata = {name: value for name, value in desired["metadata"].items() if name not in _IDENTITY}
    return {**body, "metadata": metadata} if metadata else body


def _same(fields: dict[str, Any], desired: Any, live: Any) -> bool:
    children = {name: tree for name, tree in fields.items() if name != "."}
    if not fields:
        return _within(desired, live)
    if isinstance(desired, dict):
        return isinstance(live, dict) and _same_map(children, desired, live)
    if isinstance(desired, list):
        return isinstance(live, list) and _same_list(children, desired, live)
    return False


def _same_map(fields: dict[str, Any], desired: Object, live: Object) -> bool:
    if fields.keys() != {f"f:{name}" for name in desired}:
        return False
    return all(name in live and _same(fields[f"f:{name}"], desired[name], live[name]) for name in desired)


def _same_list(fields: dict[str, Any], desired: list[Any], live: list[Any]) -> bool:
    if len(fields) != len(desired):
        return False
    for name, tree in fields.items():
        how, _, text = name.partition(":")
        if how == "i":  # by position: never merged, so compared whole
            return _within(desired, live)
        told = msgspec.json.decode(text)
        wanted, there = _element(desired, told, by_key=how == "k"), _element(live, told, by_key=how == "k")
        if wanted is _MISSING or there is _MISSING:
            return False
        if how == "k" and not _same(tree, wanted, there):
            return False
    return True


def _element(elements: list[Any], told: Any, *, by_key: bool) -> Any:
    if not by_key:
        return told if told in elements else _MISSING
    for element in elements:
        # A key that we left out was filled in by a default (a port's protocol).
        if isinstance(element, dict) and all(element.get(name, value) == value for name, value in told.items()):
            return element
    return _MISSING


def _within(desired: Any, live: Any) -> bool:
    """Tell whether every value of `desired` stands in `live`; maps may have more, lists may not."""
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(
            name in live and _within(value, live[name]) for name, value in desired.items()
        )
    if isinstance(desired, list):
        return (
            isinstance(live, list)
            and len(live) == len(desired)
            and all(_within(ours, theirs) for ours, theirs in zip(desired, live, strict=True))
        )
    return bool(desired == live) and isinstance(desired, bool) == isinstance(live, bool)
