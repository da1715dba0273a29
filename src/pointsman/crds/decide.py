"""What is to be done about one definition: from what we want, what is there, and what we were told.

`decide` is total. It never leads to a write on a definition that is not ours, unless adoption named it; never to an
older release, unless a rollback was asked for; never to a breaking change that nobody accepted. Drift of a definition
that is ours and of our release is put right whatever it is: the schema that we restore was accepted before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from pointsman.core.kinds import Object
from pointsman.crds.changes import SchemaChange, compare
from pointsman.crds.definition import Definition
from pointsman.crds.marks import MANAGER, OWNER, Holder, holder, stamped
from pointsman.crds.migration import stale_versions
from pointsman.crds.previous import PREVIOUS, pack
from pointsman.crds.releases import order
from pointsman.kube.settled import is_settled

Action = Literal["create", "nothing", "restore", "update", "leave", "blocked", "wait"]


@dataclass(frozen=True)
class Intent:
    """What we were told."""

    owner: str = OWNER
    adopt: frozenset[str] = frozenset()
    accept_breaking: bool = False
    back: bool = False
    """An older release is meant."""


@dataclass(frozen=True)
class Verdict:
    """What to do about one definition, and why."""

    name: str
    action: Action
    why: str
    document: Object = field(default_factory=dict, repr=False)
    """What to apply, with our stamp; empty when nothing is to be applied."""
    holder: Holder | None = None
    changes: tuple[SchemaChange, ...] = ()
    migrate: tuple[str, ...] = ()
    """Versions whose objects must be rewritten before the document may be applied."""

    @property
    def breaking(self) -> tuple[SchemaChange, ...]:
        return tuple(change for change in self.changes if change.breaking)


def decide(wanted: Definition, live: Object | None, *, intent: Intent) -> Verdict:
    """Return what is to be done."""
    document = stamped(wanted.document, owner=intent.owner)
    if live is None:
        return Verdict(wanted.name, "create", "is not there", document)
    if "deletionTimestamp" in live["metadata"]:
        return Verdict(wanted.name, "wait", ending(live), holder=holder(live, owner=intent.owner))
    held = holder(live, owner=intent.owner)
    if not held.ours and wanted.name not in intent.adopt:
        why = f"belongs to {held.name}: left alone; `pointsman crds adopt {wanted.name}` takes it over"
        return Verdict(wanted.name, "leave", why, holder=held)
    return _ours(wanted, Definition(live), document=document, held=held, intent=intent)


def _ours(wanted: Definition, live: Definition, *, document: Object, held: Holder, intent: Intent) -> Verdict:
    name, stands = wanted.name, order(wanted.release, live.release)
    document = _with_previous(document, live.annotations.get(PREVIOUS, ""))
    if held.ours and is_settled(document, live.document, manager=MANAGER):
        return Verdict(name, "nothing", f"is as it should be ({wanted.release or 'no release'})", holder=held)
    changes = tuple(compare(live, wanted))
    decided = partial(Verdict, name, holder=held, changes=changes, migrate=stale_versions(live, wanted))
    if stands == "older" and not intent.back:
        why = f"{live.release} is there and {wanted.release} is older: nothing is taken back without being told to"
        return decided("blocked", why)
    if held.ours and stands == "same" and not intent.back:
        return decided("restore", "was changed by another and is put right", document)
    if any(change.breaking for change in changes) and not intent.accept_breaking:
        why = f"{_count(changes)} against {live.release or 'what is there'}: read them, then say --accept-breaking"
        return decided("blocked", why)
    document = _with_previous(document, pack(live))
    kept = "" if PREVIOUS in document["metadata"]["annotations"] else "; too large to be kept for a rollback"
    why = f"{live.release or 'no release'} becomes {wanted.release or 'no release'}{kept}"
    return decided("update", why, document)


def ending(live: Object) -> str:
    """Say why a definition that is being deleted is still there."""
    held = live["metadata"].get("finalizers") or []
    conditions: list[Mapping[str, str]] = live.get("status", {}).get("conditions") or []
    told = next((one.get("message", "") for one in conditions if one.get("type") == "Terminating"), "")
    by = f"finalizers {', '.join(held)} hold it" if held else "the API server is at it"
    return f"is being deleted: {by}{f' ({told})' if told else ''}"


def _with_previous(document: Object, packed: str) -> Object:
    if not packed:
        return document
    metadata = document["metadata"]
    return {**document, "metadata": {**metadata, "annotations": {**metadata["annotations"], PREVIOUS: packed}}}


def _count(changes: tuple[SchemaChange, ...]) -> str:
    number = sum(change.breaking for change in changes)
    return f"{number} breaking change{'s' if number != 1 else ''}"
