"""A request as policies see it, and what they answer. Both are frozen: a policy decides, it does not act."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pointsman.epp.pool import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request on its way to a model server."""

    id: str
    headers: Mapping[str, str]
    subset: tuple[str, ...] | None = None  # the proxy's hint; None when it gave none
    has_body: bool = True

    @property
    def path(self) -> str:
        """The path without its query."""
        return self.headers.get(":path", "").partition("?")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whom to send it to: the first, and in order those to try when it fails; and why."""

    members: Sequence[Member]
    reason: str

    @property
    def destination(self) -> str:
        """The value of `x-gateway-destination-endpoint`."""
        return ",".join([member.endpoint.target for member in self.members])
