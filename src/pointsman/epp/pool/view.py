"""An endpoint as plugins see it: one frozen snapshot, the same for every plugin of a decision.

Owns the shape only. `Member.view` in `pool` builds it, anew when something about the member has changed; a plugin can
neither write to it nor see it change while it decides.

Two kinds of numbers, and plugins choose by purpose. `waiting`, `running` and `kv_usage` are what to *rank* by: the last
scrape, plus what we have picked since and minus what has ended since, so a burst within one scrape interval spreads;
where the metrics are stale or were never there they are our own counts. With fresh metrics and no pick since, they are
the scraped values exactly. `metrics` is the scrape itself, for those who ask how old it is.

Structs rather than dataclasses because one is made for nearly every request, and these cost a tenth.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

_NOTHING: Mapping[str, float] = MappingProxyType({})


class Lora(msgspec.Struct, frozen=True, kw_only=True):
    """The adapters that a model server says it has loaded."""

    running: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    max_active: int = 0


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The KV cache that a model server says it has; 0 when it does not say."""

    block_tokens: int = 0
    blocks: int = 0


class EndpointMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape, as the model server said it."""

    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.0  # 0..1
    lora: Lora = Lora()
    cache: CacheConfig = CacheConfig()
    updated_at: float | None = None  # on the picker's monotonic clock; None when nothing was ever read
    models: frozenset[str] | None = None  # that it says it serves; None where nobody asked, or it did not answer
    adapters: Mapping[str, str] = {}  # … those of them that are adapters, each with its base

    def age(self, now: float) -> float:
        """Return the seconds since the scrape; infinite when there was none."""
        return float("inf") if self.updated_at is None else now - self.updated_at


NEVER_SCRAPED = EndpointMetrics()


class EndpointView(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint at the moment of a decision."""

    name: str
    target: str  # `ip:port`, what the destination header carries; unique in a pool
    address: str
    port: int
    namespace: str = "default"
    labels: Mapping[str, str] = {}

    waiting: float = 0
    running: float = 0
    kv_usage: float = 0.0
    inflight_requests: int = 0  # ours, from pick to end
    inflight_tokens: int = 0  # prompt tokens of ours that are not prefilled yet
    inflight_media: int = 0  # … those of them that are of images, videos and sounds
    metrics: EndpointMetrics = NEVER_SCRAPED
    attributes: Mapping[str, float] = _NOTHING  # custom metrics, by `attributeKey`

    @property
    def id(self) -> str:
        """The endpoint's `namespace/name`, as the Go picker's session tokens spell it."""
        return f"{self.namespace}/{self.name}"
