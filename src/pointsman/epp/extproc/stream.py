"""One HTTP request as ext_proc shows it: messages in, messages out, no socket, no await.

Answers keep Envoy's order in each direction: headers, then body chunks, then trailers. In FULL_DUPLEX_STREAMED mode the
body is ours: every byte that comes must go back, or the request hangs for ever. A request whose body nobody reads is
picked for as soon as its headers are here, and chunks then pass straight through; where the body matters the pick waits
for its end, and Envoy, which does not wait for the header answer in this mode, sees nothing until then. Where a
tokenizer or a prediction service is to be asked it waits a little longer: `message` then returns nothing, and what it
would have returned is pushed when the answer is here, or is known not to come. In the other modes Envoy owns the
body and waits for each answer, so the pick is made on the headers whatever one would like to know.

A response's body is looked at for its usage, where a parser reads that API. Where none does, Envoy is told to keep it:
it obeys where it owns both bodies (and `allow_mode_override` lets it), and not in full duplex.

Whatever happens, the reservation is freed: at the end of the response, or when the stream ends, for any reason.

A body that waits for its end, and headers that are large, are on the account of the process's budget: when that is
spent the largest request is answered with 429. One that is not complete in time is answered with 408.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from pointsman.core.budget import Account, Budget, Exhausted
from pointsman.core.logs import get_logger
from pointsman.core.numbers import whole
from pointsman.epp.body.intake import add_body, choose_parser
from pointsman.epp.body.parsers import Parser
from pointsman.epp.body.parts import Body, Reading
from pointsman.epp.body.rendering import TokenQuestion, question
from pointsman.epp.extproc.deadlines import Deadlines
from pointsman.epp.extproc.messages import (
    BodyMode,
    Incoming,
    Malformed,
    MessageKind,
    body_replies,
    continue_body,
    decode,
    headers_reply,
    immediate_reply,
    metadata_field,
    trailers_reply,
)
from pointsman.epp.extproc.rename import ResponseRenamer
from pointsman.epp.extproc.usage import ReadsUsage, UsageReader, usage_reader
from pointsman.epp.plugins.api import SERVED
from pointsman.epp.pool.pool import Reservation
from pointsman.epp.request.predictions import Predicted, PredictionQuestion, PredictionService
from pointsman.epp.request.refusals import Answer, Internal, Refusal, RequestTimeout, TooLarge, no_memory
from pointsman.epp.request.request import Needs, Rendered, Request
from pointsman.epp.request.rewrites import Rewritten
from pointsman.epp.schedule.decision import Ahead, Decision
from pointsman.epp.schedule.director import Director
from pointsman.wire.grpc import Push, Reply
from pointsman.wire.protobuf import Data, Value

log = get_logger(__name__)

DESTINATION = "x-gateway-destination-endpoint"
SUBSET = "x-gateway-destination-endpoint-subset"
SCORES = "x-gateway-destination-endpoint-scores"
LB_NAMESPACE = "envoy.lb"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"
REQUEST_ID = "x-request-id"

_WENT = ("x-went-into-resp-headers", "true")
_NOTHING = Needs()
_HEADER_BYTES = 200  # what a header costs beside its own bytes
_SMALL_HEADERS = 16 << 10  # bytes up to which they are not worth an account
_TARGET_BYTES = 64  # what a target of a subset costs beside its own bytes
_SMALL_SUBSET = 256
_OURS = (
    BodyMode.FULL_DUPLEX_STREAMED,
    BodyMode.NONE,
)  # modes in which Envoy cannot, or need not, be told to keep a body
_RESPONSE_HEADERS_REPLY = headers_reply(MessageKind.RESPONSE_HEADERS, set_headers=(_WENT,))
_REQUEST_TRAILERS_REPLY = trailers_reply(MessageKind.REQUEST_TRAILERS)
_RESPONSE_TRAILERS_REPLY = trailers_reply(MessageKind.RESPONSE_TRAILERS)


Ask = Callable[[TokenQuestion, Callable[[Rendered | None], None]], Callable[[], None]]
"""Asks a tokenizer service, hands the answer or None to a function later, and returns what makes it forget that."""


Told = Callable[[Sequence[Predicted] | None], None]


class Predicts(Protocol):
    """Asks prediction services."""

    def asks(self, service: PredictionService, /) -> bool:
        """Return whether it is worth while just now."""

    def ask(self, question: PredictionQuestion, done: Told, /) -> Callable[[], None]:
        """Hand the answer or None to a function later, and return what makes that not happen."""


class OutOfOrder(Malformed):
    """A message that cannot come now."""


class Exchange:
    """The state of one request and its response."""

    __slots__ = (
        "_account", "_ask", "_body", "_budget", "_bulk", "_cause", "_deadlines", "_decision", "_director", "_forget",
        "_fresh_id", "_headers", "_headers_kept", "_held", "_max_body", "_modes", "_needs", "_predictor", "_push",
        "_renamer", "_reservation", "_subset", "_target", "_usage", "finished",
    )  # fmt: skip

    def __init__(
        self,
        push: Push,
        *,
        director: Director,
        ask: Ask,
        predictor: Predicts,
        fresh_id: Callable[[], str],
        max_body: int,
        budget: Budget,
        deadlines: Deadlines,
    ) -> None:
        self._push = push
        self._budget = budget
        self._account: Account | None = None  # of what is kept of a request that is large, or slow to come
        self._deadlines = deadlines
        deadlines.begin(self)
        self._ask = ask
        self._predictor = predictor
        self._forget: Callable[[], None] | None = None  # while a service is asked
        self._director = director
        self._fresh_id = fresh_id
        self._max_body = max_body
        self._headers: dict[str, str] | None = None
        self._headers_kept = 0  # their bytes, where they are many
        self._bulk = 0  # … and those of a subset
        self._needs = _NOTHING
        self._modes: tuple[int, int] = (BodyMode.FULL_DUPLEX_STREAMED, BodyMode.FULL_DUPLEX_STREAMED)
        self._subset: tuple[str, ...] | None = None
        self._held: Body | None = None  # while the pick waits for the body's end
        self._body = 0  # how much of it there was
        self._target: tuple[str, Rewritten] | None = None  # a model, and what serves it
        self._decision: Decision | None = None
        self._reservation: Reservation | None = None
        self._renamer: ResponseRenamer | None = None
        self._usage: ReadsUsage = UsageReader()
        self._cause = "client-disconnect"  # until something else ends it
        self.finished = False

    def message(self, data: Data) -> Sequence[Reply]:
        """Take one ProcessingRequest and return the ProcessingResponses that it causes.

        Raises Malformed when it is none, or comes out of order.
        """
        message = decode(data)
        kind = message.kind
        try:
            if kind == MessageKind.RESPONSE_BODY:
                return self._on_response_body(message)
            if kind == MessageKind.REQUEST_BODY:
                return self._on_request_body(message)
            if kind == MessageKind.REQUEST_HEADERS:
                return self._on_request_headers(message)
            if kind == MessageKind.RESPONSE_HEADERS:
                return self._on_response_headers(message)
            if kind == MessageKind.REQUEST_TRAILERS:
                return self._on_request_trailers(message)
            if kind == MessageKind.RESPONSE_TRAILERS:
                return self._on_response_trailers()
        except Refusal as refusal:
            return self._refuse(refusal)
        except Answer as answer:
            return self._end_with(answer)
        return ()

    def half_closed(self) -> bool:
        """Envoy has no more to say: neither have we."""
        return False

    def closed(self) -> None:
        """Free what the request holds; the only place where a request that ends early is seen."""
        self._ask_no_more()
        self._deadlines.end(self)
        if self._account is not None:
            self._account.release()
        if self._reservation is not None:
            self._reservation.release()
        if self._headers is not None:
            self._director.ended(self._cause)

    def expire(self) -> None:
        """Answer a request whose body, or beginning, has not come in time."""
        limit = f"the request was not complete within the {self._deadlines.seconds:g} s that --body-timeout allows"
        self._give_up(RequestTimeout(limit))

    # -- the request --------------------------------------------------------------------------------------------

    def _on_request_headers(self, message: Incoming) -> Sequence[Reply]:
        if self._headers is not None:
            raise OutOfOrder("request headers twice")
        self._headers = message.headers
        kept = message.size + _HEADER_BYTES * len(self._headers)
        if kept > _SMALL_HEADERS:
            self._headers_kept = self._bulk = kept
            self._keep(kept)
        self._modes = message.body_modes() or self._modes
        self._read_subset(message)
        if message.end:
            return (self._pick(self._describe(has_body=False)),)
        self._needs = self._director.needs
        if self._modes[0] == BodyMode.FULL_DUPLEX_STREAMED and self._needs.body:
            parser = self._choose_parser()
            if parser.reads:
                if parser.unusual:
                    self._usage = usage_reader(parser, path=self._headers.get(":path", ""))
                self._held = Body(needs=self._needs, parser=parser, headers=self._headers, target_of=self._target_model)
                return ()
        return (self._pick(self._describe(has_body=True)),)

    def _choose_parser(self) -> Parser:
        try:
            return choose_parser(self._headers or {}, needs=self._needs)
        except Refusal as refusal:
            raise self._counted(refusal) from None

    def _on_request_body(self, message: Incoming) -> Sequence[Reply]:
        if self._headers is None:
            raise OutOfOrder("request body before request headers")
        self._body += len(message.body)
        if self._body > self._max_body:
            limit = f"the request body is larger than the {self._max_body} bytes that --max-body allows"
            raise self._counted(TooLarge(limit))
        if self._held is not None:
            before = self._held.kept
            self._held.add(message.body, last=message.end)
            self._read_subset(message)
            if message.end:
                return self._let_go(end=True)
            self._keep(self._held.kept - before)
            return ()
        if message.end:
            self._sized()
        if self._modes[0] == BodyMode.FULL_DUPLEX_STREAMED:
            return body_replies(MessageKind.REQUEST_BODY, message.body, end=message.end)
        return (continue_body(MessageKind.REQUEST_BODY),)

    def _on_request_trailers(self, message: Incoming) -> Sequence[Reply]:
        if self._headers is None:
            raise OutOfOrder("request trailers before request headers")
        if self._held is None:
            self._sized()
            return (_REQUEST_TRAILERS_REPLY,)
        self._read_subset(message)
        return self._let_go(end=False)

    def _sized(self) -> None:
        """Tell the size of a body that passed unread."""
        meter = self._reservation.meter if self._reservation is not None else None
        if meter is not None:
            meter.sized(self._body)

    def _let_go(self, *, end: bool) -> Sequence[Reply]:
        """Pick, now that the whole body is known, and send it on, with trailers behind it where these end it."""
        held, self._held = self._held, None
        try:
            reading = held.read() if held is not None else None
        except Refusal as refusal:
            raise self._counted(refusal) from None
        if reading is None:  # HTTP/1.1 would have said so with its headers: the model server may tell what it thinks
            return [self._pick(self._describe(has_body=False)), *_passed_on(b"", end=end)]
        service = self._needs.tokenizer
        asked = None if service is None else question(reading, headers=self._headers or {}, service=service)
        if asked is None:
            return self._send_on(reading, rendered=None, end=end)
        self._begin_to_wait(reading)
        self._forget = self._ask(
            asked, lambda rendered: self._resume(lambda: self._send_on(reading, rendered=rendered, end=end))
        )
        return ()

    def _begin_to_wait(self, reading: Reading) -> None:
        """Wait for nobody's body any more, but hold it: also what of it came in this very message."""
        self._deadlines.end(self)
        held = self._account.size if self._account is not None else 0
        self._keep(max(0, self._headers_kept + len(reading.body) - held))

    def _resume(self, go_on: Callable[[], Sequence[Reply]]) -> None:
        """Resume a request that waited for a service."""
        self._forget = None
        try:
            replies = go_on()
        except Refusal as refusal:
            replies = self._refuse(refusal)
        except Answer as answer:
            replies = self._end_with(answer)
        except Exception:  # nobody above us would end the stream
            log.exception("stream: a request that waited for a service failed")
            replies = self._refuse(Internal("internal error"))
        if replies:
            self._push(*replies)

    def _wait_for_predictions(self, request: Request, reading: Reading, *, ahead: Ahead, end: bool) -> None:
        def go_on(answer: Sequence[Predicted] | None) -> Sequence[Reply]:
            return self._send_on(reading, rendered=None, end=end, request=ahead.answered(request, answer))

        self._begin_to_wait(reading)
        self._forget = self._predictor.ask(ahead.question, lambda answer: self._resume(lambda: go_on(answer)))

    def _send_on(
        self, reading: Reading, *, rendered: Rendered | None, end: bool, request: Request | None = None
    ) -> Sequence[Reply]:
        """Pick for a request whose body is known, having asked how long endpoints would take where that is wanted.

        A request that has asked comes here again with what it was told.
        """
        target = self._target_of(reading.model)
        if request is None:
            request = add_body(self._describe(has_body=True), reading, target=target, rendered=rendered)
            service = self._needs.predictor
            if service is not None and self._predictor.asks(service):
                ahead = self._director.ahead(request)
                if ahead is not None:
                    self._wait_for_predictions(request, reading, ahead=ahead, end=end)
                    return ()
        if self._account is not None:
            self._account.set(self._headers_kept)
        headers = self._pick(request)
        body = reading.body
        if target.model and target.model != request.model:
            body = reading.naming(target.model)
            if request.model and body is not reading.body:
                self._renamer = ResponseRenamer(served=target.model, asked=request.model)
        return [headers, *_passed_on(body, end=end)]

    def _target_of(self, model: str) -> Rewritten:
        """Return which model serves requests for one: drawn once, however often it is asked."""
        if self._target is None or self._target[0] != model:
            self._target = (model, self._director.target_of(model, headers=self._headers or {}))
        return self._target[1]

    def _target_model(self, model: str) -> str:
        return self._target_of(model).model

    def _ask_no_more(self) -> None:
        forget, self._forget = self._forget, None
        if forget is not None:
            forget()

    def _describe(self, *, has_body: bool) -> Request:
        headers = self._headers or {}
        return Request(
            id=headers.get(REQUEST_ID) or self._fresh_id(),
            headers=headers,
            subset=self._subset,
            has_body=has_body,
            bulk=self._bulk,
        )

    def _pick(self, request: Request) -> bytes:
        self._deadlines.end(self)
        decision, self._reservation = self._director.direct(request)
        self._decision = decision
        own_id = () if REQUEST_ID in request.headers else ((REQUEST_ID, request.id),)
        if not own_id and not decision.set_headers and not decision.remove_headers and not decision.scores:
            return _known_pick_reply(decision.destination)
        return _pick_reply(
            decision.destination,
            extra=(*decision.set_headers, *own_id),
            remove=decision.remove_headers,
            scores=decision.scores,
        )

    def _read_subset(self, message: Incoming) -> None:
        hint = (message.metadata(SUBSET_NAMESPACE) or {}).get(SUBSET)
        if isinstance(hint, list):
            self._subset = tuple(target for target in hint if isinstance(target, str))
            if len(self._subset) > _SMALL_SUBSET:
                self._bulk = self._headers_kept + message.size + _TARGET_BYTES * len(self._subset)

    def _keep(self, size: int) -> None:
        """Account for memory that is kept until more comes; the request is refused when there is no room."""
        if self._account is None:
            self._account = self._budget.account("request", shed=lambda: self._give_up(no_memory()))
        try:
            self._account.hold(size)
        except Exhausted:
            self._held = None
            raise self._counted(no_memory()) from None

    def _give_up(self, refusal: Refusal) -> None:
        """Answer a request that nothing has come for just now."""
        self._held = None
        self._ask_no_more()
        self._push(*self._refuse(self._counted(refusal)))

    def _counted(self, refusal: Refusal) -> Refusal:
        """Count a refusal that is ours and not the director's."""
        self._director.refused(self._describe(has_body=True), refusal)
        return refusal

    def _end_with(self, answer: Answer | Refusal) -> Sequence[Reply]:
        """Answer the client in the model server's place."""
        self.finished = True
        self._held = None
        self._cause = "natural"
        return (immediate_reply(answer.status, headers=answer.headers, body=answer.body),)

    def _refuse(self, refusal: Refusal) -> Sequence[Reply]:
        self._cause = "refused"
        self.finished = True
        self._held = None
        if self._reservation is not None:
            self._reservation.release()
        return (immediate_reply(refusal.status, headers=refusal.headers, body=refusal.body),)

    # -- the response -------------------------------------------------------------------------------------------

    def _on_response_headers(self, message: Incoming) -> Sequence[Reply]:
        self._ask_no_more()  # Envoy itself has answered, and waits for no pick any more
        said = message.metadata(LB_NAMESPACE)
        served = said.get(SERVED) if said is not None else None
        status = message.status
        if self._reservation is not None:
            if isinstance(served, str):
                self._director.served(self._reservation, served)
            code = whole(status, most=999)
            if code is not None:
                self._reservation.answered(code)
        if self._renamer is not None and "content-encoding" in message.headers:
            self._renamer = None  # compressed: there is nothing to find in it
        if message.end:
            self._complete()
        spare = self._modes[1] not in _OURS and not self._reads_answer()
        if spare or self._modes[1] == BodyMode.NONE:
            self._see_no_more()
        named = None if said is None else served if isinstance(served, str) else ""
        return (self._response_headers_reply(spare=spare, served=named),)

    def _reads_answer(self) -> bool:
        """Return whether anything in the response's body matters."""
        try:
            return self._needs.body and bool(choose_parser(self._headers or {}, needs=self._needs).reads)
        except Refusal:
            return False

    def _see_no_more(self) -> None:
        """The response has begun, and its end will be the stream's."""
        self._cause = "natural"
        if self._reservation is not None:
            self._reservation.first_byte()

    def _response_headers_reply(self, *, spare: bool, served: str | None) -> bytes:
        decision, member = self._decision, self._reservation.member if self._reservation is not None else None
        answer = decision.answer if decision is not None else None
        added = answer(member.view, served) if answer is not None and member is not None else ()
        removed = ("content-length",) if self._renamer is not None else ()
        if not added and not removed and not spare:
            return _RESPONSE_HEADERS_REPLY
        return headers_reply(
            MessageKind.RESPONSE_HEADERS, set_headers=(_WENT, *added), remove_headers=removed, spare_body=spare
        )

    def _on_response_body(self, message: Incoming) -> Sequence[Reply]:
        body = bytes(message.body)
        self._usage.feed(body, end=message.end)
        if self._reservation is not None:
            self._reservation.chunk(body)
        told = b""
        if message.end:
            if self._decision is not None and self._decision.report is not None:
                told = self._report()
            self._complete()
        if self._modes[1] != BodyMode.FULL_DUPLEX_STREAMED:
            return (continue_body(MessageKind.RESPONSE_BODY) + told,)
        if self._renamer is not None:
            body = self._renamer.feed(body, end=message.end)
            if not body and not message.end:
                return ()
        replies = body_replies(MessageKind.RESPONSE_BODY, body, end=message.end)
        if told:
            replies[-1] = bytes(replies[-1]) + told
        return replies

    def _report(self) -> bytes:
        """Return what plugins tell the proxy about the response, as it follows the last message; mostly nothing."""
        usage, decision = self._usage.usage, self._decision
        if decision is None or decision.report is None or usage is None:
            return b""
        return metadata_field(decision.report(usage.to_json()))

    def _on_response_trailers(self) -> Sequence[Reply]:
        told = self._report()
        self._complete()
        rest = self._renamer.feed(b"", end=True) if self._renamer is not None else b""
        held = body_replies(MessageKind.RESPONSE_BODY, rest, end=False) if rest else []
        return [*held, _RESPONSE_TRAILERS_REPLY + told]

    def _complete(self) -> None:
        """The model server has said all: free its place now rather than when Envoy gets round to it."""
        self._cause = "natural"
        if self._reservation is not None:
            usage, meter = self._usage.usage, self._reservation.meter
            if usage is not None and meter is not None:
                meter.used(prompt=usage.prompt, output=usage.completion, cached=usage.cached)
            if meter is not None and self._decision is not None and self._decision.learn is not None:
                took = meter.took()
                if took is not None:
                    self._decision.learn(*took)
            self._reservation.release()


def _passed_on(body: Data, *, end: bool) -> list[Reply]:
    """Return the answers that pass a request's body on; trailers end it where it has not ended by itself."""
    replies = body_replies(MessageKind.REQUEST_BODY, body, end=end)
    return replies if end else [*replies, _REQUEST_TRAILERS_REPLY]


def _pick_reply(
    destination: str,
    *,
    extra: Sequence[tuple[str, str]] = (),
    remove: Sequence[str] = (),
    scores: Mapping[str, float] | None = None,
) -> bytes:
    """Return the header answer that carries a pick: header and metadata from one value, so that they agree."""
    facts: dict[str, Value] = {DESTINATION: destination}
    if scores:
        facts[SCORES] = dict(scores)
    return headers_reply(
        MessageKind.REQUEST_HEADERS,
        set_headers=((DESTINATION, destination), *extra),
        remove_headers=remove,
        clear_route_cache=True,
        metadata={LB_NAMESPACE: facts},
    )


_known_pick_reply = lru_cache(maxsize=8192)(_pick_reply)
