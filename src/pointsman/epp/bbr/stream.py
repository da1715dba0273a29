"""One request as the router sees it: its body up to the members that matter, then everything as it comes.

In full duplex the body is ours: it is held until the members are here, and from then on passes chunk by chunk. A body
that came whole is read whole, and one that is not JSON is a 400; where the answer was given before the end, that is for
the model server to say. Where Envoy owns the body (BUFFERED) the headers are set with the answer to it.

Responses pass as they come. Where sessions are remembered the head waits for the response's model (`sessions`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from pointsman.core.budget import Account, Budget, Exhausted
from pointsman.epp.bbr.members import MemberScanner
from pointsman.epp.bbr.processors import Draft, Tally
from pointsman.epp.bbr.program import Program
from pointsman.epp.bbr.served import Served
from pointsman.epp.bbr.sessions import AnsweredBy
from pointsman.epp.body.jsonscan import NotJson, json_string, scan_members, splice_member
from pointsman.epp.extproc.deadlines import Deadlines
from pointsman.epp.extproc.messages import (
    BodyMode,
    Incoming,
    MessageKind,
    body_replies,
    change_body,
    continue_body,
    decode,
    headers_reply,
    immediate_reply,
    trailers_reply,
)
from pointsman.epp.request.refusals import BadRequest, Refusal, RequestTimeout, TooLarge, no_memory
from pointsman.wire.grpc import Push, Reply
from pointsman.wire.protobuf import Data

_NO_CHANGE = {kind: headers_reply(kind) for kind in (MessageKind.REQUEST_HEADERS, MessageKind.RESPONSE_HEADERS)}
_PART_BYTES = 64  # what a part costs beside its bytes
_REMEMBERED = 256  # characters of header values at most
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Routing:
    """What is shared by all requests: what to do, within which limits."""

    def __init__(
        self,
        program: Program,
        *,
        tally: Tally,
        budget: Budget,
        deadlines: Deadlines,
        streaming: bool,
        clock: Callable[[], float],
        max_body: int = 64 << 20,
    ) -> None:
        self.program = program
        self.reads: frozenset[str] = frozenset().union(*(each.reads for each in program.processors))
        self.session_headers = frozenset(each.header for each in program.sessions)
        self.tally = tally
        self.budget = budget
        self.deadlines = deadlines
        self.clock = clock
        self.max_body = max_body
        mode = BodyMode.FULL_DUPLEX_STREAMED if streaming else BodyMode.BUFFERED
        self.modes = (mode, mode)  # where Envoy does not say how it sends bodies

    def draft(self, members: dict[str, Any], *, received: Mapping[str, str]) -> Draft:
        """Return what is to become of a request. Raises Refusal when it is not to go on."""
        draft = Draft(members, received=received)
        for each in self.program.processors:
            each.process(draft)
        self.tally.success += 1
        return draft


class RoutedRequest:
    """The state of one request."""

    __slots__ = (
        *("_account", "_answered", "_answered_by", "_chosen", "_modes", "_parts", "_push", "_received", "_routing"),
        *("_scanner", "_served", "_size", "finished"),
    )

    def __init__(self, push: Push, *, routing: Routing) -> None:
        self._push = push
        self._routing = routing
        self._modes = routing.modes
        self._account: Account | None = None
        self._scanner: MemberScanner | None = None
        self._parts: list[Data] = []
        self._size = 0
        self._answered = False
        self._chosen: str | None = None  # the model that a selector chose
        self._received: Mapping[str, str] = _NO_HEADERS  # those that name sessions
        self._answered_by: AnsweredBy | None = None  # of a response whose model is wanted
        self._served: Served | None = None
        self.finished = False
        routing.deadlines.begin(self)

    def message(self, data: Data) -> Sequence[Reply]:
        """Take one ProcessingRequest and return the ProcessingResponses that it causes.

        Raises Malformed when it is none.
        """
        message = decode(data)
        kind = message.kind
        try:
            if kind == MessageKind.REQUEST_HEADERS:
                return self._on_headers(message)
            if kind == MessageKind.REQUEST_BODY:
                return self._on_body(message)
            if kind == MessageKind.REQUEST_TRAILERS:
                return [*self._at_trailers(), trailers_reply(kind)]
        except Refusal as refusal:
            return self._refuse(refusal)
        if kind == MessageKind.RESPONSE_HEADERS:
            return self._on_response_headers(message)
        if kind == MessageKind.RESPONSE_BODY:
            return self._on_response_body(message)
        if kind == MessageKind.RESPONSE_TRAILERS:
            return [*self._go_on(end=False), trailers_reply(kind)]
        return ()

    def half_closed(self) -> bool:
        """Envoy has no more to say: neither have we."""
        return False

    def closed(self) -> None:
        """Free what the request holds."""
        self._let_go()
        if self._served is not None:
            self._served.end()
            self._served = None

    def expire(self) -> None:
        """Answer a request whose body has not come in time."""
        seconds = self._routing.deadlines.seconds
        self._push(*self._refuse(RequestTimeout(f"the request was not complete within {seconds:g} s")))

    def _on_response_headers(self, message: Incoming) -> Sequence[Reply]:
        answered_by = self._answered_by
        if answered_by is None:
            return (self._response_headers(()),)
        told = answered_by.head(message.headers, end=message.end)
        if not answered_by.waits:
            self._answered_by = None
        return () if answered_by.waits and self._owns_response else (self._response_headers(told),)

    @property
    def _owns_response(self) -> bool:
        return self._modes[1] == BodyMode.FULL_DUPLEX_STREAMED

    def _response_headers(self, told: Sequence[tuple[str, str]]) -> bytes:
        name = self._routing.program.echo
        chosen = ((name, self._chosen),) if name and self._chosen is not None else ()
        if not chosen and not told:
            return _NO_CHANGE[MessageKind.RESPONSE_HEADERS]
        return headers_reply(MessageKind.RESPONSE_HEADERS, set_headers=(*chosen, *told))

    def _on_response_body(self, message: Incoming) -> Sequence[Reply]:
        kind, end = message.kind, message.end
        if self._served is not None:
            self._served.seen(message.body, end=end)
        answered_by = self._answered_by
        if answered_by is None:
            return body_replies(kind, bytes(message.body), end=end) if self._owns_response else (continue_body(kind),)
        told = answered_by.part(message.body, end=end)
        if self._owns_response:
            return () if answered_by.waits and self._may_keep(len(message.body)) else self._go_on(told, end=end)
        if not answered_by.waits:
            self._answered_by = None
        return (change_body(kind, set_headers=told),)

    def _may_keep(self, size: int) -> bool:
        """Account for a part of a response that waits; it waits no more when there is no room."""
        if self._account is None:
            budget = self._routing.budget
            self._account = budget.account("response", shed=lambda: self._push(*self._go_on(end=False)))
        try:
            self._account.hold(size + _PART_BYTES)
        except Exhausted:
            return False
        return True

    def _go_on(self, told: Sequence[tuple[str, str]] = (), *, end: bool) -> Sequence[Reply]:
        """Let a response go whose head has waited, and what came of its body."""
        answered_by, self._answered_by = self._answered_by, None
        if answered_by is None or not self._owns_response:
            return ()
        self._free()
        held = answered_by.take()
        body = body_replies(MessageKind.RESPONSE_BODY, held, end=end) if held or end else []
        return [self._response_headers(told), *body]

    def _on_headers(self, message: Incoming) -> Sequence[Reply]:
        self._modes = message.body_modes() or self._modes
        wanted = self._routing.session_headers
        if wanted:
            self._received = {name: value for name, value in message.headers.items() if name in wanted}
        if message.end:
            self._let_go()
            return (_NO_CHANGE[message.kind],)
        return () if self._full_duplex else (_NO_CHANGE[message.kind],)

    @property
    def _full_duplex(self) -> bool:
        return self._modes[0] == BodyMode.FULL_DUPLEX_STREAMED

    def _on_body(self, message: Incoming) -> Sequence[Reply]:
        kind = message.kind
        if self._answered:
            return body_replies(kind, message.body, end=message.end)
        if not message.end and self._full_duplex:
            return self._look(message.body)
        if message.end and not self._parts:  # it came in one piece, and need not be held
            self._parts.append(message.body)
            self._check_size(len(message.body))
        else:
            self._hold(message.body)
        if message.end or self._modes[0] == BodyMode.BUFFERED:
            return self._answer(_read(self._whole(), self._routing.reads), end=True)
        return (continue_body(kind),)

    def _look(self, part: Data) -> Sequence[Reply]:
        """Answer if all is here that is read, and else hold what there is."""
        if self._scanner is None:
            self._scanner = MemberScanner(self._routing.reads)
        self._scanner.feed(bytes(part))
        if not self._scanner.complete:
            self._hold(part)
            return ()
        self._parts.append(part)
        members = {name: value for name, raw in self._scanner.found.items() if (value := _value(raw)) is not None}
        return self._answer(members, end=False)

    def _at_trailers(self) -> Sequence[Reply]:
        """Answer a body that ends without saying so."""
        if self._answered or not self._full_duplex:
            return ()
        whole = self._whole()
        return self._answer(_read(whole, self._routing.reads) if whole else {}, end=False)

    def _answer(self, members: dict[str, Any], *, end: bool) -> Sequence[Reply]:
        draft = self._routing.draft(members, received=self._received)
        whole = self._whole() if draft.model is None else self._renamed(draft.model)
        self._answered = True
        self._begin(draft)
        self._let_go()
        headers = draft.headers
        if not self._full_duplex:
            renamed = whole if draft.model is not None else None
            return (change_body(MessageKind.REQUEST_BODY, set_headers=headers, body=renamed),)
        if end:
            headers = [("Content-Length", str(len(whole))), *headers]
        return [_routed(tuple(headers)), *body_replies(MessageKind.REQUEST_BODY, whole, end=end)]

    def _renamed(self, model: str) -> bytes:
        """Return the body so far with another model: where a scanner found the old one, or found none in the whole."""
        whole, name = bytes(self._whole()), json_string(model)
        if self._scanner is not None and "model" in self._scanner.spans:
            start, stop = self._scanner.spans["model"]
            return b"".join((whole[:start], name, whole[stop:]))
        return splice_member(whole, "model", name)

    def _begin(self, draft: Draft) -> None:
        self._chosen = draft.model
        model = self._routing.program.models.counted(draft.members.get("model"))
        if model is not None:
            self._served = Served(model, clock=self._routing.clock)
        remembers = self._routing.program.remembers
        if remembers:
            self._answered_by = AnsweredBy(remembers, received=self._received, sent=draft.members.get("model"))

    def _whole(self) -> Data:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _hold(self, part: Data) -> None:
        self._parts.append(part)
        self._size += len(part)
        self._check_size(self._size)
        routing = self._routing
        if self._account is None:
            self._account = routing.budget.account("request", shed=lambda: self._push(*self._refuse(no_memory())))
        try:
            self._account.hold(len(part) + _PART_BYTES)
        except Exhausted:
            raise no_memory() from None

    def _check_size(self, size: int) -> None:
        if size > self._routing.max_body:
            raise TooLarge(f"the request body is larger than {self._routing.max_body} bytes")

    def _let_go(self) -> None:
        self._parts = []
        self._scanner = None
        self._routing.deadlines.end(self)
        self._free()

    def _free(self) -> None:
        if self._account is not None:
            self._account.release()
            self._account = None

    def _refuse(self, refusal: Refusal) -> Sequence[Reply]:
        self._routing.tally.refused[refusal.code] += 1
        self.finished = True
        self._let_go()
        return (immediate_reply(refusal.status, headers=refusal.headers, body=refusal.body),)


def _routed(headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return the answer to request headers. There are few models, so it is remembered, unless it is long."""
    short = sum(len(value) for _, value in headers) <= _REMEMBERED
    return (_known if short else _set_headers)(headers)


def _set_headers(headers: tuple[tuple[str, str], ...]) -> bytes:
    return headers_reply(MessageKind.REQUEST_HEADERS, set_headers=headers, clear_route_cache=True)


_known = lru_cache(maxsize=1024)(_set_headers)


def _read(body: Data, wanted: frozenset[str]) -> dict[str, Any]:
    """Return members of a body that is whole, but for those that are null.

    Raises BadRequest when it is not JSON.
    """
    try:
        found = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = {}
        _refuse_what_is_no_object(bytes(body), found)
    values = {name: _value(bytes(found[name])) for name in wanted if name in found}
    return {name: value for name, value in values.items() if value is not None}


def _refuse_what_is_no_object(body: bytes, found: dict[str, msgspec.Raw]) -> None:
    """Read what the fast parser would not take; raise BadRequest in Go's words for what nobody takes."""
    try:
        for member in scan_members(body):
            found[member.key] = msgspec.Raw(body[member.start : member.stop])
    except NotJson as error:
        raise BadRequest(f"failed to parse request body: {error}") from None


def _value(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw.decode("utf-8", "replace")
