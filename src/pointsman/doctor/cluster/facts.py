"""What was seen of a cluster, as plain values. None is what could not be found out; the reason stands beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pointsman.doctor.cluster.objects import Objects
from pointsman.doctor.envoy import Filter, Host, Route, Upstream


@dataclass(frozen=True, kw_only=True)
class Focus:
    """Where to look: a namespace, a Gateway, one of its routes. Empty for whatever there is."""

    namespace: str = ""
    gateway: str = ""
    route: str = ""


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """What the gateway's Envoy says."""

    admin: str
    filters: tuple[Filter, ...] = ()
    routes: tuple[Route, ...] = ()
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)
    members: Mapping[str, tuple[Host, ...]] = field(default_factory=dict)
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What the gateway counted at one time."""

    asked: Mapping[str, int]
    """The counters of ext_proc; empty when the gateway hides them."""
    requests: Mapping[str, int]
    """Requests by cluster."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """The picker's port for Envoy, as a client finds it."""

    address: str
    reached: bool
    tls: bool = False
    alpn: str = ""
    http2: bool = False
    """Whether it answered in HTTP/2."""
    starts: datetime | None = None
    ends: datetime | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Health:
    """What the picker's gRPC health says."""

    address: str
    status: str
    """SERVING, NOT_SERVING, or empty when there was no answer."""
    why: str = ""


class Right(NamedTuple):
    """Something that an account must be allowed to do."""

    verb: str
    group: str
    resource: str
    namespace: str
    names: tuple[str, ...] = ()
    """The objects that it may be about, of which one is enough; empty for all."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''} in {self.namespace}"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One request through the gateway."""

    status: int | None
    """None when there was no answer."""
    answered: str = ""
    picked: str | None = None
    """The Pod that the picker chose: empty when it was not asked, None when that could not be found out."""
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Everything that was seen."""

    now: datetime
    objects: Objects = field(default_factory=Objects)
    focus: Focus = field(default_factory=Focus)
    unreachable: str = ""
    """Why the API server does not answer; empty when it does."""
    proxy: Proxy | None = None
    proxy_why: str = ""
    ports: tuple[Port, ...] = ()
    ports_why: str = ""
    """Why a port of the picker cannot be reached from here."""
    health: tuple[Health, ...] = ()
    rights: Mapping[Right, bool | None] = field(default_factory=dict)
    before: Counts | None = None
    after: Counts | None = None
    probes: tuple[Probe, ...] = ()
    """The same prompt, one request after the other."""
    probes_why: str = ""
    pick_why: str = ""
    """Why the picks of the probes are not known."""
