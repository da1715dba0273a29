"""Rewriting objects that are stored in a version which is about to go: what is to do, and how far it got.

The API server writes an object in the storage version whenever it is written, so a migration is one write without a
change per object. The order is that of a list (namespace, then name); the last object that is known to be done stands
with the count in an annotation of the definition, so whoever continues begins behind it. An object that was written
twice is no harm, one that was left out would be lost: progress is noted after the writes, never before.
"""

import json
from dataclasses import dataclass

from pointsman.crds.definition import Definition
from pointsman.crds.previous import MIGRATION

PAGE = 200


@dataclass(frozen=True)
class Progress:
    """How far a migration to a version got."""

    to: str
    done: int = 0
    after: tuple[str, str] = ("", "")

    def text(self) -> str:
        """Return it for the annotation."""
        return json.dumps({"to": self.to, "done": self.done, "after": list(self.after)})


def stale_versions(live: Definition, wanted: Definition) -> tuple[str, ...]:
    """Return the versions that hold objects and that the wanted definition no longer has."""
    return tuple(name for name in live.stored if name not in wanted.versions)


def bridge(live: Definition, wanted: Definition) -> Definition:
    """Return the wanted definition with the old versions kept, served but no longer stored: objects stay readable."""
    kept = [{**live.versions[name], "storage": False} for name in stale_versions(live, wanted) if name in live.versions]
    spec = {**wanted.spec, "versions": [*wanted.spec["versions"], *kept]}
    return Definition({**wanted.document, "spec": spec})


def progress(live: Definition, *, to: str) -> Progress:
    """Return how far a migration to this version got; one to another version counts as not begun."""
    try:
        kept = json.loads(live.annotations.get(MIGRATION, ""))
        namespace, name = kept["after"]
        found = Progress(to=str(kept["to"]), done=int(kept["done"]), after=(str(namespace), str(name)))
    except (ValueError, KeyError, TypeError):
        return Progress(to=to)
    return found if found.to == to else Progress(to=to)
