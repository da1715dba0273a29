"""Who can be picked, and how busy each is by our own account.

One event loop owns the pool, so a pick and its reservation are one step: whatever is decided next already sees it, and
a burst spreads without waiting for any scrape. A reservation is released exactly once, however its request ends, and it
belongs to the *member*, not the address: an endpoint that is removed and comes back starts at zero while the old
requests still end quietly.
"""

from collections.abc import Iterable, Sequence

from pointsman.epp.endpoint import Endpoint, host_of


class Member:
    """An endpoint with the counters that belong to it."""

    __slots__ = ("endpoint", "inflight", "picks")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.inflight = 0
        self.picks = 0


class Reservation:
    """One request's place at an endpoint, from its pick to its end."""

    __slots__ = ("_member",)

    def __init__(self, member: Member) -> None:
        self._member: Member | None = member
        member.inflight += 1
        member.picks += 1

    def move(self, member: Member) -> None:
        """Follow the request to the endpoint that really serves it (Envoy's retry went elsewhere)."""
        if self._member is not None and self._member is not member:
            self._member.inflight -= 1
            member.inflight += 1
            self._member = member

    def release(self) -> None:
        """Free the place; harmless when it is free already."""
        if self._member is not None:
            self._member.inflight -= 1
            self._member = None


class Pool:
    """The endpoints that discovery knows now."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._view: tuple[Member, ...] = ()
        self.synced = False

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, in the order in which discovery named them."""
        return self._view

    def replace(self, endpoints: Iterable[Endpoint]) -> None:
        """Take a new list. Endpoints that stay keep their counters, also under changed labels."""
        members: dict[str, Member] = {}
        for endpoint in endpoints:
            member = self._members.get(endpoint.target) or Member(endpoint)
            member.endpoint = endpoint
            members[endpoint.target] = member
        self._members = members
        self._view = tuple(members.values())
        self.synced = True

    def get(self, target: str) -> Member | None:
        """Return the member with this `ip:port`."""
        return self._members.get(target)

    def within(self, subset: Sequence[str] | None) -> tuple[Member, ...]:
        """Return the members that the proxy's hint allows: by address only, as llm-d does; None allows all."""
        if subset is None:
            return self._view
        hosts = {host_of(target) for target in subset}
        return tuple(member for member in self._view if host_of(member.endpoint.address) in hosts)
