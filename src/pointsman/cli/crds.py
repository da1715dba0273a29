"""`pointsman crds`: who owns the inference definitions of a cluster, and install, upgrade or remove them with care.

Exit 0: it is as asked. Exit 1: something was refused or is not well, and the output says what and why. Exit 2: the
command line or a file is wrong.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from pointsman.bundle.reader import read_documents
from pointsman.core.errors import UserError
from pointsman.core.values import nearest
from pointsman.crds import Definition, Intent, SchemaChange, compare, our_definitions, read_definitions
from pointsman.crds.compatibility import findings
from pointsman.crds.decide import Action
from pointsman.crds.marks import OWNER, holder, installer
from pointsman.crds.previous import unpack
from pointsman.crds.table import StatusRow, render
from pointsman.kube import connect
from pointsman.kube.conditions import truth_of
from pointsman.operator.definitions import Definitions, Use

crds = App(name="crds", help="Manage the inference CRDs of a cluster: install, upgrade, adopt, uninstall.")
_MOST_SAFE = 50
_DONE: dict[Action, str] = {"create": "created", "restore": "put right", "update": "upgraded", "nothing": "unchanged"}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """Which cluster, on whose behalf, how patiently."""

    kubeconfig: Path | None = None
    "Cluster to work on; else KUBECONFIG or the home file, as kubectl takes them."
    owner: str = OWNER
    "Name of this installation: definitions whose owner annotation has another name are not ours."
    timeout: float = 60.0
    "Seconds to wait for the API server, each time that it has to do something."


Names = Annotated[Sequence[str], Parameter(negative=())]
File = Annotated[Path | None, Parameter(name=["--file", "-f"])]


@crds.command
def install(*, file: File = None, where: Where | None = None) -> int:
    """Create missing CRDs and repair the ones we own; CRDs of other owners are not modified.

    Parameters
    ----------
    file
        Definitions to install instead of ours.
    where
        Which cluster.

    """
    return _with(where, lambda work: _converge(work, _wanted(file), _intent(where), {"create", "restore"}))


@crds.command
def upgrade(
    *,
    file: File = None,
    accept_breaking: Annotated[bool, Parameter(negative=())] = False,
    rollback: Annotated[bool, Parameter(negative=())] = False,
    where: Where | None = None,
) -> int:
    """Upgrade the CRDs we own to this release; never downgrade, and apply breaking changes only if accepted.

    Parameters
    ----------
    file
        Definitions to upgrade to instead of ours.
    accept_breaking
        Go on although objects or their readers may suffer from the changes that are listed.
    rollback
        Put back what was there before the last upgrade or adoption.
    where
        Which cluster.

    """
    intent = _intent(where, accept_breaking=accept_breaking, back=rollback)
    if rollback:
        if file is not None:
            raise UserError("--rollback and --file exclude each other: what is put back is kept on the definitions")
        return _with(where, lambda work: _roll_back(work, intent))
    return _with(where, lambda work: _converge(work, _wanted(file), intent, {"create", "restore", "update"}))


@crds.command
def adopt(
    names: Names,
    *,
    file: File = None,
    accept_breaking: Annotated[bool, Parameter(negative=())] = False,
    where: Where | None = None,
) -> int:
    """Take over CRDs from another installer; the previous version is kept for `upgrade --rollback`.

    Parameters
    ----------
    names
        Full names, such as inferencepools.inference.networking.k8s.io.
    file
        Definitions to bring them to instead of ours.
    accept_breaking
        Go on although objects or their readers may suffer from the changes that are listed.
    where
        Which cluster.

    """
    chosen = _chosen(_wanted(file), names)
    intent = _intent(where, adopt=frozenset(names), accept_breaking=accept_breaking)

    async def work(definitions: Definitions) -> int:
        for name in names:
            live = await definitions.get(name)
            other = live and not holder(live, owner=intent.owner).ours and installer(live)
            if other:
                _say(f"note: {other} does not know that {name} is ours now: take it out there, or it will write again")
        return await _converge(definitions, chosen, intent, {"create", "restore", "update"})

    return _with(where, work)


@crds.command
def status(*, file: File = None, where: Where | None = None) -> int:
    """Show each CRD with its owner, release, objects and health.

    Parameters
    ----------
    file
        Definitions to compare with instead of ours.
    where
        Which cluster.

    """
    return _with(where, lambda work: _status(work, _wanted(file), _intent(where)))


@crds.command
def uninstall(
    names: Names = (), *, cascade: Annotated[bool, Parameter(negative=())] = False, where: Where | None = None
) -> int:
    """Delete the CRDs we own; refused while objects or consumers of them exist.

    Parameters
    ----------
    names
        Which; all of ours when left out.
    cascade
        Delete the objects with them, and do not ask who uses them.
    where
        Which cluster.

    """
    return _with(where, lambda work: _uninstall(work, names, cascade=cascade, owner=(where or Where()).owner))


@crds.command
def check(file: Path, *, against: Path | None = None, where: Where | None = None) -> int:
    """Show what the CRDs in a file would change; exit 1 if a change is breaking.

    Parameters
    ----------
    file
        Definitions to judge.
    against
        File with the old definitions; else those of the cluster.
    where
        Which cluster.

    """
    wanted = _read(file)
    if against is not None:
        before = {one.name: one for one in _read(against)}
        return max(_judge(one, before.get(one.name)) for one in wanted)

    async def work(definitions: Definitions) -> int:
        worst = 0
        for one in wanted:
            live = await definitions.get(one.name)
            worst = max(worst, _judge(one, None if live is None else Definition(live)))
        return worst

    return _with(where, work)


# How each of them is done


def _with(where: Where | None, work: Callable[[Definitions], Awaitable[int]]) -> int:
    options = where or Where()
    if options.timeout <= 0:
        raise UserError(f"--timeout {options.timeout:g} is no time to wait: write a number above 0")

    async def main() -> int:
        async with connect(options.kubeconfig) as client:
            return await work(Definitions(client, owner=options.owner, patience=options.timeout, say=_say))

    return asyncio.run(main())


def _intent(
    where: Where | None, *, adopt: frozenset[str] = frozenset(), accept_breaking: bool = False, back: bool = False
) -> Intent:
    return Intent(owner=(where or Where()).owner, adopt=adopt, accept_breaking=accept_breaking, back=back)


def _wanted(file: Path | None) -> tuple[Definition, ...]:
    return our_definitions() if file is None else _read(file)


def _read(file: Path) -> tuple[Definition, ...]:
    """Return the definitions in a file, read as every manifest is."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    return read_definitions(read_documents(text, name=str(file)), source=str(file))


