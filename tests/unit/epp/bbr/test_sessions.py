"""Sessions: who served them, who goes by it, and what is read of responses to know it."""

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from tests.clock import Clock
from tests.unit.epp.bbr.test_stream import Talk

from pointsman.core.values import check
from pointsman.epp.bbr.models import Model
from pointsman.epp.bbr.sessions import SessionAffinity, SessionParameters, Sessions
from pointsman.epp.bbr.stream import RoutedRequest

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- {type: model-selector}
- {type: session-affinity, parameters: {sessionIdKey: X-Conversation}}
- {type: request-metadata-extractor}
profiles:
- name: default
  plugins:
    request: [{pluginRef: model-selector}, {pluginRef: session-affinity, weight: 1}]
    response: [{pluginRef: session-affinity}]
datalayer: {extractors: [{pluginRef: request-metadata-extractor}]}
"""
MODELS = '{"models": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}'
HEADER = "x-conversation"


def affinity(clock: Clock | None = None, **parameters: Any) -> SessionAffinity:
    checked = check(SessionParameters, parameters, path="")
    assert checked.value is not None, checked.problems
    return SessionAffinity(checked.value, clock=clock or Clock(), rng=random.Random(1))


MODEL = [Model(name) for name in "abc"]


def test_the_model_that_served_a_session_is_preferred() -> None:
    plugin = affinity()
    mine = {"x-session-id": "s"}
    assert plugin.score({}, MODEL) == [0, 0, 0], "no session"
    assert plugin.score(mine, MODEL) == [0, 0, 0], "a new one"
    assert plugin.answered(mine, "b") == ("x-session-id", "s")
    assert plugin.score(mine, MODEL) == [0, 1, 0]
    assert plugin.score({"x-session-id": "other"}, MODEL) == [0, 0, 0]
    assert plugin.score(mine, [MODEL[0], MODEL[2]]) == [0, 0], "it is no candidate"
    plugin.answered(mine, "c")
    assert plugin.score(mine, MODEL) == [0, 0, 1], "the last one counts"
    assert (plugin.hits, plugin.misses) == (3, 2)


def test_a_client_without_a_session_is_given_one() -> None:
    plugin = affinity(sessionIdKey="X-S")
    (name, first), (_, second) = plugin.answered({}, "a"), plugin.answered({}, "b")
    assert name == "x-s"
    assert len({first, second}) == 2
    assert len(first) == 36
    assert plugin.score({"x-s": first}, MODEL) == [1, 0, 0]


@pytest.mark.parametrize("parameters", [{}, {"sessionIdKey": "", "maxSessions": 0, "ttlSeconds": -1}])
def test_defaults(parameters: dict[str, Any]) -> None:
    given = check(SessionParameters, parameters, path="").value
    assert given is not None
    assert (given.session_id_key, given.max_sessions, given.ttl_seconds) == ("x-session-id", 10_000, 3600)


def test_of_too_many_the_least_used_goes() -> None:
    sessions = Sessions(most=3, seconds=10, clock=Clock())
    for name in "abc":
        sessions.bind(name, f"m-{name}")
    assert sessions.model_of("a") == "m-a"
    sessions.bind("d", "m-d")
    assert [sessions.model_of(name) for name in "abcd"] == ["m-a", "", "m-c", "m-d"]
    assert (len(sessions), sessions.evictions) == (3, 1)


def test_a_session_is_forgotten_in_its_time_which_begins_anew_with_each_response() -> None:
    clock = Clock()
    sessions = Sessions(most=3, seconds=10, clock=clock)
    sessions.bind("a", "m")
    sessions.bind("b", "m")
    clock.now += 10
    assert sessions.model_of("a") == "m"
    sessions.bind("a", "m")
    clock.now += 1
    assert (sessions.model_of("a"), sessions.model_of("b")) == ("m", "")
    clock.now += 10
    assert (len(sessions), sessions.evictions) == (0, 2)


def test_what_an_id_costs_does_not_depend_on_its_length() -> None:
    sessions = Sessions(most=3, seconds=10, clock=Clock())
    for at in range(2):
        sessions.bind("x" * 50_000 + str(at), f"m{at}")
    assert [sessions.model_of("x" * 50_000 + str(at)) for at in range(2)] == ["m0", "m1"]
    assert max(len(key) for key in sessions._known) <= 64


class Chat(Talk):
    """A client with a session, and who answers it."""

    def turn(self, session: str = "") -> str:
        """Send a request; return the model that it was sent to."""
        self.request = RoutedRequest(self._push, routing=self.request._routing)
        entries = [base_pb2.HeaderValue(key=HEADER, raw_value=session.encode())] if session else []
        self.say(request_headers=pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=entries)))
        replies = self.body(b'{"model": "auto"}', end=True)
        sent = b"".join(each.request_body.response.body_mutation.streamed_response.body for each in replies[1:])
        return str(json.loads(sent or replies[0].request_body.response.body_mutation.body)["model"])

    def head(self, headers: Mapping[str, str] | None = None, *, end: bool = False) -> list[pb.ProcessingResponse]:
        rows = {":status": "200", "content-type": "application/json", **(headers or {})}
        entries = [base_pb2.HeaderValue(key=name, raw_value=value.encode()) for name, value in rows.items()]
        return self.say(response_headers=pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=entries), end_of_stream=end))

    def part(self, body: bytes, *, end: bool = False) -> list[pb.ProcessingResponse]:
        return self.say(response_body=pb.HttpBody(body=body, end_of_stream=end))


def told(reply: pb.ProcessingResponse) -> dict[str, str]:
    kind = str(reply.WhichOneof("response"))
    rows = getattr(reply, kind).response.header_mutation.set_headers
    return {each.header.key: each.header.raw_value.decode() for each in rows}


def passed(replies: list[pb.ProcessingResponse]) -> tuple[bytes, bool]:
    chunks = [each.response_body.response.body_mutation.streamed_response for each in replies]
    return b"".join(chunk.body for chunk in chunks), any(chunk.end_of_stream for chunk in chunks)


def chat(**options: Any) -> Chat:
    return Chat(config=CONFIG, models=MODELS, **options)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_session_stays_with_the_model_that_its_response_names(size: int) -> None:
    talk, body = chat(), b'{"id": "x", "usage": {"model": "no"}, "model": "b", "choices": []}'
    for turn in range(4):
        sent = talk.turn("s-1")
        assert turn == 0 or sent == "b"
        replies = talk.head()
        assert replies == [], "its head waits for the model"
        for at in range(0, len(body), size):
            replies += talk.part(body[at : at + size], end=at + size >= len(body))
        assert told(replies[0]) == {HEADER: "s-1"}
        assert passed(replies[1:]) == (body, True)
    assert {talk.turn(f"s-{at}") for at in range(2, 40)} > {"b"}, "others go where they like"


def test_the_head_goes_as_soon_as_the_model_is_here() -> None:
    talk = chat()
    talk.turn("s")
    talk.head()
    assert talk.part(b'{"id":"x","mod') == []
    first, body = talk.part(b'el":"a","choices":[')
    assert told(first) == {HEADER: "s"}
    assert passed([body]) == (b'{"id":"x","model":"a","choices":[', False)
    assert passed(talk.part(b"]}", end=True)) == (b"]}", True)


def test_an_id_that_the_client_did_not_have_is_told_and_counts_next_time() -> None:
    talk = chat()
    talk.turn()
    talk.head()
    session = told(talk.part(b'{"model":"c"}', end=True)[0])[HEADER]
    assert [talk.turn(session) for _ in range(5)] == ["c"] * 5


@pytest.mark.parametrize(
    "body", [b'{"error":{"message":"no"}}', b"<html>", b"", b'{"model":7}', b'{"model":""}', b'{"model":null}', b"[1]"]
)
def test_a_response_that_names_no_model_passes_and_binds_nothing(body: bytes) -> None:
    talk = chat()
    talk.turn("s")
    assert talk.head() == []
    first, *rest = talk.part(body, end=True)
    assert first.HasField("response_headers")
    assert told(first) == {}
    assert passed(rest) == (body, True)
    assert len(talk.program.sessions[0].sessions) == 0


def test_a_long_response_without_a_model_is_not_held() -> None:
    talk, part = chat(), b" " * 30_000
    talk.turn("s")
    talk.head()
    assert talk.part(part) == talk.part(part) == []
    first, *rest = talk.part(part)
    assert told(first) == {}
    assert passed(rest) == (part * 3, False)
    assert passed(talk.part(b'{"model":"a"}', end=True)) == (b'{"model":"a"}', True)


@pytest.mark.parametrize(
    "headers", [{"content-type": "text/event-stream; charset=utf-8"}, {"content-encoding": "gzip"}]
)
def test_a_stream_does_not_wait_and_counts_for_the_model_that_was_asked(headers: dict[str, str]) -> None:
    talk = chat()
    asked = talk.turn("s")
    (head,) = talk.head(headers)
    assert told(head) == {HEADER: "s"}
    assert passed(talk.part(b"data: {}\n\n")) == (b"data: {}\n\n", False)
    assert [talk.turn("s") for _ in range(5)] == [asked] * 5


def test_a_failed_stream_binds_nothing() -> None:
    talk = chat()
    talk.turn("s")
    (head,) = talk.head({"content-type": "text/event-stream", ":status": "503"})
    assert told(head) == {}


def test_trailers_and_responses_without_a_body() -> None:
    talk = chat()
    talk.turn("s")
    assert len(talk.head(end=True)) == 1
    talk.turn("s")
    talk.head()
    talk.part(b'{"mod')
    kinds = [each.WhichOneof("response") for each in talk.say(response_trailers=pb.HttpTrailers())]
    assert kinds == ["response_headers", "response_body", "response_trailers"]


def test_where_envoy_owns_the_response_the_header_comes_with_the_answer_to_its_body() -> None:
    talk = chat(streaming=False)
    talk.turn("s")
    (head,) = talk.head()
    assert told(head) == {}
    (reply,) = talk.part(b'{"model":"b"}', end=True)
    assert told(reply) == {HEADER: "s"}
    assert not reply.response_body.response.HasField("body_mutation")
    assert talk.turn("s") == "b"


def test_what_waits_is_on_the_budget_and_goes_on_when_that_is_spent() -> None:
    talk = chat()
    talk.turn("s")
    talk.head()
    start = b'{"id":"' + b"x" * 60_000
    assert talk.part(start) == []
    assert talk.budget.held >= len(start)
    talk.pushed.clear()
    others = [talk.budget.account("other", shed=lambda: None) for _ in range(talk.budget.limit // 30_000)]
    for each in others:
        each.hold(30_000)
    replies = [pb.ProcessingResponse.FromString(raw) for raw in talk.pushed]
    assert [each.WhichOneof("response") for each in replies] == ["response_headers", "response_body"]
    assert passed(replies[1:]) == (start, False)
    assert passed(talk.part(b'","model":"a"}', end=True)) == (b'","model":"a"}', True)
    assert talk.budget.held == 30_000 * len(others)


def test_a_client_that_leaves_frees_what_waited() -> None:
    talk = chat()
    talk.turn("s")
    talk.head()
    talk.part(b'{"id":"x",')
    talk.request.closed()
    assert talk.budget.held == 0
