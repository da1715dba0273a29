"""Who can be picked, how busy each is, and whom to leave alone for now.

One event loop owns the pool, so a pick and its reservation are one step: whatever is decided next already sees it, and
a burst spreads without waiting for any scrape. A reservation is released exactly once, however its request ends, and it
belongs to the *member*, not the address: an endpoint that is removed and comes back starts at zero while the old
requests still end quietly.

`Member.view` is always current: it is made anew when something about the member changes, which is twice per request
and once per scrape, so a decision over a hundred endpoints reads a hundred attributes and computes nothing. Time alone
changes little, so `Pool.sweep` applies it once per tick.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from pointsman.epp.ejection import GOOD, Standing, State, Terms, aged, failed, may_eject, succeeded
from pointsman.epp.endpoint import Endpoint, host_of
from pointsman.epp.freshness import blend, trust
from pointsman.epp.view import NEVER_SCRAPED, EndpointMetrics, EndpointView

Mark = tuple[int, int]
"""A member's totals at one moment: requests begun and ended."""

_NONE: Mapping[str, float] = {}


class Member:
    """An endpoint with the numbers that belong to it."""

    __slots__ = (
        "_mark", "_pool", "_trust", "attributes", "began", "ended", "endpoint", "host", "inflight", "metrics", "models",
        "picks", "probes", "scrape_failures", "standing", "tokens", "view",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, *, pool: "Pool | None" = None) -> None:
        self._pool = pool
        self._mark: Mark = (0, 0)  # as of the last scrape
        self._trust = 0.0
        self.inflight = 0
        self.tokens = 0  # of prompts that are not prefilled yet
        self.picks = 0  # requests that we sent here, for the metrics
        self.began = 0  # … and those that Envoy's retry brought
        self.ended = 0
        self.metrics: EndpointMetrics = NEVER_SCRAPED
        self.attributes: Mapping[str, float] = _NONE
        self.models: frozenset[str] = frozenset()  # that it says it serves, where that is asked
        self.scrape_failures = 0  # in a row
        self.standing: Standing = GOOD
        self.probes = 0  # requests in flight that decide whether it comes back
        self.view: EndpointView
        self.describe(endpoint)

    def describe(self, endpoint: Endpoint) -> None:
        """Take new labels or a new name."""
        self.endpoint = endpoint
        self.host = host_of(endpoint.address)
        self._renew()

    def mark(self) -> Mark:
        """Return the totals now; a scrape takes them when it is sent."""
        return self.began, self.ended

    def scraped(self, metrics: EndpointMetrics, *, attributes: Mapping[str, float], mark: Mark) -> None:
        """Take what the model server said about the moment of the mark."""
        self.metrics = metrics
        self.attributes = attributes
        self._mark = mark
        self._trust = 1.0
        self._renew()

    def age(self, now: float, *, threshold: float) -> None:
        """Believe the last scrape a little less as it gets older."""
        updated = self.metrics.updated_at
        now_trusted = 0.0 if updated is None else trust(now - updated, threshold=threshold)
        if now_trusted != self._trust:
            self._trust = now_trusted
            self._renew()

    def enter(self, tokens: int = 0) -> None:
        """Count a request that begins here."""
        self.began += 1
        self.inflight += 1
        self.tokens += tokens
        self._renew()

    def leave(self, tokens: int = 0) -> None:
        """Count a request that is over here."""
        self.ended += 1
        self.inflight -= 1
        self.tokens -= tokens
        self._renew()

    def prefilled(self, tokens: int) -> None:
        """Count prompt tokens that are no longer to be worked on."""
        self.tokens -= tokens
        self._renew()

    def judge(self, *, ok: bool, connection: bool = False) -> None:
        """Learn from a request's outcome whether this endpoint can be relied on."""
        standing = self.standing
        if ok and standing.state is State.IN and not standing.answers and not standing.connections:
            return  # nearly always, and free of charge
        if self._pool is not None:
            self._pool.judge(self, ok=ok, connection=connection)

    def probe(self, change: int) -> None:
        """Count a request that decides whether the endpoint comes back."""
        self.probes += change
        if self._pool is not None:
            self._pool.reconsider()

    def _renew(self) -> None:
        endpoint, metrics, inflight, trusted = self.endpoint, self.metrics, self.inflight, self._trust
        since = self.began - self._mark[0] - self.ended + self._mark[1]
        self.view = EndpointView(
            name=endpoint.name,
            target=endpoint.target,
            address=endpoint.address,
            port=endpoint.port,
            namespace=endpoint.namespace,
            labels=endpoint.labels,
            waiting=blend(metrics.waiting, since=since, own=inflight, trust=trusted),
            running=blend(metrics.running, since=since, own=inflight, trust=trusted),
            kv_usage=metrics.kv_usage,
            inflight_requests=inflight,
            inflight_tokens=self.tokens,
            metrics=metrics,
            attributes=self.attributes,
        )


