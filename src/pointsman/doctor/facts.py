"""What was seen of a stack on this machine, as plain values. None is what could not be found out; `checks` knows what
that means.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.doctor.envoy import Filter, Host


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """What Envoy's admin says."""

    filters: tuple[Filter, ...]
    clusters: Mapping[str, tuple[Host, ...]]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """An endpoint as the picker knows it."""

    address: str
    age: float | None
    """Seconds since its metrics were read; None when they never were."""
    standing: str = "in"
    role: str = ""
    """The stage that it serves, such as prefill; empty for all."""


@dataclass(frozen=True, kw_only=True)
class Picker:
    """What the picker's own pages say."""

    health: str
    """`ok`, or what keeps it from serving."""
    endpoints: tuple[Seen, ...]


@dataclass(frozen=True, kw_only=True)
class Server:
    """A model server as whoever runs it sees it."""

    name: str
    address: str
    state: str


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One request through the gateway."""

    status: int | None
    """None when there was no answer."""
    answered: str = ""
    picked: str = ""
    """Address that the picker chose; empty when it was not asked."""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Everything that was seen."""

    running: bool
    admin: str = ""
    """Where Envoy is asked; empty for a stack without a gateway."""
    metrics: str = ""
    """Where the picker is asked; empty for a stack without one."""
    logs: str = ""
    gateway_log: str = "envoy"
    picker_log: str = "picker"
    problems: tuple[str, ...] = ()
    servers: tuple[Server, ...] = ()
    gateway: Gateway | None = None
    picker: Picker | None = None
    probes: tuple[Probe, ...] = ()
    """The same prompt, one request after the other."""
