"""A file-based catalog → the one bundle that is meant. Pure: its files come from a folder or an image (`sources`).

Owns the choice. A channel is a graph: an entry replaces one, skips some, and by `skipRange` skips what lies in a range.
The head is what nothing else replaces or skips, wherever it stands in the list. A version is matched with the version
that the bundle itself states, or with the entry's name.
"""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from pointsman.bundle.model import without_nulls
from pointsman.bundle.reader import read_documents
from pointsman.bundle.versions import in_range, parse_version
from pointsman.core.errors import UserError
from pointsman.core.versions import Version, find_version

T = TypeVar("T")
Named = TypeVar("Named", "Channel", "CatalogBundle")
_BLANK = " \t\r\n"


class Package(msgspec.Struct, frozen=True, rename="camel"):
    """A package, and the channel that it prefers."""

    name: str
    default_channel: str = ""


class ChannelEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A bundle's place in a channel."""

    name: str
    replaces: str = ""
    skips: list[str] = []
    skip_range: str = ""


class Channel(msgspec.Struct, frozen=True):
    """The upgrade graph of a channel."""

    name: str
    package: str
    entries: list[ChannelEntry] = []


class Property(msgspec.Struct, frozen=True):
    """Something that a bundle states."""

    type: str
    value: Any = None


class CatalogBundle(msgspec.Struct, frozen=True):
    """A bundle by its image, or with its manifests inside."""

    name: str
    package: str
    image: str = ""
    properties: list[Property] = []

    @property
    def version(self) -> str:
        """Return the version that it states, or nothing."""
        values = (each.value for each in self.properties if each.type == "olm.package")
        return next((str(each.get("version", "")) for each in values if isinstance(each, dict)), "")

    def files(self) -> dict[str, bytes]:
        """Return the manifests that older catalogs carry inside."""
        label = "operators.operatorframework.io.bundle.package.v1"
        found = {"metadata/annotations.yaml": json.dumps({"annotations": {label: self.package}}).encode()}
        for at, each in enumerate(each for each in self.properties if each.type == "olm.bundle.object"):
            data = each.value.get("data", "") if isinstance(each.value, dict) else ""
            try:
                found[f"manifests/{at:04}.json"] = base64.b64decode(data, validate=True)
            except (binascii.Error, TypeError, ValueError):
                raise UserError(f"{self.name}: object {at} in the catalog is not base64") from None
        return found


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a catalog says of one package."""

    package: Package
    channels: Mapping[str, Channel]
    bundles: Mapping[str, CatalogBundle]


def read_catalog(files: Mapping[str, bytes], package: str, *, name: str) -> Catalog:
    """Return what these files say of a package; raises UserError when they do not know it."""
    found: dict[str, list[Any]] = {"olm.package": [], "olm.channel": [], "olm.bundle": []}
    names: set[str] = set()
    for path, document in _documents(files, name=name):
        if document.get("schema") == "olm.package":
            names.add(str(document.get("name")))
        owner = document.get("name") if document.get("schema") == "olm.package" else document.get("package")
        if owner == package and document.get("schema") in found:
            found[document["schema"]].append((path, document))
    if len(found["olm.package"]) != 1:
        raise UserError(f"{name}: has no package {package!r}: there is {', '.join(sorted(names)[:20]) or 'none'}")
    return Catalog(
        package=_typed(found["olm.package"], Package, name=name)[0],
        channels=_by_name(_typed(found["olm.channel"], Channel, name=name), name=f"{name}: {package}: channel"),
        bundles=_by_name(_typed(found["olm.bundle"], CatalogBundle, name=name), name=f"{name}: {package}: bundle"),
    )


def select(catalog: Catalog, *, channel: str = "", version: str = "", installed: str = "") -> CatalogBundle:
    """Return the bundle that is meant: this version, or the newest that an installed one can go to, or the head.

    Raises UserError when there is none, with what there is.
    """
    graph = _channel(catalog, channel)
    where = f"{catalog.package.name}, channel {graph.name}"
    entries = graph.entries
    if installed:
        now = _entry(catalog, graph, installed, where=where)
        entries = [each for each in entries if _upgrades(each, now, catalog)]
        if not entries:
            raise UserError(f"{where}: nothing upgrades {installed}")
    if version:
        entry = _entry(catalog, Channel(graph.name, graph.package, list(entries)), version, where=where)
    else:
        entry = head(entries, catalog=catalog, where=where)
    if entry.name not in catalog.bundles:
        raise UserError(f"{where}: {entry.name} is in the channel, and no bundle of that name in the catalog")
    return catalog.bundles[entry.name]


def head(entries: Sequence[ChannelEntry], *, catalog: Catalog, where: str) -> ChannelEntry:
    """Return the entry that nothing replaces or skips."""
    passed = {each.replaces for each in entries} | {name for each in entries for name in each.skips}
    heads = [each for each in entries if each.name not in passed]
    left = heads
    # The newest first: it skips the most, so that a long channel is gone through once and not for each of its entries.
    for newer in sorted(heads, key=lambda each: _order(each, catalog), reverse=True):
        if newer.skip_range:
            left = [each for each in left if not _skips(newer, each, catalog)]
    if len(left) != 1:
        names = ", ".join(sorted(each.name for each in left)) or "none"
        raise UserError(f"{where}: has not one head but {names}: say which version is meant")
    return left[0]


def _channel(catalog: Catalog, channel: str) -> Channel:
    wanted = channel or catalog.package.default_channel
    if wanted not in catalog.channels:
        known = ", ".join(sorted(catalog.channels)) or "none"
        raise UserError(f"{catalog.package.name}: has no channel {wanted!r}: there is {known}")
    return catalog.channels[wanted]


def _entry(catalog: Catalog, graph: Channel, version: str, *, where: str) -> ChannelEntry:
    plain = version.removeprefix("v")
    for each in graph.entries:
        if version == each.name or plain == _version(each, catalog):
            return each
    known = ", ".join(_version(each, catalog) or each.name for each in graph.entries)
    raise UserError(f"{where}: has no version {version}: there is {known or 'none'}")


def _version(entry: ChannelEntry, catalog: Catalog) -> str:
    bundle = catalog.bundles.get(entry.name)
    return bundle.version if bundle else ""


def _order(entry: ChannelEntry, catalog: Catalog) -> Version:
    return find_version(_version(entry, catalog)) or Version((0, 0, 0))


def _upgrades(entry: ChannelEntry, installed: ChannelEntry, catalog: Catalog) -> bool:
    return entry.replaces == installed.name or installed.name in entry.skips or _skips(entry, installed, catalog)


def _skips(entry: ChannelEntry, other: ChannelEntry, catalog: Catalog) -> bool:
    """Say whether an entry's range takes in another; it never takes in itself."""
    version = _version(other, catalog)
    return bool(entry.skip_range and version and entry is not other) and in_range(
        parse_version(version), entry.skip_range
    )