def _chosen(wanted: Iterable[Definition], names: Sequence[str]) -> tuple[Definition, ...]:
    known = {one.name: one for one in wanted}
    for name in names:
        if name not in known:
            hint = nearest(name, known) or f": choose from {', '.join(known)}"
            raise UserError(f"{name} is no definition that we have{hint}")
    return tuple(known[name] for name in names)


async def _converge(
    work: Definitions,
    wanted: Iterable[Definition],
    intent: Intent,
    allowed: set[Literal["create", "restore", "update"]],
) -> int:
    """Do what may be done about each definition, wait until all of them are served, and say what was left."""
    code, waiting = 0, []
    for one in wanted:
        decision, live = await work.decide(one, intent)
        if decision.action == "wait":
            _say(f"{one.name} {decision.why}; waiting for it to go")
            await work.gone(one.name)
            decision, live = await work.decide(one, intent)
        if decision.action in allowed:
            _list(decision.changes)
            live = await work.carry_out(decision, live)
        if decision.action in {*allowed, "nothing"}:
            _say(f"{_DONE[decision.action]:9} {one.name} {one.release}")
            if live is None or truth_of(live, "Established") != "True":
                waiting.append(one.name)
            continue
        _list(decision.breaking)
        more = "; `pointsman crds upgrade` does it" if decision.action == "update" else ""
        _say(f"{'left':9} {one.name}: {decision.why}{more}")
        code = max(code, int(decision.action == "blocked"))
    for name in waiting:
        await work.established(name)
    return code


