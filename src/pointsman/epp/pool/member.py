"""An endpoint of a pool with the numbers that belong to it.

`Member.view` is always current: it is made anew when something about the member changes, which is twice per request
and once per scrape, so a decision over a hundred endpoints reads a hundred attributes and computes nothing. Members
count; whether one may be picked is for its keeper to say, the pool.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from pointsman.epp.pool.ejection import GOOD, Standing, StandingState
from pointsman.epp.pool.endpoint import Endpoint, host_of
from pointsman.epp.pool.freshness import blend, trust
from pointsman.epp.pool.view import NEVER_SCRAPED, EndpointMetrics, EndpointView

Mark = tuple[int, int]
"""A member's totals at one moment: requests begun and ended."""

_NONE: Mapping[str, float] = {}
_IN = StandingState.IN  # naming an enum's member is dear on Python 3.11


class Keeper(Protocol):
    """Whoever decides which members may be picked."""

    def judge(self, member: "Member", *, ok: bool, connection: bool) -> None:
        """Apply one request's outcome to a member's standing."""

    def reconsider(self) -> None:
        """Work out anew who may be picked."""


class Member:
    """An endpoint with the numbers that belong to it."""

    __slots__ = (
        "_keeper", "_mark", "_trust", "attributes", "began", "ended", "endpoint", "host", "inflight", "media",
        "metrics", "picks", "probes", "scrape_failures", "standing", "tokens", "view",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, *, keeper: Keeper | None = None) -> None:
        self._keeper = keeper
        self._mark: Mark = (0, 0)  # as of the last scrape
        self._trust = 0.0
        self.inflight = 0
        self.tokens = 0  # of prompts that are not prefilled yet
        self.media = 0  # … of their images, videos and sounds
        self.picks = 0  # requests that we sent here, for the metrics
        self.began = 0  # … and those that Envoy's retry brought
        self.ended = 0
        self.metrics: EndpointMetrics = NEVER_SCRAPED
        self.attributes: Mapping[str, float] = _NONE
        self.scrape_failures: dict[str, int] = {}  # in a row, by the source that asks
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

    @property
    def models(self) -> frozenset[str]:
        """The models that it says it serves, where that is asked."""
        return self.metrics.models or frozenset()

    def served(self, models: Mapping[str, str]) -> None:
        """Take which models the server says it has, each with its base where it is an adapter."""
        adapters = {name: base for name, base in models.items() if base}
        if self.metrics.models != frozenset(models) or self.metrics.adapters != adapters:
            self.metrics = msgspec.structs.replace(self.metrics, models=frozenset(models), adapters=adapters)
            self._renew()

    def measured(self, attributes: Mapping[str, float]) -> None:
        """Take what somebody else says about it, beside what it said itself."""
        self.attributes = {**self.attributes, **attributes}
        self._renew()

    @property
    def answers_scrapes(self) -> bool:
        """Whether it is there at all: some source that asks has its last answer, or nobody asks."""
        return not self.scrape_failures or not all(self.scrape_failures.values())

    def age(self, now: float, *, threshold: float) -> None:
        """Believe the last scrape a little less as it gets older."""
        updated = self.metrics.updated_at
        now_trusted = 0.0 if updated is None else trust(now - updated, threshold=threshold)
        if now_trusted != self._trust:
            self._trust = now_trusted
            self._renew()

    def enter(self, tokens: int = 0, media: int = 0) -> None:
        """Count a request that begins here."""
        self.began += 1
        self.inflight += 1
        self.tokens += tokens
        self.media += media
        self._renew()

    def leave(self, tokens: int = 0, media: int = 0) -> None:
        """Count a request that is over here."""
        self.ended += 1
        self.inflight -= 1
        self.tokens -= tokens
        self.media -= media
        self._renew()

    def prefilled(self, tokens: int, media: int = 0) -> None:
        """Count prompt tokens that are no longer to be worked on."""
        self.tokens -= tokens
        self.media -= media
        self._renew()

    def judge(self, *, ok: bool, connection: bool = False) -> None:
        """Learn from a request's outcome whether this endpoint can be relied on."""
        standing = self.standing
        if ok and standing.state is _IN and not standing.answers and not standing.connections:
            return  # nearly always, and free of charge
        if self._keeper is not None:
            self._keeper.judge(self, ok=ok, connection=connection)

    def probe(self, change: int) -> None:
        """Count a request that decides whether the endpoint comes back."""
        self.probes += change
        if self._keeper is not None:
            self._keeper.reconsider()

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
            inflight_media=self.media,
            metrics=metrics,
            attributes=self.attributes,
        )
