"""What changes between two definitions, field by field, and whether objects or their readers could suffer from it.

Safe is what accepts everything that was accepted before and changes no meaning: a new optional field, a wider bound, a
further enum value. Breaking is everything else, and everything that this module does not know: a keyword of a later
Kubernetes is breaking until somebody has thought about it. Descriptions are for people and no change.

`KEYWORDS` is the whole policy for one place of a schema: each keyword with the function that judges it. `compare` walks
the two schemas side by side, each place once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pointsman.crds.definition import Definition

Schema = Mapping[str, Any]
Judgement = tuple[str, bool] | None
Judge = Callable[[Any, Any], Judgement]
_NOTHING: Any = object()


@dataclass(frozen=True, order=True)
class SchemaChange:
    """One difference: where, what, and whether it breaks."""

    path: str
    what: str
    breaking: bool

    def __str__(self) -> str:
        return f"{'BREAKING' if self.breaking else 'safe':8} {self.path}: {self.what}"


def compare(old: Definition, new: Definition) -> list[SchemaChange]:
    """Return what changes from the old definition to the new one, breaking changes first."""
    found = [*_spec(old.spec, new.spec), *_versions(old, new)]
    return sorted(found, key=lambda change: (not change.breaking, change.path))


# Of the definition as a whole.


def _spec(old: Schema, new: Schema) -> Iterator[SchemaChange]:
    judges = {"scope": _fixed, "group": _fixed, "conversion": _conversion, "preserveUnknownFields": _opening}
    for name in sorted((old.keys() | new.keys()) - {"names", "versions"}):
        yield from _judged(name, judges.get(name, _unknown), old, new)
    before, after = _names(old), _names(new)
    words = {"shortNames": _words, "categories": _words}
    for name in sorted(before.keys() | after.keys()):
        yield from _judged(f"names.{name}", words.get(name, _fixed), before, after, key=name)


def _names(spec: Schema) -> Schema:
    """Return the names with those that the API server adds where they are left out."""
    names = spec["names"]
    return {"listKind": f"{names['kind']}List", "singular": names["kind"].lower(), **names}


def _versions(old: Definition, new: Definition) -> Iterator[SchemaChange]:
    before, after = old.versions, new.versions
    for name in before.keys() - after.keys():
        yield SchemaChange(name, "the version is removed", True)
    for name in after.keys() - before.keys():
        yield SchemaChange(name, "a version is added", False)
    for name in before.keys() & after.keys():
        yield from _version(before[name], after[name], path=name)
    if old.storage != new.storage and new.storage in after:
        yield _moved(old, new)


def _moved(old: Definition, new: Definition) -> SchemaChange:
    """Judge a new storage version: without conversion, what its schema does not know is dropped from objects."""
    lost = [c for c in _schema(_root(old, old.storage), _root(new, new.storage), path="") if c.breaking]
    what = f"objects are stored as {new.storage} instead of {old.storage}"
    return SchemaChange("storage", f"{what}, whose schema takes less" if lost else what, bool(lost))


def _root(definition: Definition, version: str) -> Schema:
    root: Schema = definition.versions[version].get("schema", {}).get("openAPIV3Schema", {})
    return root


def _version(old: Schema, new: Schema, *, path: str) -> Iterator[SchemaChange]:
    judges = {
        "served": _opening,
        "deprecated": _free,
        "deprecationWarning": _free,
        "additionalPrinterColumns": _free,
        "selectableFields": _words,
        "subresources": _subresources,
    }
    for name in sorted((old.keys() | new.keys()) - {"name", "schema", "storage"}):
        yield from _judged(f"{path}: {name}", judges.get(name, _unknown), old, new, key=name)
    sides = (side.get("schema", {}).get("openAPIV3Schema", {}) for side in (old, new))
    yield from _schema(*sides, path=f"{path}: ")


# Of one place in a schema.


def _schema(old: Schema, new: Schema, *, path: str) -> Iterator[SchemaChange]:
    for name in sorted(old.keys() | new.keys()):
        where = f"{path}.{name}" if path and not path.endswith(" ") else f"{path}{name}"
        if name == "properties":
            yield from _properties(old, new, path=path)
        elif name in {"items", "additionalProperties"} and _both(old.get(name), new.get(name)):
            yield from _schema(old[name], new[name], path=f"{path}{'[]' if name == 'items' else '{}'}")
        elif name not in _IGNORED:
            yield from _judged(where, KEYWORDS.get(name, _unknown), old, new, key=name)


def _properties(old: Schema, new: Schema, *, path: str) -> Iterator[SchemaChange]:
    before, after = old.get("properties") or {}, new.get("properties") or {}
    open_before = bool(old.get("x-kubernetes-preserve-unknown-fields") or old.get("additionalProperties"))
    for name in sorted(before.keys() | after.keys()):
        where = f"{path}{'' if not path or path.endswith(' ') else '.'}{name}"
        if name not in after:
            yield SchemaChange(where, "the field is removed", True)
        elif name not in before and open_before:
            yield SchemaChange(where, "a field is added where objects could already have anything", True)
        elif name not in before:
            yield SchemaChange(where, "a field is added", False)
        elif _both(before[name], after[name]):
            yield from _schema(before[name], after[name], path=where)
        elif before[name] != after[name]:
            yield SchemaChange(where, "is no schema", True)


def _judged(path: str, judge: Judge, old: Schema, new: Schema, *, key: str = "") -> Iterator[SchemaChange]:
    name = key or path
    before, after = old.get(name, _NOTHING), new.get(name, _NOTHING)
    if _same(before, after):
        return
    judgement = judge(before, after)
    if judgement is not None:
        yield SchemaChange(path, *judgement)


def _same(before: Any, after: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    return type(before) is type(after) and bool(before == after)


def _both(before: Any, after: Any) -> bool:
    return isinstance(before, dict) and isinstance(after, dict)


# The judges: what happened, and whether it breaks. `_NOTHING` stands for a keyword that is not there.


def _said(value: Any) -> str:
    text = "nothing" if value is _NOTHING else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _unknown(before: Any, after: Any) -> Judgement:
    return f"changes from {_said(before)} to {_said(after)}, which we cannot judge", True


def _fixed(before: Any, after: Any) -> Judgement:
    return f"changes from {_said(before)} to {_said(after)}", True


def _free(_: Any, __: Any) -> Judgement:
    return "changes", False


def _removable(before: Any, after: Any) -> Judgement:
    """Judge a constraint: without it more is accepted."""
    return (
        (f"{_said(before)} no longer applies", False)
        if after is _NOTHING
        else (f"{_said(after)} applies, before {_said(before)}", True)
    )


def _opening(before: Any, after: Any) -> Judgement:
    """Judge a switch that lets more in when it is on; not there means off."""
    was, becomes = (value is True for value in (before, after))
    return None if was == becomes else (f"becomes {str(becomes).lower()}", not becomes)


def _closing(before: Any, after: Any) -> Judgement:
    """Judge a switch that keeps something out when it is on."""
    was, becomes = (value is True for value in (before, after))
    return None if was == becomes else (f"becomes {str(becomes).lower()}", becomes)


def _least(before: Any, after: Any) -> Judgement:
    return _bound(before, after, tighter=lambda old, new: new > old, none=0)


def _most(before: Any, after: Any) -> Judgement:
    return _bound(before, after, tighter=lambda old, new: new < old)


def _minimum(before: Any, after: Any) -> Judgement:
    return _bound(before, after, tighter=lambda old, new: new > old)


def _bound(before: Any, after: Any, *, tighter: Callable[[Any, Any], bool], none: Any = _NOTHING) -> Judgement:
    if after is _NOTHING:
        return f"the bound {_said(before)} is removed", False
    if before is _NOTHING:
        return f"a bound of {_said(after)} is added", after != none
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in (before, after)):
        return _unknown(before, after)
    return f"the bound goes from {_said(before)} to {_said(after)}", tighter(before, after)


def _enum(before: Any, after: Any) -> Judgement:
    if after is _NOTHING:
        return "any value is allowed", False
    if before is _NOTHING:
        return f"only {_said(after)} are allowed", True
    known = {repr(value) for value in after}
    gone = [value for value in before if repr(value) not in known]
    return (f"{_said(gone)} are no longer allowed", True) if gone else ("values are added", False)


def _required(before: Any, after: Any) -> Judgement:
    was, becomes = (set(value) if value is not _NOTHING else set() for value in (before, after))
    if becomes - was:
        return f"{', '.join(sorted(becomes - was))} must now be there", True
    return (f"{', '.join(sorted(was - becomes))} may now be left out", False) if was - becomes else None


def _words(before: Any, after: Any) -> Judgement:
    """Judge a list of names that people or programs may use: one more harms nobody."""
    was, becomes = ([repr(value) for value in side] if side is not _NOTHING else [] for side in (before, after))
    gone = sorted(set(was) - set(becomes))
    if gone:
        return f"{', '.join(gone)} go", True
    return ("some are added", False) if set(becomes) - set(was) else None


def _rules(before: Any, after: Any) -> Judgement:
    """Judge the rules of a place by what they demand; their sentences are for people."""
    was, becomes = ({_demand(rule) for rule in side} if side is not _NOTHING else set() for side in (before, after))
    if becomes - was:
        return f"a rule is added: {_said(min(becomes - was)[0])}", True
    return (f"{len(was - becomes)} of its rules no longer apply", False) if was - becomes else None


def _demand(rule: Any) -> tuple[str, str]:
    if not isinstance(rule, dict):
        return repr(rule), ""
    told = {"rule", "message", "messageExpression", "reason", "fieldPath"}
    return str(rule.get("rule")), repr(sorted((name, repr(rule[name])) for name in rule.keys() - told))


def _list_type(before: Any, after: Any) -> Judgement:
    """Judge how writers share a list; one that says nothing is atomic."""
    was, becomes = ("atomic" if value is _NOTHING else value for value in (before, after))
    return None if was == becomes else (f"becomes {_said(becomes)}, before {_said(was)}", True)


def _map_type(before: Any, after: Any) -> Judgement:
    was, becomes = ("granular" if value is _NOTHING else value for value in (before, after))
    return None if was == becomes else (f"becomes {_said(becomes)}, before {_said(was)}", True)


def _conversion(before: Any, after: Any) -> Judgement:
    """Judge how versions are turned into each other; the API server writes {strategy: None} where nothing stands."""
    was, becomes = ({"strategy": "None"} if value is _NOTHING else value for value in (before, after))
    return None if was == becomes else ("objects are converted in another way", True)


def _subresources(before: Any, after: Any) -> Judgement:
    was, becomes = (value if isinstance(value, dict) else {} for value in (before, after))
    if set(was) - set(becomes):
        return f"{', '.join(sorted(set(was) - set(becomes)))} is removed", True
    if "status" in becomes and "status" not in was:
        return "status is added: who writes it with the rest of the object is no longer heard", True
    changed = [name for name in was if was[name] != becomes[name]]
    return (f"{', '.join(changed)} changes", True) if changed else ("scale is added", False)


_IGNORED = frozenset({"description", "title", "example", "externalDocs"})
KEYWORDS: Mapping[str, Judge] = {
    "type": _fixed,
    "format": _removable,
    "nullable": _opening,
    "default": _fixed,  # also one that is added: objects that left the field out change their meaning
    "required": _required,
    "enum": _enum,
    "pattern": _removable,
    "minimum": _minimum,
    "maximum": _most,
    "exclusiveMinimum": _closing,
    "exclusiveMaximum": _closing,
    "multipleOf": _removable,
    "minLength": _least,
    "maxLength": _most,
    "minItems": _least,
    "maxItems": _most,
    "minProperties": _least,
    "maxProperties": _most,
    "uniqueItems": _closing,
    "items": _fixed,
    "additionalProperties": _fixed,
    "x-kubernetes-validations": _rules,
    "x-kubernetes-list-type": _list_type,
    "x-kubernetes-list-map-keys": _fixed,
    "x-kubernetes-map-type": _map_type,
    "x-kubernetes-preserve-unknown-fields": _opening,
    "x-kubernetes-int-or-string": _fixed,
    "x-kubernetes-embedded-resource": _fixed,
}
