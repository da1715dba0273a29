"""The cache of one kind: objects as the bytes that came, their metadata decoded, and indexes over it.

Owns what is known of a kind at this moment; does no I/O and wakes nobody (it returns each `Change` to its
caller).

Keeping bytes has three effects that dicts do not have: a reader gets a fresh document each time, so no
reconcile can spoil the cache for another; 10,000 objects cost about their size on the wire; and listing them
decodes metadata only. The price is a decode per read, some microseconds for an object of usual size.

Invariant: between two lists, what is stored never goes back in time. The API server's resource versions of
one kind are ordered, so an older copy (a repeated event, a slow answer) is dropped, and an answer to our own
write enters at once unless the watch has already passed that version, in which case the watch knows better
(the object may be deleted by now).
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from pointsman.core.kinds import Key, Kind, Object
from pointsman.core.logs import get_logger
from pointsman.core.numbers import whole

log = get_logger(__name__)


class Reference(msgspec.Struct, frozen=True, gc=False):
    """An owner reference, as far as indexes need it."""

    uid: str
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an object's metadata by which it is found."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    owner_references: tuple[Reference, ...] | None = None
    deletion_timestamp: str | None = None


class _Partial(msgspec.Struct, gc=False):
    metadata: Meta


_PARTIAL = msgspec.json.Decoder(_Partial)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One cached object: what the cache itself needs, and the bytes for everything else."""

    kind: Kind
    key: Key
    uid: str
    version: int
    raw: bytes

    @property
    def meta(self) -> Meta:
        """Return the metadata, decoded anew."""
        return _PARTIAL.decode(self.raw).metadata

    def read(self) -> Object:
        """Return the document, a new one each time."""
        document: Object = msgspec.json.decode(self.raw)
        # Items of a list carry neither.
        document.setdefault("apiVersion", self.kind.api_version)
        document.setdefault("kind", self.kind.kind)
        return document


class Change(msgspec.Struct, frozen=True, gc=False):
    """What happened to one object: `old` is None when it came, `new` is None when it went."""

    old: Entry | None
    new: Entry | None

    @property
    def sides(self) -> tuple[Entry, ...]:
        """Return what there is of old and new: who was concerned before still is."""
        return tuple(side for side in (self.old, self.new) if side is not None)


_NEWEST = (1 << 64) - 1
Index = Callable[[Entry], Iterable[str]]


def entry(kind: Kind, raw: bytes) -> Entry:
    """Return the bytes of one object as an entry; raises msgspec.DecodeError when they are not one."""
    meta = _PARTIAL.decode(raw).metadata
    version = whole(meta.resource_version, most=_NEWEST) or 0
    # Thousands of objects share few namespaces.
    return Entry(kind, Key(sys.intern(meta.namespace), meta.name), meta.uid, version, raw)


def by_label(name: str) -> Index:
    """Return an index by one label's value."""

    def index(item: Entry) -> Iterable[str]:
        value = (item.meta.labels or {}).get(name)
        return () if value is None else (value,)

    return index


def by_namespace(item: Entry) -> Iterable[str]:
    """Index by namespace."""
    return (item.key.namespace,)


def by_uid(item: Entry) -> Iterable[str]:
    """Index by the object's own uid."""
    return (item.uid,)


DEFAULT_INDEXES: Mapping[str, Index] = {"namespace": by_namespace, "uid": by_uid}


