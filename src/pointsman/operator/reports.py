"""Status as it is written: when it changes, and not more often than anybody can use.

At once when that is news (`Ready`, or why not, or for which generation), and once in `PAUSE` while only numbers move,
since those come in bursts and every write is felt by the API server.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from pointsman.core.kinds import key_of
from pointsman.kube import Condition, Key, Kind, Object, Result, Runtime, merge
from pointsman.kube.errors import NotFound

PAUSE = 1.0
_NEWS_PAUSE = 0.25


class StatusReports:
    """The status of the resources of one kind."""

    def __init__(self, runtime: Runtime, kind: Kind) -> None:
        self._runtime = runtime
        self._kind = kind
        self._told: dict[Key, float] = {}

    def forget(self, key: Key) -> None:
        """Let go of a resource that is no more."""
        self._told.pop(key, None)

    async def report(
        self, live: Object, status: Mapping[str, Any], conditions: Iterable[Condition], *, now: bool
    ) -> Result | None:
        """Write the status, or ask to be called later if the last one is not old enough and it need not be `now`."""
        found, key, time = list(conditions), key_of(live), asyncio.get_running_loop().time()
        pause = _NEWS_PAUSE if _is_news(found, live) else PAUSE
        since = time - self._told.get(key, float("-inf"))
        if since < pause and not now:
            return Result(again=pause - since)
        if await self.write(live, status, found):
            self._told[key] = time
        return None

    async def write(self, live: Object, status: Mapping[str, Any], found: Iterable[Condition]) -> bool:
        """Write the status, with conditions of types that are not spoken of any more left out."""
        findings = list(found)
        generation = live["metadata"].get("generation", 0)
        spoken = {finding.type for finding in findings}
        known = [one for one in live.get("status", {}).get("conditions", []) if one["type"] in spoken]
        conditions = merge(known, findings, generation=generation, now=self._runtime.wall())
        whole = {"observedGeneration": generation, **status, "conditions": conditions}
        try:
            return await self._runtime.applier.status(self._kind, live, whole)
        except NotFound:  # it went while we looked, which is nothing to complain of
            return False

    def blindness(self, kinds: Iterable[Kind]) -> list[Condition]:
        """Say what may not be read: it is left out, and nobody would know why."""
        hidden = [str(kind) for kind in kinds if self._runtime.view.state(kind) == "forbidden"]
        message = (
            f"the operator may not read {', '.join(hidden)}; what depends on it is left out: grant it (config/rbac)"
        )
        return [Condition("ClusterAccess", "False", "Forbidden", message)] if hidden else []


def _is_news(conditions: Iterable[Condition], live: Object) -> bool:
    """Tell whether more than numbers differs from what the status says."""
    (ready,) = (found for found in conditions if found.type == "Ready")
    said = live.get("status", {})
    known = {(one["type"], one["status"], one.get("reason")) for one in said.get("conditions", [])}
    seen = said.get("observedGeneration") == live["metadata"].get("generation", 0)
    return not seen or (ready.type, ready.status, ready.reason) not in known
