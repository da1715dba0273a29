"""Passive health: an endpoint whose requests fail stops being picked for a while, and comes back by a probe.

    IN ──failures──▶ OUT ──time is over, and it answers scrapes──▶ PROBE ──success──▶ IN
                      ▲                                              │
                      └──────────────── failure: longer ─────────────┘

Pure: a `Standing` and an event make the next `Standing`; the caller knows the time and whether there is room for one
more ejection. In PROBE one request at a time may go there. An error that the endpoint itself answered (5xx) can be the
request's fault, so many are needed and at most half of a pool is ejected for it; a connection that failed is nobody's
fault but the endpoint's, so two are enough and all but one may go. The time doubles with every ejection, and halves its
memory with every quiet spell.
"""

import enum
from dataclasses import dataclass, replace


class StandingState(enum.Enum):
    """Whether an endpoint may be picked."""

    IN = "in"
    OUT = "out"
    PROBE = "probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class EjectionTerms:
    """When an endpoint is ejected, and for how long."""

    answers: int = 5  # 5xx in a row
    connections: int = 2  # … or failures to connect in a row
    first_seconds: float = 1.0
    most_seconds: float = 60.0
    quiet_seconds: float = 30.0  # without ejection, after which the next one is shorter again
    share: float = 0.5  # of a pool that 5xx alone can eject


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What we think of one endpoint."""

    state: StandingState = StandingState.IN
    answers: int = 0  # 5xx in a row
    connections: int = 0  # failed connections in a row
    ejections: int = 0  # how often lately; the exponent of the time
    until: float = 0.0  # when OUT ends
    since: float = 0.0  # of the last change of state
    cause: str = ""  # of the ejection, while it lasts


GOOD = Standing()


def may_eject(*, out: int, total: int, connection: bool, terms: EjectionTerms) -> bool:
    """Return whether one more of the pool may go."""
    return out + 1 < total and (connection or out + 1 <= total * terms.share)


def failed(standing: Standing, *, now: float, connection: bool, room: bool, terms: EjectionTerms) -> Standing:
    """Return the standing after a failure. What began before an ejection does not prolong it."""
    if standing.state is StandingState.OUT:
        return standing
    answers = standing.answers + (not connection)
    connections = standing.connections + connection
    enough = answers >= terms.answers or connections >= terms.connections or standing.state is StandingState.PROBE
    if not enough or not (room or standing.state is StandingState.PROBE):
        return replace(standing, answers=answers, connections=connections)
    calm = max(0, int((now - standing.since) // terms.quiet_seconds)) if standing.state is StandingState.IN else 0
    ejections = max(0, standing.ejections - calm) + 1
    seconds = min(terms.most_seconds, terms.first_seconds * 2.0 ** min(ejections - 1, 30))
    return Standing(
        state=StandingState.OUT,
        ejections=ejections,
        until=now + seconds,
        since=now,
        cause=_cause(standing, answers=answers, connections=connections, terms=terms),
    )


def _cause(standing: Standing, *, answers: int, connections: int, terms: EjectionTerms) -> str:
    if standing.state is StandingState.PROBE:
        return "its probe failed"
    if connections >= terms.connections:
        return f"{connections} connections failed in a row"
    return f"{answers} answers in a row were 5xx"


def succeeded(standing: Standing, *, now: float) -> Standing:
    """Return the standing after a success. While OUT it is an old request's and says nothing about now."""
    if standing.state is StandingState.PROBE:
        return Standing(ejections=standing.ejections, since=now)
    if standing.state is StandingState.IN and (standing.answers or standing.connections):
        return replace(standing, answers=0, connections=0)
    return standing


def aged(standing: Standing, *, now: float, answers_scrapes: bool) -> Standing:
    """Return the standing as time passes: OUT ends when its time is over and the endpoint is there at all."""
    if standing.state is StandingState.OUT and now >= standing.until and answers_scrapes:
        return replace(standing, state=StandingState.PROBE, since=now)
    return standing
