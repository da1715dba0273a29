"""What the page shows of an endpoint and of a pick, as rows; and what changed between two moments. Pure.

Rows are arrays in JSON (`array_like`), whose order the page's `state.js` knows: a hundred endpoints that all change
four times a second are some thirty kilobytes. Nothing of a prompt is in them, and no header. What a client or a cluster
chose (ids, models, names) is cut, and is text that can be written, whatever bytes it was.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from pointsman.epp.plugins.api import Picked
from pointsman.epp.pool.ejection import StandingState
from pointsman.epp.pool.member import Member
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import readable
from pointsman.epp.schedule.explain import DecisionStep
from pointsman.epp.schedule.points import FILTER, SCORE, clamp
from pointsman.epp.schedule.records import Record

_MOST_LETTERS = 120
_AGE_STEP = 0.2  # seconds: what is scraped every 50 ms is of age 0 here, and does not change with every look


class EndpointRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One endpoint now: what it said of itself, what we sent it, and whether it may be picked."""

    target: str
    name: str
    namespace: str
    running: int | None  # None while it was never scraped
    waiting: int | None
    inflight: int
    kv_usage: float | None
    age: float | None  # of what it said, in steps
    state: str  # in, out, probe
    why: str  # it is not picked
    picks: int


class Bar(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one scorer gave the endpoint that was picked, and the runner-up, each times its weight."""

    scorer: str
    weight: float
    picked: float | None  # None when the scorer failed
    runner: float | None


class PickRow(msgspec.Struct, frozen=True, kw_only=True):
    """One pick, with what decided it."""

    number: int  # to ask for its whole explanation
    at: float
    id: str
    model: str
    priority: int
    tokens: int | None
    profile: str
    picked: str
    name: str
    score: float | None
    runner: str
    runner_score: float | None
    candidates: int
    bars: Sequence[Bar]
    lost: Sequence[tuple[str, int]]  # by filter: how many endpoints it dropped
    reason: str  # where there are no bars


def shown(text: str) -> str:
    """Return somebody else's text as far as it is shown."""
    text = readable(text)
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"


def endpoint_row(member: Member, *, now: float) -> EndpointRow:
    """Return what is shown of an endpoint."""
    metrics, endpoint, standing = member.metrics, member.endpoint, member.standing
    updated = metrics.updated_at
    said = updated is not None
    return EndpointRow(
        target=endpoint.target,
        name=shown(endpoint.name),
        namespace=shown(endpoint.namespace),
        running=metrics.running if said else None,
        waiting=metrics.waiting if said else None,
        inflight=member.inflight,
        kv_usage=round(metrics.kv_usage, 4) if said else None,
        age=None if updated is None else round(max(0.0, now - updated) // _AGE_STEP * _AGE_STEP, 1),
        state=standing.state.value,
        why=_why(member, now=now),
        picks=member.picks,
    )


def _why(member: Member, *, now: float) -> str:
    standing = member.standing
    if standing.state is StandingState.IN:
        return "" if member.answers_scrapes else "its metrics cannot be read"
    if standing.state is StandingState.PROBE:
        return f"{standing.cause}; the next request decides"
    left = math.ceil(standing.until - now)
    rest = f"out for {left} s more" if left > 0 else "out until its metrics can be read"
    return f"{standing.cause}; {rest}"


class Endpoints:
    """The endpoints as every viewer has them, and what is to be said to keep that so."""

    def __init__(self) -> None:
        self.rows: dict[str, EndpointRow] = {}

    def update(self, members: Sequence[Member], *, now: float) -> tuple[list[EndpointRow], list[str]]:
        """Return the rows that changed, and who is gone."""
        rows = {member.endpoint.target: endpoint_row(member, now=now) for member in members}
        before, self.rows = self.rows, rows
        changed = [row for target, row in rows.items() if before.get(target) != row]
        return changed, [target for target in before if target not in rows]


def pick_row(record: Record, *, number: int) -> PickRow:
    """Return what is shown of a pick; the bars only when it was traced."""
    request, outcome, first = record.request, record.outcome, record.picked[0]
    steps: Sequence[DecisionStep] = ()
    if record.trace is not None and outcome is not None:
        steps = record.trace.profiles.get(outcome.primary, ())
    race = _race(outcome.picked) if outcome is not None else _NO_RACE
    bars = _bars(steps, race)
    return PickRow(
        number=number,
        at=round(record.at, 3),
        id=shown(request.id),
        model=shown(request.target_model),
        priority=request.priority,
        tokens=request.prompt.tokens if request.prompt is not None else None,
        profile=outcome.primary if outcome is not None else "",
        picked=first.target,
        name=shown(first.name),
        score=race.score,
        runner=race.runner.target if race.runner is not None else "",
        runner_score=race.runner_score,
        candidates=len(record.candidates),
        bars=bars,
        lost=_lost(steps),
        reason="" if bars else record.reason,
    )


class _Race(NamedTuple):
    """Who won and who came second, and where they stand among those that were scored."""

    at: int | None = None
    score: float | None = None
    runner_at: int | None = None
    runner: EndpointView | None = None
    runner_score: float | None = None


_NO_RACE = _Race()


def _race(picked: Picked) -> _Race:
    targets, scores = [endpoint.target for endpoint in picked.candidates], list(picked.scores)
    if picked.first.target not in targets:  # a picker of somebody's may choose whom it likes
        return _NO_RACE
    at = targets.index(picked.first.target)
    score, scores[at] = scores[at], -math.inf
    if len(scores) == 1:
        return _Race(at=at, score=score)
    best = max(scores)
    second = scores.index(best)
    return _Race(at, score, second, picked.candidates[second], best)


def _bars(steps: Sequence[DecisionStep], race: _Race) -> list[Bar]:
    return [
        Bar(scorer=step.name, weight=step.weight, picked=_share(step, race.at), runner=_share(step, race.runner_at))
        for step in steps
        if step.point == SCORE.label  # all scorers see the endpoints that the filters left, in one order
    ]


def _share(step: DecisionStep, at: int | None) -> float | None:
    if at is None or step.answer is None:
        return None
    score = float(step.answer[at])
    return step.weight * (score if 0.0 <= score <= 1.0 else clamp(score))


def _lost(steps: Sequence[DecisionStep]) -> list[tuple[str, int]]:
    filters = [step for step in steps if step.point == FILTER.label]
    return [(step.name, lost) for step in filters if (lost := len(step.before) - len(step.answer))]


def totals(*, picked: int, refused: Mapping[str, int], ended: Mapping[str, int], elsewhere: int) -> dict[str, int]:
    """Return the counts of the page's head, by the names that `state.js` knows."""
    return {
        "picked": picked,
        "refused": sum(refused.values()),
        "ended": sum(ended.values()),
        "elsewhere": elsewhere,
    }
