"""Who can be picked, and whom to leave alone for now.

One event loop owns the pool, so a pick and its reservation are one step: whatever is decided next already sees it, and
a burst spreads without waiting for any scrape. Time alone changes little, so `Pool.sweep` applies it once per tick.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from pointsman.epp.pool.ejection import EjectionTerms, StandingState, aged, failed, may_eject, succeeded
from pointsman.epp.pool.endpoint import Endpoint, host_of
from pointsman.epp.pool.member import Mark, Member
from pointsman.epp.pool.reservation import Reservation

__all__ = ["Mark", "Member", "Pool", "Reservation"]


class Pool:
    """The endpoints that discovery knows now."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, staleness: float = 2.0, terms: EjectionTerms | None = None
    ) -> None:
        self._clock = clock
        self._staleness = staleness
        self._terms = terms or EjectionTerms()
        self._members: dict[str, Member] = {}
        self._all: tuple[Member, ...] = ()
        self._open: tuple[Member, ...] = ()
        self._watchers: list[Callable[[tuple[Member, ...]], None]] = []
        self.ejections = 0
        self.synced = False

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, in the order in which discovery named them."""
        return self._all

    @property
    def candidates(self) -> tuple[Member, ...]:
        """The members that may be picked: never none while there are any."""
        return self._open

    def watch(self, notify: Callable[[tuple[Member, ...]], None]) -> Callable[[], None]:
        """Call `notify` with all members now, and after every change of who they are; return what ends that."""
        self._watchers.append(notify)
        notify(self._all)
        return lambda: self._watchers.remove(notify)

    def replace(self, endpoints: Iterable[Endpoint]) -> None:
        """Take a new list. Endpoints that stay keep their counters, also under changed labels."""
        self.synced = True
        self._replace(endpoints)

    def clear(self) -> None:
        """Forget all: the pool itself is gone."""
        self.synced = False
        self._replace(())

    def _replace(self, endpoints: Iterable[Endpoint]) -> None:
        members: dict[str, Member] = {}
        for endpoint in endpoints:
            member = self._members.get(endpoint.target)
            if member is None:
                member = Member(endpoint, keeper=self)
            elif member.endpoint != endpoint:
                member.describe(endpoint)
            members[endpoint.target] = member
        self._members = members
        self._all = tuple(members.values())
        self.reconsider()
        for notify in tuple(self._watchers):
            notify(self._all)

    def get(self, target: str) -> Member | None:
        """Return the member with this `ip:port`."""
        return self._members.get(target)

    def within(self, subset: Sequence[str] | None) -> tuple[Member, ...]:
        """Return the members that the proxy's hint allows: by address only, as llm-d does; None allows all."""
        if subset is None:
            return self._open
        hosts = {host_of(target) for target in subset}
        chosen = tuple([member for member in self._open if member.host in hosts])
        return chosen or tuple([member for member in self._all if member.host in hosts])

    def judge(self, member: Member, *, ok: bool, connection: bool) -> None:
        """Apply one request's outcome to a member's standing."""
        now, before = self._clock(), member.standing
        if ok:
            member.standing = succeeded(before, now=now)
        else:
            out = sum(1 for other in self._all if other.standing.state is not StandingState.IN)
            room = may_eject(out=out, total=len(self._all), connection=connection, terms=self._terms)
            member.standing = failed(before, now=now, connection=connection, room=room, terms=self._terms)
        if member.standing.state is not before.state:
            self.ejections += member.standing.state is StandingState.OUT
            self.reconsider()

    def sweep(self, now: float) -> None:
        """Let time pass: old scrapes count less, ejections end."""
        changed = False
        for member in self._all:
            member.age(now, threshold=self._staleness)
            if member.standing.state is StandingState.OUT:
                before = member.standing
                member.standing = aged(before, now=now, answers_scrapes=member.answers_scrapes)
                changed = changed or member.standing is not before
        if changed:
            self.reconsider()

    def reconsider(self) -> None:
        """Work out anew who may be picked."""
        self._open = tuple([m for m in self._all if _may_be_picked(m)]) or self._all


def _may_be_picked(member: Member) -> bool:
    state = member.standing.state
    return state is StandingState.IN or (state is StandingState.PROBE and member.probes == 0)
