"""The live page of one picker: its routes, its tasks, and what it counts of itself.

Everything that tells about the picker is under `/debug`, behind the same guard as the other pages there; only the
page's own files are not.
"""

import asyncio
from collections.abc import Iterable
from urllib.parse import parse_qs

import msgspec

from pointsman.core.families import CONTENT_TYPE, Family, Gauge, names
from pointsman.core.http import Request, Response
from pointsman.core.numbers import SAFE, whole
from pointsman.epp.assembly import Assembly
from pointsman.epp.page import files
from pointsman.epp.page.history import EVERY, History, Sample, fill
from pointsman.epp.page.live import Live
from pointsman.epp.page.route import Route
from pointsman.epp.page.whatif import WhatIf


class Page:
    """What a picker shows to people."""

    def __init__(self, parts: Assembly) -> None:
        self._parts = parts
        self._history = History(bounds=parts.metrics.duration.bounds)
        self.live = Live(parts, history=self._history)
        what_if = WhatIf(
            decisions=self.live.decisions,
            current=lambda: parts.configuration.current,
            allow_experimental=parts.settings.allow_experimental_plugins,
        )
        self.routes: dict[str, Route] = {
            **files.routes(),
            "/debug/live": Route(answer=self.live.open),
            "/debug/pick": Route(answer=self._pick),
            "/debug/what-if": Route(answer=what_if.answer, method="POST"),
        }

    async def run(self) -> None:
        """Keep the history, and tell those who watch; until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.live.run())
            tasks.create_task(self._keep_history())

    async def _keep_history(self) -> None:
        while True:
            made = self._history.add(await self._sample())
            if made is not None:
                self.live.happened(made)
            await asyncio.sleep(EVERY)

    async def _sample(self) -> Sample:
        metrics, picked = self._parts.metrics, self._parts.director.tally.picked
        sample = Sample(at=self._parts.clock(), picked=picked, errors=sum(metrics.errors.cells.values()))
        for _ in fill(sample, metrics):
            await asyncio.sleep(0)
        return sample

    def _pick(self, request: Request) -> Response:
        """Answer with the whole explanation of a pick that the page shows."""
        number = whole(parse_qs(request.query.decode("ascii", "replace")).get("number", [""])[0], most=SAFE)
        record = self.live.find(number) if number is not None else None
        if record is None:
            sentence = b"that pick is not kept any more: the last few hundred that were shown are\n"
            return Response(404, sentence, CONTENT_TYPE)
        return Response(200, msgspec.json.encode(record.to_json()) + b"\n")

    def families(self) -> Iterable[Family]:
        """Return what is counted here."""
        yield Gauge(
            names("pointsman_page_viewers", ()), "Live pages that are open.", read=lambda: {(): self.live.viewers}
        )
        yield Gauge(
            names("pointsman_page_refused_total", ()),
            "Live pages that were told that there are enough.",
            read=lambda: {(): self.live.refused},
            kind="counter",
        )
