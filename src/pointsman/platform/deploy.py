"""Carry out the steps: each does what it finds undone, tells it, and is noted in the journal once it is done.

Invariants: nothing that is not ours is written over, and a component of which somebody else has an installation is
left alone as a whole; a step may be cut anywhere and done again; whoever writes the journal last is the one at work,
and another run that finds its journal changed stops before its next step.
"""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pointsman.core.errors import Unavailable, UserError
from pointsman.core.kinds import Object
from pointsman.crds import Definition, compare
from pointsman.kube.conditions import truth_of
from pointsman.kube.errors import NotFound, Stale
from pointsman.platform.cluster import Cluster, Ref, holds, ref_of
from pointsman.platform.folder import objects_in
from pointsman.platform.helm import Helm
from pointsman.platform.journal import NAME, NAMESPACE, Journal, read_journal, write_journal
from pointsman.platform.marks import component_of, marked
from pointsman.platform.observed import foreign, unready
from pointsman.platform.steps import Part, Step, Wanted, steps_of, too_large
from pointsman.platform.survey import find_release, observe, see_webhooks
from pointsman.platform.webhooks import IGNORE, missing_kinds

_WEBHOOK_PATIENCE = 120.0
_HELM_TRIES = 3


class JournalStore:
    """The journal in its ConfigMap, written on the version that was read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._live: Object | None = None

    async def read(self) -> Journal:
        """Return the journal; an empty one when there is none."""
        self._live = await self._cluster.get(Ref("v1", "ConfigMap", NAMESPACE, NAME))
        return read_journal((self._live or {}).get("data"))

    async def write(self, journal: Journal) -> Journal:
        """Keep the journal; raises Unavailable when another run has written it since."""
        if self._live is None:
            space: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await self._cluster.put(marked(space, component=NAME, step="namespace"))
            await self._cluster.put(marked(_config_map(journal), component=NAME, step="journal"))
            await self.read()
            return journal
        try:
            self._live = await self._cluster.replace({**self._live, "data": write_journal(journal)})
        except (Stale, NotFound):
            if await self.read() != journal:  # or our own write arrived, and its answer did not
                raise Unavailable("another run has written the journal since: let it end, then start again") from None
        return journal


@dataclass(frozen=True)
class Rules:
    """How far a run may go."""

    part: Part = "all"
    accept_breaking: bool = False


class Deployer:
    """One run."""

    def __init__(
        self,
        cluster: Cluster,
        helm: Helm,
        journal: JournalStore,
        *,
        say: Callable[[str], None],
        rules: Rules | None = None,
    ) -> None:
        self._cluster = cluster
        self._helm = helm
        self._journal = journal
        self._say = say
        self._rules = rules or Rules()
        self._steps: dict[str, Callable[[Step, Wanted], Awaitable[None]]] = {
            "namespace": self._namespaces,
            "definitions": self._definitions,
            "presync": self._apply,
            "pull-secret": self._apply,
            "install": self._install,
            "wait": self._wait,
            "postsync": self._postsync,
        }

    async def deploy(self, components: Sequence[Wanted]) -> int:
        """Bring the components about, one after the other; return 1 when one was left alone."""
        for wanted in components:
            for sentence in too_large(wanted):
                raise UserError(f"{wanted.name}: {sentence}")
        journal = (await self._journal.read()).begun()
        if journal.done:
            self._say(f"going on where the last run was interrupted, after {len(journal.done)} steps")
        journal = await self._journal.write(journal)
        left = 0
        for number, wanted in enumerate(components, 1):
            strange = foreign(wanted, await observe(self._cluster, wanted))
            if strange:
                left = 1
                self._say(f"[{number}/{len(components)}] {wanted.name}: left alone: it is installed already")
                for each in strange:
                    self._say(f"    {each}")
                self._say(f"    to do without ours, write `use: existing` for {wanted.name} in the platform's file")
                continue
            journal = await self._component(wanted, journal, f"[{number}/{len(components)}]")
        await self._journal.write(journal.ended())
        return left

    async def _component(self, wanted: Wanted, journal: Journal, count: str) -> Journal:
        for step in steps_of(wanted, part=self._rules.part):
            if journal.has(step) and step.name != "pull-secret":
                self._say(f"{count} {step}: done by the interrupted run")
                continue
            self._say(f"{count} {step}")
            await self._steps[step.name](step, wanted)
            journal = await self._journal.write(journal.with_done(step, version=wanted.version))
        return journal

    async def _namespaces(self, step: Step, _: Wanted) -> None:
        for document in step.objects:
            ref = ref_of(document)
            live = await self._cluster.get(ref)
            if live is not None and "deletionTimestamp" in live["metadata"]:
                self._say(f"    {ref} is being deleted ({holds(live)}); waiting for it to go")
            await self._cluster.put(document)  # one that was there before is used and not marked

    async def _definitions(self, step: Step, wanted: Wanted) -> None:
        own = {each["metadata"]["name"] for each in wanted.own_definitions}
        await self._refuse_breaking(step)
        for document in step.objects:
            name = document["metadata"]["name"]
            done = await self._cluster.put(document)
            if done == "foreign" and name in own:
                raise Unavailable(f"definition {name} was made by somebody else a moment ago: look at it, start again")
            if done == "foreign":
                self._say(f"    {name} is there and not ours: it serves")
        for document in step.objects:
            await self._established(ref_of(document))
        await self._cluster.forget()

    async def _refuse_breaking(self, step: Step) -> None:
        for document in step.objects:
            live = await self._cluster.get(ref_of(document))
            if live is None or not component_of(live):
                continue
            broken = [each for each in compare(Definition(live), Definition(document)) if each.breaking]
            for each in broken:
                self._say(f"    {document['metadata']['name']}: {each}")
            if broken and not self._rules.accept_breaking:
                raise UserError(
                    f"{document['metadata']['name']} would change in {len(broken)} breaking ways and was left: "
                    "say --accept-breaking if its objects can bear that"
                )

    async def _established(self, ref: Ref) -> None:
        async def look() -> bool | None:
            live = await self._cluster.get(ref)
            return True if live is not None and truth_of(live, "Established") == "True" else None

        await self._cluster.until(look, lambda: f"definition {ref.name} is not served")

    async def _apply(self, step: Step, _: Wanted) -> None:
        for document in step.objects:
            if await self._cluster.put(document) == "foreign":
                self._say(f"    {ref_of(document)} is there and not ours: left as it is")

    async def _install(self, _: Step, wanted: Wanted) -> None:
        for attempt in range(_HELM_TRIES):
            try:
                await self._mend(wanted)
                return await self._release(wanted)
            except Unavailable as error:
                # A server that restarts under Helm's hands is no reason to give up; what Helm refuses is.
                lost = _is_connection(str(error)) or not await self._cluster.answers()
                if attempt == _HELM_TRIES - 1 or not lost:
                    raise
                self._say(f"    {error}; trying again")
                await self._cluster.request("/version")
        return None

    async def _mend(self, wanted: Wanted) -> None:
        """Free a release from a Helm that died at work on it: back to what was deployed, or away."""
        release = await find_release(self._cluster, wanted)
        if release is None or not release.pending:
            return
        self._say(f"    the release is {release.status} since a run was interrupted")
        if release.last_deployed:
            await self._helm.rollback(wanted.release, wanted.namespace, revision=release.last_deployed)
        else:
            await self._helm.uninstall(wanted.release, wanted.namespace)

    async def _release(self, wanted: Wanted) -> None:
        with TemporaryDirectory() as scratch:
            folder = Path(scratch) / wanted.name
            if wanted.remote_chart:
                folder = await self._remote(wanted, Path(scratch))
                await self._remote_definitions(folder, wanted)
            for path, text in wanted.chart.items():
                file = folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            await self._helm.upgrade(wanted.release, wanted.namespace, str(folder), values=wanted.all_values)

    async def _remote(self, wanted: Wanted, scratch: Path) -> Path:
        """Return a copy of somebody's chart: pulled, or from a folder."""
        if "://" in wanted.remote_chart:
            return await self._helm.pull(wanted.remote_chart, version=wanted.remote_version, folder=scratch)
        try:
            return shutil.copytree(wanted.remote_chart, scratch / wanted.name)
        except (OSError, shutil.Error) as error:
            raise UserError(f"{wanted.remote_chart}: cannot be read as a chart: {error}") from None

    async def _remote_definitions(self, folder: Path, wanted: Wanted) -> None:
        """Apply the definitions of somebody's chart ourselves, and leave Helm a chart without."""
        texts = {f"crds/{path.name}": path.read_text() for path in sorted((folder / "crds").glob("*.y*ml"))}
        documents = [
            marked(each, component=wanted.name, step="definitions")
            for each in objects_in(texts, "crds/")
            if each["kind"] == "CustomResourceDefinition"
        ]
        step = Step(wanted.name, "definitions", "", tuple(documents))
        await self._definitions(step, wanted)
        shutil.rmtree(folder / "crds", ignore_errors=True)

    async def _wait(self, _: Step, wanted: Wanted) -> None:
        problems: list[str] = []

        async def look() -> bool | None:
            nonlocal problems
            problems = unready(wanted, await observe(self._cluster, wanted))
            return None if problems else True

        await self._cluster.until(
            look, lambda: f"{wanted.name} is not ready after {self._cluster.patience:g} s: {'; '.join(problems)}"
        )

    async def _postsync(self, step: Step, wanted: Wanted) -> None:
        await self._apply(step, wanted)
        if wanted.webhook_loop:
            await self._end_loop(wanted)

    async def _end_loop(self, wanted: Wanted) -> None:
        """Put the annotation on both of istiod's webhooks, and see whether anybody still writes to them."""
        missing: list[str] = []

        async def both() -> bool | None:
            nonlocal missing
            states, _ = await see_webhooks(self._cluster, wanted, twice=False)
            for each in states:
                if not each.ignored:
                    ref = Ref("admissionregistration.k8s.io/v1", each.kind, "", each.name)
                    await self._cluster.annotate(ref, {IGNORE: "true"})
                    self._say(f"    {each}: the operator leaves it to istiod from now on")
            missing = missing_kinds(states)
            return None if missing else True

        try:
            await self._cluster.until(both, lambda: "", patience=min(_WEBHOOK_PATIENCE, self._cluster.patience / 5))
        except Unavailable:
            self._say(
                f"    istiod's {' and '.join(missing)} is not there yet: once it is, run "
                f"`pointsman platform deploy {wanted.name} --part after`, or the operator may loop over it"
            )
            return
        _, still = await see_webhooks(self._cluster, wanted, twice=True)
        for each in still:
            self._say(f"    {each} is still written to: restart the operator, whose queue is full of old events")


def _config_map(journal: Journal) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": write_journal(journal),
    }


def _is_connection(text: str) -> bool:
    return any(each in text for each in ("connection refused", "EOF", "connection reset", "unreachable", "timeout"))
