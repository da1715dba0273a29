"""One stream of server-sent events for all who watch: everything at first, then what changed, four times a second.

Nothing happens while nobody watches: no task wakes, no decision is traced, no record is kept beyond what `/debug` has.
With viewers, a tick makes one message and writes it to all of them, so a second viewer costs little more than its
socket. Of the decisions between two ticks the first few are traced and shown, the rest are counted: nobody reads a
thousand a second.

What a viewer can make us hold is bounded: there are at most `MOST_VIEWERS`, the next is told so; one that does not
read is sent nothing until it does, and then everything anew; one that reads nothing for a minute is cut off (`Limits`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from pointsman.core.http import Request, Response, Stream, header_lines
from pointsman.core.logs import get_logger
from pointsman.epp.assembly import Assembly
from pointsman.epp.page.history import History, Point
from pointsman.epp.page.rows import Endpoints, PickRow, pick_row, totals
from pointsman.epp.page.tail import Tail
from pointsman.epp.schedule.records import Record

log = get_logger(__name__)

TICK = 0.25  # seconds
MOST_VIEWERS = 16
MOST_PICKS = 8  # shown of one tick's
_KEPT_PICKS = 512  # that can still be explained whole
_SILENT_TICKS = 4  # without any change, after which viewers hear that we are there
_HEADERS = header_lines({"cache-control": "no-store", "x-content-type-options": "nosniff", "x-accel-buffering": "no"})
_FULL = {"problem": f"{MOST_VIEWERS} pages are watching this picker already: close one of them"}


class Viewer:
    """One page that is open somewhere."""

    __slots__ = ("knows", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.knows = False  # everything up to the last tick


class Live:
    """What is said to viewers, and when."""

    def __init__(self, parts: Assembly, *, history: History) -> None:
        self._parts = parts
        self._history = history
        self._instance = parts.fresh_id()
        self._encode = msgspec.json.Encoder().encode
        self._woken = asyncio.Event()
        self._viewers: dict[Viewer, None] = {}
        self._watching = False
        self._endpoints = Endpoints()
        self._tail = Tail()
        self._fresh: list[Record] = []  # since the last tick, to be shown
        self._decided = 0  # since then
        self._number = 0
        self._shown: OrderedDict[int, Record] = OrderedDict()
        self._points: list[Point] = []
        self._config: tuple[int, int] = (-1, -1)
        self._counts: dict[str, int] = {}
        self._silent = 0
        self.refused = 0

    @property
    def viewers(self) -> int:
        """How many watch."""
        return len(self._viewers)

    # -- what routes ask for --------------------------------------------------------------------------------------

    def open(self, request: Request) -> Response | None:
        """Begin a stream, or say that there are enough."""
        if request.method == "HEAD":
            return Response(200, b"", b"text/event-stream", _HEADERS)
        if len(self._viewers) >= MOST_VIEWERS:
            self.refused += 1
            retry = header_lines({"retry-after": "10", "cache-control": "no-store"})
            return Response(503, self._encode(_FULL) + b"\n", headers=retry)
        viewer = Viewer(request.stream(headers=_HEADERS))
        request.on_disconnect = lambda: self._leave(viewer)
        self._viewers[viewer] = None
        self._woken.set()
        return None

    def _leave(self, viewer: Viewer) -> None:
        self._viewers.pop(viewer, None)

    def find(self, number: int) -> Record | None:
        """Return a pick that was shown."""
        return self._shown.get(number)

    def decisions(self) -> Sequence[Record]:
        """Return the decisions of the last minutes: as many as were kept."""
        now = self._parts.clock()
        if self._watching:
            return self._tail.decisions(now)
        tail = Tail()
        tail.begin(reversed(self._parts.director.records.find()))
        return tail.decisions(now)

    # -- while somebody watches -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Tell viewers what happens, until cancelled. Whatever goes wrong here is no request's business."""
        while True:
            await self._woken.wait()
            self._begin()
            try:
                while self._viewers:
                    self._tick()
                    await asyncio.sleep(TICK)
            except Exception:
                log.exception("page: a tick failed; viewers have to come again")
                for viewer in tuple(self._viewers):
                    viewer.stream.abort()
                await asyncio.sleep(TICK)
            finally:
                self._end()

    def _begin(self) -> None:
        self._watching = True
        records = self._parts.director.records
        self._tail.begin(reversed(records.find()))
        records.listen(self._heard)

    def _end(self) -> None:
        self._watching = False
        self._woken.clear()
        director = self._parts.director
        director.records.unlisten(self._heard)
        director.explain_next = 0
        self._endpoints = Endpoints()
        self._tail.clear()
        self._shown.clear()
        self._fresh.clear()
        if self._viewers:
            self._woken.set()

    def _heard(self, record: Record) -> None:
        self._tail.add(record)
        self._decided += 1
        if len(self._fresh) < MOST_PICKS:
            self._fresh.append(record)

    def happened(self, point: Point) -> None:
        """Tell viewers of a new point of the plots."""
        if self._watching:
            self._points.append(point)

    def _tick(self) -> None:
        now = self._parts.clock()
        self._tail.prune(now)
        self._parts.director.explain_next = MOST_PICKS
        changes = self._changes(now)
        self._silent = 0 if len(changes) > 1 else self._silent + 1
        delta = self._message(changes) if self._silent in {0, _SILENT_TICKS} else b""
        self._silent %= _SILENT_TICKS
        everything = b""
        for viewer in tuple(self._viewers):
            if viewer.stream.choked:
                viewer.knows = False
            elif viewer.knows:
                viewer.stream.write(delta)
            else:
                everything = everything or self._message(self._everything(now))
                viewer.stream.write(everything)
                viewer.knows = True

    def _message(self, document: dict[str, Any]) -> bytes:
        return b"data: " + self._encode(document) + b"\n\n"

    def _changes(self, now: float) -> dict[str, Any]:
        """Return what a viewer who knows everything up to the last tick has to hear."""
        changed, gone = self._endpoints.update(self._parts.pool.members, now=now)
        picks, more = self._picks()
        points, self._points = self._points, []
        found: dict[str, Any] = {
            "endpoints": changed,
            "gone": gone,
            "picks": picks,
            "more": more,
            "points": points,
            "config": self._new_config(),
            "totals": self._new_totals(),
        }
        return {"now": round(now, 3), **{name: value for name, value in found.items() if value}}

    def _everything(self, now: float) -> dict[str, Any]:
        """Return what a viewer has to hear who knows nothing; after `_changes`, so it is of the same moment."""
        return {
            "now": round(now, 3),
            "instance": self._instance,
            "endpoints": list(self._endpoints.rows.values()),
            "picks": [self._row(number, record) for number, record in list(self._shown.items())[-4 * MOST_PICKS :]],
            "points": list(self._history.points),
            "config": self._describe_config(),
            "totals": self._totals(),
        }

    def _picks(self) -> tuple[list[PickRow], int]:
        fresh, self._fresh = self._fresh, []
        decided, self._decided = self._decided, 0
        rows = []
        for record in fresh:
            self._number += 1
            self._shown[self._number] = record
            rows.append(self._row(self._number, record))
        while len(self._shown) > _KEPT_PICKS:
            self._shown.popitem(last=False)
        return rows, decided - len(fresh)

    def _row(self, number: int, record: Record) -> PickRow:
        return pick_row(record, number=number)

    def _totals(self) -> dict[str, int]:
        tally = self._parts.director.tally
        return totals(picked=tally.picked, refused=tally.refused, ended=tally.ended, elsewhere=tally.served_elsewhere)

    def _new_totals(self) -> dict[str, int] | None:
        before, self._counts = self._counts, self._totals()
        return None if self._counts == before else self._counts

    def _new_config(self) -> dict[str, Any] | None:
        configuration = self._parts.configuration
        version = (configuration.reloads, configuration.rejected)
        if version == self._config:
            return None
        self._config = version
        return self._describe_config()

    def _describe_config(self) -> dict[str, Any]:
        configuration = self._parts.configuration
        return {
            "source": configuration.name,
            "text": configuration.current.to_yaml(),
            "since": round(configuration.since, 3),
            "reloads": configuration.reloads,
            "rejected": configuration.rejected,
            "refusal": configuration.refusal,
            "refused_at": round(configuration.refused_at, 3),
        }
