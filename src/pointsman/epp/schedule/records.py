"""The last decisions, so that a person can ask why.

Kept by request id in a ring, written at every pick. What is kept are references to frozen things that exist anyway, the
candidates' views and the scores, so a record costs next to nothing until someone reads it. A traced decision has every
plugin's part as well. Listeners are given each record, for a recording.

How many are kept is bounded by their weight too: a peer that may send headers of megabytes, or prompts whose hashes
are not limited, would fill the memory with a thousand of them.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import msgspec

from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Request, readable
from pointsman.epp.schedule.decision import Outcome
from pointsman.epp.schedule.explain import Trace

MOST_BYTES = 96 << 20
"""What the kept requests may weigh: a thousand prompts of the longest chain that is matched by default."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One decision with what it was based on."""

    request: Request
    candidates: Sequence[EndpointView]
    at: float = 0.0  # on the picker's monotonic clock, as `updated_at` of the candidates
    outcome: Outcome | None = None
    drawn: EndpointView | None = None  # when nothing was decided by
    trace: Trace | None = None
    weight: int = 0  # the request's, worked out once

    @property
    def picked(self) -> Sequence[EndpointView]:
        """Whom it was sent to, in order."""
        if self.outcome is not None:
            return self.outcome.picked.endpoints
        return (self.drawn,) if self.drawn is not None else ()

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        if self.outcome is None:
            return f"a request without a body: drawn from {len(self.candidates)} endpoints"
        picked = self.outcome.picked
        scores = sorted(picked.scores, reverse=True)
        best = dict(zip([each.target for each in picked.candidates], picked.scores, strict=True)).get(
            picked.first.target
        )
        if best is None:  # a picker of somebody's may choose whom it likes
            return f"profile {self.outcome.primary}: chosen outside of the {len(scores)} endpoints that were scored"
        ties = scores.count(best)
        text = f"profile {self.outcome.primary}: score {best:.4g} of {len(scores)} endpoints' {_span(scores)}"
        return text if ties == 1 else f"{text}, drawn from {ties} that tie"

    def to_json(self) -> dict[str, Any]:
        """Return the record as `/debug/decisions` shows it."""
        totals: dict[str, float] = {}
        if self.outcome is not None:
            picked = self.outcome.picked
            totals = dict(zip([each.target for each in picked.candidates], picked.scores, strict=True))
        row: dict[str, Any] = {
            "request_id": readable(self.request.id),
            "model": readable(self.request.target_model),
            "priority": self.request.priority,
            "prompt_tokens": self.request.prompt.tokens if self.request.prompt is not None else None,
            "picked": [endpoint.target for endpoint in self.picked],
            "reason": self.reason,
            "candidates": [_candidate(endpoint, totals) for endpoint in self.candidates],
        }
        if self.trace is not None:
            row["explain"] = self.trace.to_json()
        return row


def _span(ordered: Sequence[float]) -> str:
    return f"{ordered[-1]:.4g}–{ordered[0]:.4g}"


def _candidate(endpoint: EndpointView, totals: dict[str, float]) -> dict[str, Any]:
    return {
        "address": endpoint.target,
        "name": endpoint.name,
        "inflight": endpoint.inflight_requests,
        "waiting": endpoint.waiting,
        "running": endpoint.running,
        "kv_usage": endpoint.kv_usage,
        "score": totals.get(endpoint.target),
    }


class Records:
    """A ring of the last decisions."""

    def __init__(self, *, keep: int = 1000, most_bytes: int = MOST_BYTES) -> None:
        self._keep = keep
        self._most_bytes = most_bytes
        self._bytes = 0
        self._ring: OrderedDict[str, Record] = OrderedDict()
        self._listeners: list[Callable[[Record], None]] = []

    def listen(self, listener: Callable[[Record], None]) -> None:
        """Hand every record to a listener as well."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[Record], None]) -> None:
        """Hand a listener no more of them."""
        self._listeners.remove(listener)

    def add(self, record: Record) -> None:
        """Keep a record; of two decisions for one id, such as a client's retry, the later."""
        ring, key = self._ring, record.request.id
        before = ring.pop(key, None)
        if before is not None:
            self._bytes -= before.weight
        ring[key] = record
        self._bytes += record.weight
        while len(ring) > self._keep or self._bytes > self._most_bytes:
            self._bytes -= ring.popitem(last=False)[1].weight
        for listener in self._listeners:
            listener(record)

    def find(self, request_id: str = "", *, last: int | None = None) -> list[Record]:
        """Return the decision for one request, or the last ones (all, when no number is given), newest first."""
        if request_id:
            return [self._ring[request_id]] if request_id in self._ring else []
        return list(islice(reversed(self._ring.values()), last))
