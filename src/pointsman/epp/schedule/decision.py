"""What was decided about a request. Frozen: a policy decides, the stream acts on it."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from pointsman.epp.pool.member import Member
from pointsman.epp.pool.view import EndpointView


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to send it to: the first, and in order those to try when it fails; and what else changes on the way."""

    members: Sequence[Member]
    target_model: str = ""  # what the model server is asked for
    set_headers: Sequence[tuple[str, str]] = ()  # on the request, for the model server's sidecar
    remove_headers: Sequence[str] = ()  # what the client must not say
    scores: Mapping[str, float] = {}  # by target, when they are to be published
    target: str = ""  # where it is sent when that is not the first member's own address
    answer: Callable[[EndpointView], Sequence[tuple[str, str]]] | None = None
    """What plugins add to the response's headers, given who answered; None when none adds any."""

    @property
    def destination(self) -> str:
        """The value of `x-gateway-destination-endpoint`."""
        return self.target or ",".join([member.endpoint.target for member in self.members])
