"""The controller that owns the inference definitions: `pointsman crds` as a process, for clusters without a person.

It creates what is missing, puts right what was changed and brings what is ours to this release where that is safe. It
adopts nothing and accepts nothing breaking: those are decisions of people, and the condition says which command takes
them. A definition of another owner is not touched, not even its status; an Event and one line in the log say whose it
is. Definitions are followed by their metadata (they are large, and there are many); the few that are ours are read when
they change.

Who else writes a definition of ours (a chart that still lists it) would otherwise be answered for ever: after `_OFTEN`
corrections in `_WINDOW` seconds the controller stops, names the other, and looks again when the window has passed.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from pointsman.api.inference import ALPHA_POOL, POOL
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION as CRD
from pointsman.core.logs import get_logger
from pointsman.crds import Definition, Intent, Verdict, our_definitions
from pointsman.crds.compatibility import Finding, findings
from pointsman.crds.marks import MANAGER, OWNER, rival
from pointsman.kube import Condition, Controller, Key, Object, Ownership, Result, Runtime, Source, View, merge
from pointsman.kube.errors import ApiError, NotFound
from pointsman.operator.definitions import Definitions

OWNERSHIP = Ownership(manager=MANAGER, domain="crds.llm-d.io")
LEASE = "crds.llm-d.io"
OWNED = "crds.llm-d.io/Owned"
COMPATIBLE = "crds.llm-d.io/Compatible"
LOOK_AGAIN = 300.0
"""Seconds between two looks at who uses the definitions."""
_OFTEN = 5
_WINDOW = 600.0
_POOLS = frozenset({str(POOL), str(ALPHA_POOL)})
_REASONS = {"nothing": "Settled", "create": "Created", "restore": "Restored", "update": "Upgraded", "wait": "Ending"}

log = get_logger(__name__)


class InferenceDefinitions:
    """Reconciles the definitions that come with us."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        wanted: Sequence[Definition] | None = None,
        owner: str = OWNER,
        window: float = _WINDOW,
    ) -> None:
        self._runtime = runtime
        self._wanted = {one.name: one for one in (wanted if wanted is not None else our_definitions())}
        self._intent = Intent(owner=owner)
        self._definitions = Definitions(runtime.client, owner=owner, say=log.info)
        self._window = window
        self._corrected: dict[str, deque[float]] = {}
        self._told: dict[str, str] = {}

    def start(self) -> None:
        """Add the controller to the runtime; what is missing sends no event, so every definition is looked at once."""
        controller = Controller(
            "inference-crds", Source(CRD, metadata_only=True), self.reconcile, workers=2, timeout=3600.0
        )
        work = self._runtime.add(controller)
        for name in self._wanted:
            work.queue.add(Key("", name))

    async def reconcile(self, key: Key, _: View) -> Result | None:
        """Make one definition what it should be, and say how it stands."""
        wanted = self._wanted.get(key.name)
        if wanted is None:
            return None
        decision, live = await self._definitions.decide(wanted, self._intent)
        if decision.action == "restore" and live is not None and self._is_contended(key.name):
            return await self._contended(live)
        made = await self._definitions.carry_out(decision, live)
        if decision.action == "restore":
            self._corrected.setdefault(key.name, deque(maxlen=_OFTEN)).append(_now())
        self._tell(decision, made or live)
        there = made or live
        if there is None or decision.action in {"leave", "wait"}:
            return None
        await self._report(there, [self._owned(decision), *await self._compatible(Definition(there))])
        return Result(again=LOOK_AGAIN)

    def _is_contended(self, name: str) -> bool:
        times = self._corrected.get(name, deque())
        return len(times) == _OFTEN and _now() - times[0] < self._window

    async def _contended(self, live: Object) -> Result:
        """Give way for a while to whoever keeps writing, and say who it is."""
        name = live["metadata"]["name"]
        other = rival(live) or "another writer"
        message = (
            f"{other} changed it {_OFTEN} times and it was put right each time: stop that writer, or let it own the "
            f"definition (take the annotation {OWNERSHIP.domain}/owner off)"
        )
        self._say(name, f"contended: {message}", live, reason="Contended", severity="Warning")
        await self._report(live, [Condition(OWNED, "False", "Contended", message)])
        return Result(again=max(0.0, self._corrected[name][0] + self._window - _now()) + 0.1)

    def _owned(self, decision: Verdict) -> Condition:
        if decision.action == "blocked":
            listed = "; ".join(f"{change.path}: {change.what}" for change in decision.breaking[:5])
            return Condition(OWNED, "False", "UpgradeBlocked", f"{decision.why}{f' ({listed})' if listed else ''}")
        return Condition(OWNED, "True", "Settled", f"owned by {self._intent.owner}")

    async def _compatible(self, live: Definition) -> list[Condition]:
        """Say whether who is installed reads the objects of a pool definition."""
        if live.name not in _POOLS:
            return []
        users, unknown = await self._definitions.consumers()
        try:
            count = len(await self._definitions.objects(live))
        except (NotFound, ApiError):
            count = 0
        found: list[Finding] = findings(users, objects={live.name: count})
        if found:
            return [Condition(COMPATIBLE, "False", "ReaderTooOld", "; ".join(one.says for one in found))]
        if unknown:
            return [Condition(COMPATIBLE, "Unknown", "CannotLook", "; ".join(unknown))]
        return [Condition(COMPATIBLE, "True", "Read", "no consumer that we know ignores its objects")]

    async def _report(self, live: Object, found: Iterable[Condition]) -> None:
        """Write our conditions beside those of the API server, whose type has no generation."""
        told = list(found)
        types = {condition.type for condition in told}
        known = [one for one in live.get("status", {}).get("conditions") or [] if one["type"] in types]
        merged = merge(known, told, generation=0, now=self._runtime.wall())
        conditions = [{name: one[name] for name in one if name != "observedGeneration"} for one in merged]
        try:
            await self._runtime.applier.status(CRD, live, {"conditions": conditions})
        except NotFound:
            pass

    def _tell(self, decision: Verdict, live: Object | None) -> None:
        if decision.action == "nothing":
            self._told.pop(decision.name, None)
            return
        foreign = decision.action in {"leave", "blocked"}
        reason = {"leave": "ForeignOwner", "blocked": "UpgradeBlocked"}.get(decision.action) or _REASONS[
            decision.action
        ]
        self._say(decision.name, decision.why, live, reason=reason, severity="Warning" if foreign else "Normal")

    def _say(self, name: str, line: str, live: Object | None, *, reason: str, severity: Any) -> None:
        """Log a line and record an Event, once until there is something else to say."""
        if self._told.get(name) == line:
            return
        self._told[name] = line
        log.info("definition", name=name, reason=reason, why=line)
        if live is not None:
            self._runtime.events.record(live, reason=reason, message=f"{name}: {line}", severity=severity)


def _now() -> float:
    return asyncio.get_running_loop().time()
