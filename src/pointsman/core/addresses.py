"""Where a service is, from the URL that people write."""

from typing import NamedTuple
from urllib.parse import urlsplit


class ServiceAddress(NamedTuple):
    """A server without TLS, and what all its paths begin with."""

    host: str
    port: int
    prefix: str = ""

    @property
    def authority(self) -> str:
        """The address as a `host` header has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(url: str) -> ServiceAddress:
    """Return where a URL leads.

    Raises ValueError when it is not `http://host:port`, with a path or without.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme == "http" and parts.hostname and parts.port != 0 and not parts.query
        if good and parts.path.isascii() and parts.path.isprintable() and " " not in parts.path:
            return ServiceAddress(parts.hostname or "", parts.port or 80, parts.path.rstrip("/"))
    except ValueError:
        pass
    raise ValueError(f"must be http://host:port, not {url!r}")