class Store:
    """The objects of one kind."""

    def __init__(self, kind: Kind, *, indexes: Mapping[str, Index] | None = None) -> None:
        self.kind = kind
        self._rules = {name: _guarded(name, rule) for name, rule in {**DEFAULT_INDEXES, **(indexes or {})}.items()}
        self._entries: dict[Key, Entry] = {}
        # Most values of most indexes have one key (a uid has exactly one); a set for it would be ten times too large.
        self._indexes: dict[str, dict[str, Key | set[Key]]] = {name: {} for name in self._rules}
        self._seen = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def add_index(self, name: str, rule: Index) -> None:
        """Add an index, over what is there and what comes; the same name twice is the same index."""
        if name in self._rules:
            return
        self._rules[name] = _guarded(name, rule)
        self._indexes[name] = {}
        for item in self._entries.values():
            for value in self._rules[name](item):
                _enter(self._indexes[name], value, item.key)

    def get(self, key: Key) -> Entry | None:
        """Return the entry or None."""
        return self._entries.get(key)

    def find(self, index: str, value: str) -> list[Entry]:
        """Return the entries under a value of an index, in the order of their keys."""
        found = self._indexes[index].get(value, set())
        return [self._entries[key] for key in sorted(found if isinstance(found, set) else (found,))]

    def put(self, item: Entry) -> Change | None:
        """Take what the watch says; None when it is no news."""
        self._seen = max(self._seen, item.version)
        return self._set(item)

    def absorb(self, item: Entry) -> Change | None:
        """Take the answer to a write of our own, unless the watch has already passed it."""
        return None if item.version <= self._seen else self._set(item)

    def drop(self, item: Entry) -> Change | None:
        """Take the watch's word that the object is gone; None when a newer one is known."""
        self._seen = max(self._seen, item.version)
        old = self._entries.get(item.key)
        if old is None or (item.version and old.version > item.version):
            return None
        self._unset(old)
        return Change(old, None)

    def replace(self, items: Iterable[Entry], *, version: str) -> list[Change]:
        """Take a complete list as of a version; what it lacks was deleted while nobody watched.

        The list is the one word that may go back in time: a cluster restored from a backup counts from an
        older version.
        """
        fresh = {item.key: item for item in items}
        gone = [old for key, old in self._entries.items() if key not in fresh]
        for old in gone:
            self._unset(old)
        changes = [Change(old, None) for old in gone]
        changes += [self._swap(item) for item in fresh.values() if self._differs(item)]
        self._seen = whole(version, most=_NEWEST) or 0
        return changes

    def clear(self) -> list[Change]:
        """Forget everything: the kind is no longer served."""
        gone = list(self._entries.values())
        self._entries.clear()
        self._indexes = {name: {} for name in self._rules}
        self._seen = 0
        return [Change(old, None) for old in gone]

    def _set(self, item: Entry) -> Change | None:
        old = self._entries.get(item.key)
        # A server that does not number its versions (an aggregated one may not) sends 0: everything is news.
        if old is not None and item.version and old.version >= item.version:
            return None
        return self._swap(item)

    def _differs(self, item: Entry) -> bool:
        old = self._entries.get(item.key)
        return old is None or old.version != item.version or not item.version

    def _swap(self, item: Entry) -> Change:
        old = self._entries.get(item.key)
        if old is not None:
            self._unset(old)
        self._entries[item.key] = item
        for name, rule in self._rules.items():
            for value in rule(item):
                _enter(self._indexes[name], value, item.key)
        return Change(old, item)

    def _unset(self, item: Entry) -> None:
        del self._entries[item.key]
        for name, rule in self._rules.items():
            for value in rule(item):
                _leave(self._indexes[name], value, item.key)


def _guarded(name: str, rule: Index) -> Index:
    """Return the rule such that an object it did not expect is in none of its lists, instead of ending the cache."""

    def index(item: Entry) -> Iterable[str]:
        try:
            return tuple(rule(item))
        except Exception:
            log.exception("index rule failed", index=name, kind=str(item.kind), key=str(item.key))
            return ()

    return index


def _enter(index: dict[str, Key | set[Key]], value: str, key: Key) -> None:
    known = index.setdefault(value, key)
    if isinstance(known, set):
        known.add(key)
    elif known is not key:
        index[value] = {known, key}


def _leave(index: dict[str, Key | set[Key]], value: str, key: Key) -> None:
    known = index.get(value)
    if isinstance(known, set):
        known.discard(key)
    if not known or known == key:
        index.pop(value, None)


def matches(item: Entry, labels: Mapping[str, Any]) -> bool:
    """Tell whether the object carries all of these labels."""
    own = item.meta.labels or {}
    return all(own.get(name) == value for name, value in labels.items())
