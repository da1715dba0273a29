"""One request's place at an endpoint, from its pick to its end, and what is learnt from it on the way.

A reservation is released exactly once, however its request ends, and it belongs to the *member*, not the address: an
endpoint that is removed and comes back starts at zero while the old requests still end quietly.
"""

from typing import Protocol

from pointsman.epp.pool.ejection import StandingState
from pointsman.epp.pool.member import Member

_PROBE = StandingState.PROBE  # naming an enum's member is dear on Python 3.11


class CountsRequest(Protocol):
    """Counts what happens to one request."""

    def sized(self, size: int) -> None:
        """Take the size of a request's body that was not read."""

    def answered(self, status: int) -> None:
        """Take the status of the response."""

    def chunk(self, body: bytes) -> None:
        """Take a piece of the response's body."""

    def used(self, *, prompt: int, output: int, cached: int | None = None) -> None:
        """Take the tokens that the model server says it used."""

    def took(self) -> tuple[float, float | None] | None:
        """Return the milliseconds to the first byte, and per further token of a stream; None of what failed."""

    def ended(self) -> None:
        """Take the end, once."""


class Reservation:
    """One request's place at an endpoint, from its pick to its end, and what is learnt from it on the way."""

    __slots__ = ("_media", "_member", "_probe", "_tokens", "meter", "sent_to")

    def __init__(self, member: Member, *, tokens: int = 0, media: int = 0) -> None:
        self._member: Member | None = member
        self._tokens = tokens
        self._media = media
        self._probe = member.standing.state is _PROBE
        self.meter: CountsRequest | None = None
        self.sent_to = member.endpoint.target  # another where one address stands before several endpoints
        member.picks += 1
        member.enter(tokens, media)
        if self._probe:
            member.probe(+1)

    @property
    def member(self) -> Member | None:
        """Where the place is; None when it is free."""
        return self._member

    def move(self, member: Member) -> None:
        """Follow the request to the endpoint that really serves it: Envoy could not reach the one we picked."""
        old = self._member
        if old is None or old is member:
            return
        self._end_probe(old)
        old.leave(self._tokens, self._media)
        old.judge(ok=False, connection=True)
        member.enter(self._tokens, self._media)
        self._member = member

    def answered(self, status: int) -> None:
        """Note the status of the response; 501 says what the server cannot do, not that it fails."""
        if self._member is not None:
            self._member.judge(ok=status < 500 or status == 501)
            self._end_probe(self._member)
        if self.meter is not None:
            self.meter.answered(status)

    def chunk(self, body: bytes) -> None:
        """Note a piece of the response's body; the first one ends the prefill."""
        self.first_byte()
        if self.meter is not None:
            self.meter.chunk(body)

    def first_byte(self) -> None:
        """The prompt is prefilled: its tokens weigh no more."""
        if self._member is not None and self._tokens:
            self._member.prefilled(self._tokens, self._media)
            self._tokens = self._media = 0

    def release(self) -> None:
        """Free the place; harmless when it is free already."""
        member, self._member = self._member, None
        if member is not None:
            self._end_probe(member)
            member.leave(self._tokens, self._media)
            if self.meter is not None:
                self.meter.ended()

    def _end_probe(self, member: Member) -> None:
        if self._probe:
            self._probe = False
            member.probe(-1)