class Reservation:
    """One request's place at an endpoint, from its pick to its end."""

    __slots__ = ("_member", "_probe", "_tokens")

    def __init__(self, member: Member, *, tokens: int = 0) -> None:
        self._member: Member | None = member
        self._tokens = tokens
        self._probe = member.standing.state is State.PROBE
        member.picks += 1
        member.enter(tokens)
        if self._probe:
            member.probe(+1)

    @property
    def member(self) -> Member | None:
        """Where the place is; None when it is free."""
        return self._member

    def move(self, member: Member) -> None:
        """Follow the request to the endpoint that really serves it: Envoy could not reach the one we picked."""
        old = self._member
        if old is None or old is member:
            return
        self._end_probe(old)
        old.leave(self._tokens)
        old.judge(ok=False, connection=True)
        member.enter(self._tokens)
        self._member = member

    def answered(self, status: int) -> None:
        """Note the status of the response; 501 says what the server cannot do, not that it fails."""
        if self._member is not None:
            self._member.judge(ok=status < 500 or status == 501)
            self._end_probe(self._member)

    def first_byte(self) -> None:
        """The prompt is prefilled: its tokens weigh no more."""
        if self._member is not None and self._tokens:
            self._member.prefilled(self._tokens)
            self._tokens = 0

    def release(self) -> None:
        """Free the place; harmless when it is free already."""
        member, self._member = self._member, None
        if member is not None:
            self._end_probe(member)
            member.leave(self._tokens)

    def _end_probe(self, member: Member) -> None:
        if self._probe:
            self._probe = False
            member.probe(-1)


class Pool:
    """The endpoints that discovery knows now."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, staleness: float = 2.0, terms: Terms | None = None
    ) -> None:
        self._clock = clock
        self._staleness = staleness
        self._terms = terms or Terms()
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

    def watch(self, notify: Callable[[tuple[Member, ...]], None]) -> None:
        """Call `notify` with all members now, and after every change of who they are."""
        self._watchers.append(notify)
        notify(self._all)

    def replace(self, endpoints: Iterable[Endpoint]) -> None:
        """Take a new list. Endpoints that stay keep their counters, also under changed labels."""
        members: dict[str, Member] = {}
        for endpoint in endpoints:
            member = self._members.get(endpoint.target)
            if member is None:
                member = Member(endpoint, pool=self)
            elif member.endpoint != endpoint:
                member.describe(endpoint)
            members[endpoint.target] = member
        self._members = members
        self._all = tuple(members.values())
        self.synced = True
        self.reconsider()
        for notify in self._watchers:
            notify(self._all)

    def clear(self) -> None:
        """Forget all: the pool itself is gone."""
        self.replace(())
        self.synced = False

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
            out = sum(1 for other in self._all if other.standing.state is not State.IN)
            room = may_eject(out=out, total=len(self._all), connection=connection, terms=self._terms)
            member.standing = failed(before, now=now, connection=connection, room=room, terms=self._terms)
        if member.standing.state is not before.state:
            self.ejections += member.standing.state is State.OUT
            self.reconsider()

    def sweep(self, now: float) -> None:
        """Let time pass: old scrapes count less, ejections end."""
        changed = False
        for member in self._all:
            member.age(now, threshold=self._staleness)
            if member.standing.state is State.OUT:
                before = member.standing
                member.standing = aged(before, now=now, answers_scrapes=member.scrape_failures == 0)
                changed = changed or member.standing is not before
        if changed:
            self.reconsider()

    def reconsider(self) -> None:
        """Work out anew who may be picked."""
        self._open = tuple([m for m in self._all if _may_be_picked(m)]) or self._all


def _may_be_picked(member: Member) -> bool:
    state = member.standing.state
    return state is State.IN or (state is State.PROBE and member.probes == 0)