def _documents(files: Mapping[str, bytes], *, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(files):
        if path.endswith(".json"):
            documents = _json_documents(files[path], name=f"{name}: {path}")
        elif path.endswith((".yaml", ".yml")):
            documents = iter(read_documents(files[path], name=f"{name}: {path}"))
        else:
            continue
        for document in documents:
            if not isinstance(document, dict):
                raise UserError(f"{name}: {path}: holds what is no mapping")
            yield path, document


def _json_documents(text: bytes, *, name: str) -> Iterator[Any]:
    """Yield JSON values that follow each other with nothing but blanks between."""
    decoder = json.JSONDecoder()
    try:
        source = text.decode()
        at = 0
        while True:
            while at < len(source) and source[at] in _BLANK:
                at += 1
            if at == len(source):
                return
            document, at = decoder.raw_decode(source, at)
            yield document
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: not valid JSON: {error}") from None


def _typed(found: Sequence[tuple[str, Any]], kind: type[T], *, name: str) -> list[T]:
    try:
        return [msgspec.convert(without_nulls(document), kind) for _, document in found]
    except msgspec.ValidationError as error:
        raise UserError(f"{name}: {found[0][1].get('schema')}: {error}") from None


def _by_name(found: Sequence[Named], *, name: str) -> dict[str, Named]:
    """Return what has names by them; two of one name would leave the choice to the order of files."""
    named = {each.name: each for each in found}
    if len(named) != len(found):
        twice = next(key for key, count in Counter(each.name for each in found).items() if count > 1)
        raise UserError(f"{name} {twice!r} is there twice: keep one")
    return named
