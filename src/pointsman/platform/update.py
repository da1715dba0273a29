"""Two versions of a bundle → what an administrator wants to know before moving. Pure.

Versions, images, what the change of each definition means for objects that exist (the verdict of `crds`), and the
rights that the operator would gain or give up.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from pointsman.bundle.chart.templating import images_of
from pointsman.bundle.model import Bundle, Object
from pointsman.bundle.render.objects import InstallOptions, render
from pointsman.core.errors import UserError
from pointsman.crds import Definition, compare, read_definitions

_EVERYWHERE = "all namespaces"


class Right(NamedTuple):
    """One thing that may be done to one kind of thing."""

    where: str
    verb: str
    group: str
    resource: str
    names: str


@dataclass(frozen=True)
class BundleUpdate:
    """What differs: lines for people, and whether objects or their readers may suffer."""

    lines: tuple[str, ...]
    breaking: bool


def describe_update(old: Bundle | None, new: Bundle, *, namespace: str) -> BundleUpdate:
    """Return what changes from one bundle to the other; without the old one only what the new one is."""
    if old is None:
        return BundleUpdate(
            (f"version      {new.version} (what was there before cannot be had: nothing to compare)",), False
        )
    changes, breaking = _definitions(old, new)
    lines = (
        f"version      {old.version} → {new.version}",
        *_images(old, new),
        *changes,
        *_rights(old, new, namespace=namespace),
    )
    return BundleUpdate(lines, breaking)


def _images(old: Bundle, new: Bundle) -> Iterator[str]:
    before, after = images_of(old), images_of(new)
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield f"image +      {name}: {after[name]}"
        elif name not in after:
            yield f"image -      {name}: {before[name]}"
        elif before[name] != after[name]:
            yield f"image ~      {name}: {before[name]} → {after[name]}"


def _definitions(old: Bundle, new: Bundle) -> tuple[list[str], bool]:
    try:
        before, after = _by_name(old), _by_name(new)
    except UserError as error:  # what cannot be judged is not called safe
        return [f"definition ? {error}"], True
    lines: list[str] = []
    breaking = False
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            lines.append(f"definition + {name}")
        elif name not in after:
            lines.append(f"definition - {name}: it stays on clusters that have it")
        elif changes := compare(before[name], after[name]):
            broken = [each for each in changes if each.breaking]
            breaking = breaking or bool(broken)
            verdict = (
                f"BREAKING ({len(broken)} of {len(changes)} changes)" if broken else f"safe ({len(changes)} changes)"
            )
            lines.append(f"definition ~ {name}: {verdict}")
            lines.extend(f"    {each}" for each in broken)
    return lines, breaking


def _by_name(bundle: Bundle) -> dict[str, Definition]:
    if not bundle.crds:
        return {}
    return {each.name: each for each in read_definitions(bundle.crds, source=bundle.name)}


def _rights(old: Bundle, new: Bundle, *, namespace: str) -> Iterator[str]:
    before, after = (set(_rights_of(each, namespace=namespace)) for each in (old, new))
    gained = ((each, "+") for each in after - before if not _covered(each, before))
    lost = ((each, "-") for each in before - after if not _covered(each, after))
    for each, sign in sorted([*gained, *lost]):
        what = f"{each.resource}.{each.group}" if each.group else each.resource
        only = f" ({each.names})" if each.names else ""
        yield f"right {sign}      {each.verb} {what}{only} in {each.where}"


def _covered(right: Right, held: AbstractSet[Right]) -> bool:
    """Say whether a right follows from one that is held: everywhere, any verb, any group, any resource, any name."""
    choices = (
        {right.where, _EVERYWHERE},
        {right.verb, "*"},
        {right.group, "*"},
        {right.resource, "*"},
        {right.names, ""},
    )
    return any(Right(*each) in held for each in product(*choices))


def _rights_of(bundle: Bundle, *, namespace: str) -> Iterator[Right]:
    """Yield every single right."""
    for document in render(bundle, InstallOptions(namespace=namespace)):
        if document["kind"] in {"Role", "ClusterRole"}:
            where = _EVERYWHERE if document["kind"] == "ClusterRole" else document["metadata"]["namespace"]
            for rule in document.get("rules") or []:
                yield from _single(rule, where=where)


def _single(rule: Object, *, where: str) -> Iterator[Right]:
    names = ",".join(sorted(rule.get("resourceNames") or []))
    for verb in rule.get("verbs") or ():
        for url in rule.get("nonResourceURLs") or ():
            yield Right(where, verb, "", url, names)
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                yield Right(where, verb, group, resource, names)
