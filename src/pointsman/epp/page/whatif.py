"""What-if: the decisions of the last minutes, decided again under a configuration that somebody wrote in the page.

It is `replay` on the records in memory, so `pointsman replay` says the same about a recording of them. Nothing is
imported: a configuration may name the types of this version and those that the configuration in effect has loaded, and
no others. It runs on the loop that serves, a millisecond at a time and then not for longer, one at once; whoever asked
and left has it stopped.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import msgspec

from pointsman.core.errors import UserError
from pointsman.core.http import Request, Response
from pointsman.core.values import ConfigError
from pointsman.epp.config.build import Built
from pointsman.epp.config.defaults import ConfigPlan, draft
from pointsman.epp.config.registry import BUILT_IN, LATER, PluginType, UnknownType
from pointsman.epp.page.rows import shown
from pointsman.epp.replay import Comparison, replay
from pointsman.epp.schedule.explain_log import to_line
from pointsman.epp.schedule.records import Record

MOST_ROWS = 200  # of requests that would be sent elsewhere
MOST_BYTES = 16 << 10  # of a configuration: it is read in one go, on the loop that serves
_WORK_SECONDS = 0.001
_REST_SECONDS = 0.004
_MOST_PLUGINS = 128  # one decision is not divided: with a thousand scorers it would take ten milliseconds
_CONTENT_TYPE = b"application/yaml"
"""What a page of another site cannot send without being asked first, and is then refused."""


@dataclass(slots=True)
class Summary:
    """What came out of a replay, as the page shows it."""

    decisions: int = 0
    different: int = 0
    refused: int = 0
    rows: list[Comparison] = field(default_factory=list)
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)

    def add(self, each: Comparison) -> None:
        """Count one."""
        self.decisions += 1
        self.before[each.recorded] += 1
        if each.replayed:
            self.after[each.recorded if each.same else each.replayed] += 1
        if each.same:
            return
        self.different += 1
        self.refused += not each.replayed
        if len(self.rows) < MOST_ROWS:
            self.rows.append(each)

    def to_json(self) -> dict[str, object]:
        """Return it for the page."""
        return {
            "decisions": self.decisions,
            "different": self.different,
            "refused": self.refused,
            "rows": [_row(each) for each in self.rows],
            "endpoints": [
                (target, self.before[target], self.after[target]) for target in sorted({*self.before, *self.after})
            ],
        }


def _row(each: Comparison) -> dict[str, object]:
    return {
        "id": shown(each.request_id),
        "recorded": each.recorded,
        "recorded_score": each.recorded_score,
        "replayed": each.replayed,
        "replayed_score": each.replayed_score,
        "refusal": each.refusal,
    }


def loaded_types(current: Built) -> Callable[[str], PluginType]:
    """Return what finds a plugin type among those that are loaded, and never imports any."""
    custom = {made.declared.type.name: made.declared.type for made in current.made.values()}

    def find(name: str) -> PluginType:
        kind = BUILT_IN.get(name) or custom.get(name)
        if kind is None and name in LATER:
            raise UnknownType(f"{name!r} belongs to {LATER[name]}, which this version does not implement yet")
        if kind is None:
            raise UnknownType(
                f"{shown(name)!r} is not loaded: name a type of this version, or of the configuration in effect"
            )
        return kind

    return find


def plan_of(text: str, *, current: Built, allow_experimental: bool) -> ConfigPlan:
    """Return the plan of an edited configuration.

    Raises UserError with everything that is wrong with it.
    """
    find = loaded_types(current)
    plan, problems = draft(text, name="what-if", allow_experimental=allow_experimental, find=find)
    if problems:
        raise ConfigError(problems, name="what-if")
    references = sum(len(each.plugins) for each in plan.profiles)
    if max(len(plan.plugins), len(plan.profiles), references) > _MOST_PLUGINS:
        raise UserError(
            f"what-if: more than {_MOST_PLUGINS} plugins, profiles or references to plugins: leave some out"
        )
    return plan


def compare(records: Iterable[Record], *, plan: ConfigPlan) -> Iterator[Comparison]:
    """Decide the records again, one at a time.

    Raises ConfigError when the plan cannot be built.
    """
    return replay((to_line(record) for record in records), plan=plan)


class WhatIf:
    """Answers the page's questions, one at a time."""

    def __init__(
        self,
        *,
        decisions: Callable[[], Sequence[Record]],
        current: Callable[[], Built],
        allow_experimental: bool,
    ) -> None:
        self._decisions = decisions
        self._current = current
        self._experimental = allow_experimental
        self._busy = False

    async def answer(self, request: Request) -> Response:
        """Answer with what would have been decided, or with what is wrong with the configuration."""
        if request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != _CONTENT_TYPE:
            return _said(415, "send the configuration with content-type: application/yaml")
        if len(request.body) > MOST_BYTES:
            return _said(413, f"the configuration is larger than the {MOST_BYTES} bytes that a what-if takes")
        if self._busy:
            return _said(429, "another what-if is being worked out: try again in a moment")
        self._busy = True
        try:
            text = request.body.decode("utf-8", "replace")
            plan = plan_of(text, current=self._current(), allow_experimental=self._experimental)
            return _json(200, await self._work(self._decisions(), plan=plan))
        except UserError as error:
            return _said(400, str(error))
        finally:
            self._busy = False

    async def _work(self, records: Sequence[Record], *, plan: ConfigPlan) -> dict[str, object]:
        summary, began = Summary(), perf_counter()
        for each in compare(records, plan=plan):
            summary.add(each)
            if perf_counter() - began > _WORK_SECONDS:
                await asyncio.sleep(_REST_SECONDS)
                began = perf_counter()
        seconds = round(records[-1].at - records[0].at, 1) if records else 0.0
        return {**summary.to_json(), "seconds": seconds}


def _said(status: int, sentence: str) -> Response:
    return _json(status, {"problem": sentence})


def _json(status: int, document: dict[str, object]) -> Response:
    return Response(status, msgspec.json.encode(document) + b"\n")