async def _roll_back(work: Definitions, intent: Intent) -> int:
    kept: list[Definition] = []
    for name in await work.owned():
        live = await work.get(name)
        before = unpack(Definition(live)) if live else None
        if before is not None:
            kept.append(before)
    if not kept:
        _say("nothing to put back: no definition of ours was changed since it was made")
        return 1
    return await _converge(work, kept, intent, {"update"})


async def _status(work: Definitions, wanted: Sequence[Definition], intent: Intent) -> int:
    rows: list[StatusRow] = []
    counts: dict[str, int] = {}
    notes: list[str] = []
    for one in wanted:
        decision, live = await work.decide(one, intent)
        if live is None:
            rows.append(StatusRow(decision))
            continue
        there = Definition(live)
        use = await work.use(there, by=())
        notes += [f"{one.name}: {problem}" for problem in use.unknown]
        objects = None if use.unknown else use.objects.total()
        counts[one.name] = objects or 0
        served = truth_of(live, "Established") == "True"
        rows.append(
            StatusRow(decision, release=there.release, stored=there.stored, objects=objects, established=served)
        )
    users, unknown = await work.consumers()
    sys.stdout.write(render(rows, findings(users, objects=counts)))
    for note in (*notes, *unknown):
        _say(note)
    return int(any(row.decision.action not in {"nothing", "leave"} or not row.established for row in rows))


async def _uninstall(work: Definitions, names: Sequence[str], *, cascade: bool, owner: str) -> int:
    owned = await work.owned()
    for name in names:
        if name not in owned:
            live = await work.get(name)
            why = "is not there" if live is None else f"belongs to {holder(live, owner=owner).name}"
            raise UserError(f"{name} {why}: name one of ours ({', '.join(owned) or 'there is none'})")
    going = [live for name in (names or owned) if (live := await work.get(name)) is not None]
    users, unknown = ([], []) if cascade else await work.consumers()
    refused = False
    for live in () if cascade else going:
        use = await work.use(Definition(live), by=users, unknown=unknown)
        refused = refused or bool(use)
        for reason in _reasons(use):
            _say(f"{'in use':9} {live['metadata']['name']}: {reason}")
    if refused:
        _say("nothing was deleted: remove what uses the definitions, or say --cascade to delete the objects with them")
        return 1
    for live in going:
        await work.delete(live)
    for live in going:
        await work.gone(live["metadata"]["name"])
        _say(f"{'deleted':9} {live['metadata']['name']}")
    if not going:
        _say("nothing of ours is there")
    return 0


def _reasons(use: Use) -> list[str]:
    """Return why a definition cannot go, namespace by namespace."""
    objects = [f"{count} object{'s' if count != 1 else ''} in {place}" for place, count in sorted(use.objects.items())]
    return [*objects, *(f"used by {one}" for one in use.by), *use.unknown]


def _judge(wanted: Definition, before: Definition | None) -> int:
    """Print the verdict on one definition; return whether it breaks."""
    if before is None:
        _say(f"new      {wanted.name} {wanted.release}")
        return 0
    changes = compare(before, wanted)
    breaking = any(change.breaking for change in changes)
    word = "BREAKING" if breaking else "safe" if changes else "same"
    _say(f"{word:8} {wanted.name}: {before.release or 'no release'} to {wanted.release or 'no release'}")
    _list(changes)
    return int(breaking)


def _list(changes: Sequence[SchemaChange]) -> None:
    """Print every breaking change, and of the others as many as people read."""
    shown = [change for number, change in enumerate(changes) if change.breaking or number < _MOST_SAFE]
    for change in shown:
        _say(f"    {change}")
    if len(shown) < len(changes):
        _say(f"    … and {len(changes) - len(shown)} more that are safe")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
