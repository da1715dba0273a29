"""Where something listens. The one spelling of `ip:port`, for Envoy, the picker and people alike."""

import ipaddress
from dataclasses import dataclass
from typing import Any

from pointsman.core.numbers import whole


@dataclass(frozen=True, order=True)
class Address:
    """An IP address or a host name, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(text: str) -> Address:
    """Return the address in `http://ip:port` or `ip:port`."""
    host, _, port = text.removeprefix("http://").rstrip("/").rpartition(":")
    return Address(host.strip("[]"), whole(port, most=65_535) or 0)


def is_ip(host: str) -> bool:
    """Tell an address from a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def socket_address(address: Address) -> dict[str, Any]:
    """Return the address as Envoy writes it."""
    return {"socket_address": {"address": address.host, "port_value": address.port}}
