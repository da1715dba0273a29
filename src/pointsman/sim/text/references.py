"""Where the references of a JSON schema lead, and what its older spellings mean."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from pointsman.core.lines import cut
from pointsman.core.numbers import whole
from pointsman.sim.failures import Refusal


def refused(where: str, reason: str) -> Refusal:
    """Return the refusal of a schema, with the place in it."""
    return Refusal(400, f"The schema cannot be met: {cut(where, most=200)} {reason}")


def target(root: Any, reference: Any, *, where: str) -> Any:
    """Return what a reference of the schema `root` leads to.

    Raises Refusal 400 when it leads out of the schema, or nowhere.
    """
    shown = cut(str(reference), most=100)
    own = str(root.get("$id", "")).rstrip("#") if isinstance(root, dict) else ""
    path = str(reference).removeprefix(own) if own else str(reference)
    if not isinstance(reference, str) or not path.startswith("#"):
        raise refused(where, f"refers to {shown!r}: only references into itself are followed")
    if path != "#" and not path.startswith("#/"):
        return _anchored(root, path[1:], shown=shown, where=where)
    found: Any = root
    for part in path[1:].split("/")[1:]:
        found = _inside(found, unquote(part).replace("~1", "/").replace("~0", "~"))
    if not isinstance(found, dict | bool):
        raise refused(where, f"refers to {shown!r}, which is not there")
    return found


def _inside(found: Any, key: str) -> Any:
    if isinstance(found, dict):
        return found.get(key)
    number = whole(key, most=10**6)
    return found[number] if isinstance(found, list) and number is not None and number < len(found) else None


def _anchored(root: Any, name: str, *, shown: str, where: str) -> Any:
    """Return the definition that calls itself so."""
    for key in ("$defs", "definitions"):
        known = root.get(key) if isinstance(root, dict) else None
        for each in known.values() if isinstance(known, dict) else ():
            if isinstance(each, dict) and each.get("$anchor") == name:
                return each
    raise refused(where, f"refers to {shown!r}, which is not there")


def modern(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with what older drafts call otherwise: lists of items, and dependencies."""
    if isinstance(schema.get("items"), list):
        rest = schema.get("additionalItems", True)
        schema = {**schema, "prefixItems": schema["items"], "items": rest}
    if isinstance(old := schema.get("dependencies"), dict):
        names = {key: value for key, value in old.items() if isinstance(value, list)}
        others = {key: value for key, value in old.items() if not isinstance(value, list)}
        schema = {"dependentRequired": names, "dependentSchemas": others, **schema}
    return schema
