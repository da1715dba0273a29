"""What a reconcile may read: the caches of its runtime, and no way to write to them.

Owns no state. Every document handed out is a copy of its own; changing it changes nothing. A kind that nobody
declared is a programming error and says so, because an empty answer for it would read as "all gone".
"""

from collections.abc import Callable, Mapping

from pointsman.core.kinds import Key, Kind, Object
from pointsman.kube.reflector import State
from pointsman.kube.store import Entry, Store, matches


class View:
    """Read access to the caches."""

    def __init__(
        self, stores: Mapping[Kind, Store], *, states: Callable[[Kind], State] = lambda _: "following"
    ) -> None:
        self._stores = stores
        self._states = states

    def state(self, kind: Kind) -> State:
        """Return how the cache of a kind stands: whether the kind is there, and whether we may read it."""
        self._store(kind)
        return self._states(kind)

    def get(self, kind: Kind, key: Key) -> Object | None:
        """Return the object, or None when the cache does not have it."""
        item = self._store(kind).get(key)
        return None if item is None else item.read()

    def all(self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None) -> list[Object]:
        """Return the objects of a kind, narrowed by namespace and labels, in the order of their keys."""
        return [item.read() for item in self.entries(kind, namespace=namespace, labels=labels)]

    def entries(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Entry]:
        """Return the same, undecoded: metadata is there, `read()` gives the rest."""
        store = self._store(kind)
        found = sorted(store, key=lambda item: item.key) if namespace is None else store.find("namespace", namespace)
        return [item for item in found if labels is None or matches(item, labels)]

    def find(self, kind: Kind, index: str, value: str) -> list[Entry]:
        """Return the entries under a value of an index (owner, uid, namespace, or one that was declared)."""
        return self._store(kind).find(index, value)

    def _store(self, kind: Kind) -> Store:
        try:
            return self._stores[kind]
        except KeyError:
            raise LookupError(f"{kind} is not watched: add it to the controller's watches") from None
