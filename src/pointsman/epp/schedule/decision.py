"""What was decided about a request. Frozen: a policy decides, the stream acts on it.

`Outcome` is the scheduler's, as the profiles left it; `Decision` is what the stream needs of it. `Ahead` is what comes
before both where a service is asked first.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from pointsman.epp.plugins.api import Picked
from pointsman.epp.pool.member import Member
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.predictions import Predicted, PredictionQuestion
from pointsman.epp.request.request import Request
from pointsman.epp.schedule.explain import DecisionStep

AHEAD = "found-ahead"
"""The attribute of a request about which a service was asked: an `Ahead`. No plugin sees it."""


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a request to ask a service about it; it is not found out twice."""

    scheduler: object  # whose producers found it: another has others
    question: PredictionQuestion
    facts: Mapping[str, object]
    steps: Sequence[DecisionStep]

    def answered(self, request: Request, answer: Sequence[Predicted] | None) -> Request:
        """Return the request with all of this, and with the answer if there is one."""
        facts = {**self.facts, AHEAD: self}
        if answer is not None:
            facts[self.question.answer] = dict(zip(self.question.targets, answer, strict=True))
        return msgspec.structs.replace(request, attributes=facts)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A decision before it is carried out."""

    request: Request  # with what the producers found out
    results: Mapping[str, Picked | None]
    primary: str
    target: str = ""

    @property
    def picked(self) -> Picked:
        """What serves the request."""
        picked = self.results[self.primary]
        assert picked is not None, "a conclusion names a profile that has endpoints"
        return picked


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to send it to: the first, and in order those to try when it fails; and what else changes on the way."""

    members: Sequence[Member]
    target_model: str = ""  # what the model server is asked for
    set_headers: Sequence[tuple[str, str]] = ()  # on the request, for the model server's sidecar
    remove_headers: Sequence[str] = ()  # what the client must not say
    scores: Mapping[str, float] = {}  # by target, when they are to be published
    target: str = ""  # where it is sent when that is not the first member's own address
    answer: Callable[[EndpointView, str | None], Sequence[tuple[str, str]]] | None = None
    """What plugins add to the response's headers, given who answered and what the proxy said of it; None when none
    adds any.
    """
    learn: Callable[[float, float | None], None] | None = None
    """Takes the milliseconds to the first byte, and per further token, of the response; None where nobody cares."""
    report: Callable[[Mapping[str, object]], Mapping[str, Mapping[str, float]]] | None = None
    """What plugins tell the proxy, given what the response cost; None when none does."""

    @property
    def destination(self) -> str:
        """The value of `x-gateway-destination-endpoint`."""
        return self.target or ",".join([member.endpoint.target for member in self.members])
