"""One HTTP request as ext_proc shows it: messages in, messages out, no socket, no clock, no await.

Answers keep Envoy's order in each direction: headers, then body chunks, then trailers. In FULL_DUPLEX_STREAMED mode the
body is ours: every byte that comes must go back, or the request hangs for ever. A policy that needs no body is asked as
soon as the headers are here, and chunks then pass straight through; one that needs it is asked at its end, and Envoy,
which does not wait for the header answer in this mode, sees nothing until then. In the other modes Envoy owns the body
and waits for each answer, so the pick is made on the headers whatever the policy wants.

Whatever happens, the reservation is freed: at the end of the response, or when the stream ends, for any reason.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from pointsman.epp.director import Director
from pointsman.epp.messages import (
    BodyMode,
    Incoming,
    Kind,
    Malformed,
    body_replies,
    continue_body,
    decode,
    headers_reply,
    immediate_reply,
    trailers_reply,
)
from pointsman.epp.pool import Reservation
from pointsman.epp.refusals import Refusal, TooLarge
from pointsman.epp.request import Request

DESTINATION = "x-gateway-destination-endpoint"
SERVED = "x-gateway-destination-endpoint-served"
SUBSET = "x-gateway-destination-endpoint-subset"
LB_NAMESPACE = "envoy.lb"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"
REQUEST_ID = "x-request-id"

_RESPONSE_HEADERS_REPLY = headers_reply(Kind.RESPONSE_HEADERS, set_headers=(("x-went-into-resp-headers", "true"),))
_REQUEST_TRAILERS_REPLY = trailers_reply(Kind.REQUEST_TRAILERS)
_RESPONSE_TRAILERS_REPLY = trailers_reply(Kind.RESPONSE_TRAILERS)


class OutOfOrder(Malformed):
    """A message that cannot come now."""


class Exchange:
    """The state of one request and its response."""

    __slots__ = (
        "_body", "_cause", "_director", "_fresh_id", "_headers", "_held", "_max_body", "_modes", "_reservation",
        "_subset", "finished",
    )  # fmt: skip

    def __init__(self, *, director: Director, fresh_id: Callable[[], str], max_body: int) -> None:
        self._director = director
        self._fresh_id = fresh_id
        self._max_body = max_body
        self._headers: dict[str, str] | None = None
        self._modes = (int(BodyMode.FULL_DUPLEX_STREAMED), int(BodyMode.FULL_DUPLEX_STREAMED))
        self._subset: tuple[str, ...] | None = None
        self._held: list[bytes] | None = None  # the body, while a policy waits for its end
        self._body = 0  # how much of it there was
        self._reservation: Reservation | None = None
        self._cause = "client-disconnect"  # until something else ends it
        self.finished = False

    def message(self, data: bytes) -> Sequence[bytes]:
        """Take one ProcessingRequest and return the ProcessingResponses that it causes.

        Raises Malformed when it is none, or comes out of order.
        """
        message = decode(data)
        kind = message.kind
        try:
            if kind == Kind.RESPONSE_BODY:
                return self._on_response_body(message)
            if kind == Kind.REQUEST_BODY:
                return self._on_request_body(message)
            if kind == Kind.REQUEST_HEADERS:
                return self._on_request_headers(message)
            if kind == Kind.RESPONSE_HEADERS:
                return self._on_response_headers(message)
            if kind == Kind.REQUEST_TRAILERS:
                return self._on_request_trailers(message)
            if kind == Kind.RESPONSE_TRAILERS:
                self._complete()
                return (_RESPONSE_TRAILERS_REPLY,)
        except Refusal as refusal:
            return self._refuse(refusal)
        return ()

    def half_closed(self) -> bool:
        """Envoy has no more to say: neither have we."""
        return False

    def closed(self) -> None:
        """Free what the request holds; the only place where a request that ends early is seen."""
        if self._reservation is not None:
            self._reservation.release()
        if self._headers is not None:
            self._director.ended(self._cause)

    # -- the request --------------------------------------------------------------------------------------------

    def _on_request_headers(self, message: Incoming) -> Sequence[bytes]:
        if self._headers is not None:
            raise OutOfOrder("request headers twice")
        self._headers = message.headers
        self._modes = message.body_modes() or self._modes
        self._read_subset(message)
        duplex = self._modes[0] == BodyMode.FULL_DUPLEX_STREAMED
        if not message.end and duplex and self._director.needs_body:
            self._held = []
            return ()
        return (self._pick(has_body=not message.end),)

    def _on_request_body(self, message: Incoming) -> Sequence[bytes]:
        if self._headers is None:
            raise OutOfOrder("request body before request headers")
        self._body += len(message.body)
        if self._body > self._max_body:
            raise TooLarge(f"the request body is larger than the {self._max_body} bytes that --max-body allows")
        if self._held is not None:
            self._held.append(message.body)
            self._read_subset(message)
            return self._let_go(end=True) if message.end else ()
        if self._modes[0] == BodyMode.FULL_DUPLEX_STREAMED:
            return body_replies(Kind.REQUEST_BODY, message.body, end=message.end)
        return (continue_body(Kind.REQUEST_BODY),)

    def _on_request_trailers(self, message: Incoming) -> Sequence[bytes]:
        if self._headers is None:
            raise OutOfOrder("request trailers before request headers")
        if self._held is None:
            return (_REQUEST_TRAILERS_REPLY,)
        self._read_subset(message)
        return [*self._let_go(end=False), _REQUEST_TRAILERS_REPLY]

    def _let_go(self, *, end: bool) -> list[bytes]:
        """Pick, now that the whole body is known, and send it on."""
        held, self._held = self._held or [], None
        return [self._pick(has_body=True), *body_replies(Kind.REQUEST_BODY, b"".join(held), end=end)]

    def _pick(self, *, has_body: bool) -> bytes:
        headers = self._headers or {}
        given = headers.get(REQUEST_ID)
        request_id = given or self._fresh_id()
        request = Request(id=request_id, headers=headers, subset=self._subset, has_body=has_body)
        decision, self._reservation = self._director.direct(request)
        if given:
            return _known_pick_reply(decision.destination)
        return _pick_reply(decision.destination, extra=((REQUEST_ID, request_id),))

    def _read_subset(self, message: Incoming) -> None:
        hint = (message.metadata(SUBSET_NAMESPACE) or {}).get(SUBSET)
        if isinstance(hint, list):
            self._subset = tuple(target for target in hint if isinstance(target, str))

    def _refuse(self, refusal: Refusal) -> Sequence[bytes]:
        self._cause = "refused"
        self.finished = True
        if self._reservation is not None:
            self._reservation.release()
        return (immediate_reply(refusal.status, headers=refusal.headers, body=refusal.body),)

    # -- the response -------------------------------------------------------------------------------------------

    def _on_response_headers(self, message: Incoming) -> Sequence[bytes]:
        served = (message.metadata(LB_NAMESPACE) or {}).get(SERVED)
        if self._reservation is not None:
            if isinstance(served, str):
                self._director.served(self._reservation, served)
            status = message.status
            self._reservation.answered(int(status) if status.isdecimal() else 0)
        if message.end:
            self._complete()
        return (_RESPONSE_HEADERS_REPLY,)

    def _on_response_body(self, message: Incoming) -> Sequence[bytes]:
        if self._reservation is not None:
            self._reservation.first_byte()
        if message.end:
            self._complete()
        if self._modes[1] == BodyMode.FULL_DUPLEX_STREAMED:
            return body_replies(Kind.RESPONSE_BODY, message.body, end=message.end)
        return (continue_body(Kind.RESPONSE_BODY),)

    def _complete(self) -> None:
        """The model server has said all: free its place now rather than when Envoy gets round to it."""
        self._cause = "natural"
        if self._reservation is not None:
            self._reservation.release()


def _pick_reply(destination: str, *, extra: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return the header answer that carries a pick: header and metadata from one value, so that they agree."""
    return headers_reply(
        Kind.REQUEST_HEADERS,
        set_headers=((DESTINATION, destination), *extra),
        clear_route_cache=True,
        metadata={LB_NAMESPACE: {DESTINATION: destination}},
    )


_known_pick_reply = lru_cache(maxsize=8192)(_pick_reply)
