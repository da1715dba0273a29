"""A model server that can be picked: a name, an address, labels. Immutable; what changes about it lives in `pool`."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One address that Envoy can be sent to."""

    name: str
    address: str
    port: int
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    pod: str = ""  # whose endpoint it is, where there are pods: each has an endpoint per port
    node: str = ""  # the address of the machine that it runs on, where that is known

    @cached_property
    def target(self) -> str:
        """The `ip:port` of the destination header; IPv6 in brackets."""
        return with_port(self.address, self.port)


def with_port(address: str, port: int) -> str:
    """Return `address:port`; IPv6 in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def host_of(target: str) -> str:
    """Return the address of an `ip:port` or a bare address, in its shortest spelling."""
    bare = target
    if target.startswith("["):
        bare = target[1:].partition("]")[0]
    elif target.count(":") == 1:
        bare = target.partition(":")[0]
    try:
        return ipaddress.ip_address(bare).compressed
    except ValueError:
        return bare
