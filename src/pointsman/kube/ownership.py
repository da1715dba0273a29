"""Whose object is it? Owner references inside a namespace, a label and an annotation everywhere.

Pure. The API server's garbage collector follows owner references, which cannot cross namespaces; the label
can, is what a selector finds, and is what pruning goes by. The annotation names the owner for people, and
lets an owner that was deleted and created again under its old name take its objects back. Who makes an object
ahead of its owner, without knowing its name, writes `anyone` there: the first that needs it takes it over.

Invariants: an object without our label is never ours, whatever it is called; nor is one whose controller is somebody
else, whatever its labels say: the control plane copies a Service's labels to its EndpointSlices.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pointsman.core.kinds import Key, Kind, Object
from pointsman.kube.store import Entry, Index, by_label

MANAGED_BY = "app.kubernetes.io/managed-by"
ANYONE = "anyone"
Claim = Literal["ours", "orphaned", "foreign"]


@dataclass(frozen=True, slots=True)
class Owner:
    """The object on whose behalf others exist."""

    kind: Kind
    key: Key
    uid: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.key}"


@dataclass(frozen=True, slots=True)
class Ownership:
    """How one operator marks what it makes: the name it writes under, and the domain of its label and
    annotation.
    """

    manager: str
    domain: str

    @property
    def label(self) -> str:
        return f"{self.domain}/owner-uid"

    @property
    def annotation(self) -> str:
        return f"{self.domain}/owner"

    @property
    def selector(self) -> str:
        """The server-side selector of everything that this operator made."""
        return f"{MANAGED_BY}={self.manager}"

    @property
    def index(self) -> Index:
        labelled = by_label(self.label)

        def owners(item: Entry) -> Iterable[str]:
            found = set(labelled(item))
            controllers = {one.uid for one in item.meta.owner_references or () if one.controller}
            return found if controllers <= found else ()

        return owners


def owner_of(kind: Kind, document: Object) -> Owner:
    """Return a document as an owner."""
    metadata = document["metadata"]
    return Owner(kind, Key(metadata.get("namespace", ""), metadata["name"]), metadata["uid"])


def stamp(document: Object, *, owner: Owner, ownership: Ownership) -> Object:
    """Return the document with the owner's marks; what it had of its own stays."""
    metadata = dict(document["metadata"])
    metadata["labels"] = {
        **metadata.get("labels", {}),
        MANAGED_BY: ownership.manager,
        ownership.label: owner.uid,
    }
    metadata["annotations"] = {**metadata.get("annotations", {}), ownership.annotation: str(owner)}
    if owner.key.namespace in {"", metadata.get("namespace", "")}:
        metadata["ownerReferences"] = [*metadata.get("ownerReferences", []), _reference(owner)]
    return {**document, "metadata": metadata}


def claim(live: Object, *, owner: Owner, ownership: Ownership) -> Claim:
    """Tell whose the live object is: this owner's, left behind by one of the same name or for anyone, or another's."""
    metadata = live["metadata"]
    controllers = {one["uid"] for one in metadata.get("ownerReferences", []) if one.get("controller")}
    if metadata.get("labels", {}).get(ownership.label) == owner.uid:
        return "foreign" if controllers - {owner.uid} else "ours"
    if metadata.get("annotations", {}).get(ownership.annotation) in {str(owner), ANYONE}:
        return "orphaned"
    return "foreign"


def holder(live: Object, *, ownership: Ownership) -> str:
    """Return in words whose the object is."""
    metadata = live["metadata"]
    named = metadata.get("annotations", {}).get(ownership.annotation)
    if named:
        return str(named)
    manager = metadata.get("labels", {}).get(MANAGED_BY)
    writers = sorted({str(field.get("manager")) for field in metadata.get("managedFields", [])})
    return str(manager or ", ".join(writers) or "someone else")


def owner_uids(item: Entry, *, ownership: Ownership) -> Iterable[str]:
    """Return the uids of those that own the entry, by label or by reference."""
    told = (item.meta.labels or {}).get(ownership.label)
    return {*(() if told is None else (told,)), *(ref.uid for ref in item.meta.owner_references or ())}


def _reference(owner: Owner) -> Object:
    return {
        "apiVersion": owner.kind.api_version,
        "kind": owner.kind.kind,
        "name": owner.key.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
