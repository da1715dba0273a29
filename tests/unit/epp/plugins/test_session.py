"""Sessions stay where they are."""

import base64
from typing import Any

import pytest
from tests.unit.epp.plugins.making import endpoint, make, names, request

from pointsman.core.values import check
from pointsman.epp.plugins.api import Picked
from pointsman.epp.plugins.session import SessionIdParameters, SessionSource, decode_token, encode_token
from pointsman.epp.pool.view import EndpointView

A, B = endpoint("a", namespace="ns"), endpoint("b", namespace="ns")


def picked(first: EndpointView, *candidates: EndpointView) -> Picked:
    return Picked(endpoints=[first], candidates=candidates or [first], scores=[1.0] * (len(candidates) or 1))


def test_the_token_is_the_endpoints_id_in_base64() -> None:
    assert encode_token("ns/a") == base64.b64encode(b"ns/a").decode()
    assert decode_token(encode_token("ns/a")) == "ns/a"
    assert decode_token("not base64!") == ""
    assert decode_token("/w==") == "", "not text"


def test_a_token_brings_the_client_back() -> None:
    scorer, pin = make("session-affinity-scorer"), make("session-affinity-filter")
    ((name, token),) = scorer.on_response(request(), B)
    assert name == "x-session-token"
    seen = request(headers={name: token})
    assert scorer.score(seen, [A, B]) == [0, 1]
    assert names(pin.filter(seen, [A, B])) == ["b"]
    assert names(pin.filter(seen, [A])) == ["a"], "the endpoint is gone: anyone will do"
    assert scorer.score(request(), [A, B]) == [0, 0]


def test_a_session_id_is_bound_to_the_pick_and_rebound_only_when_its_endpoint_is_gone() -> None:
    scorer = make("session-affinity-scorer", strategy="session_id")
    seen = request(headers={"x-session-id": "s"})
    assert scorer.score(seen, [A, B]) == [0, 0]
    scorer.before_send(seen, {"default": picked(B, A, B)}, "default")
    assert scorer.score(seen, [A, B]) == [0, 1]
    scorer.before_send(seen, {"default": picked(A, A, B)}, "default")
    assert scorer.score(seen, [A, B]) == [0, 1], "outvoted once, but b is still there"
    scorer.before_send(seen, {"default": picked(A, A)}, "default")
    assert scorer.score(seen, [A, B]) == [1, 0]
    assert scorer.on_response(seen, A) == ()


def test_a_session_is_forgotten_after_its_time() -> None:
    now = 0.0
    scorer = make("session-affinity-scorer", strategy="session_id", sessionIdConfig={"evictionTtlSeconds": 10})
    scorer._clock = lambda: now
    seen = request(headers={"x-session-id": "s"})
    scorer.before_send(seen, {"default": picked(A)}, "default")
    now = 10.0
    assert scorer.score(seen, [A]) == [1]
    now = 10.5
    assert scorer.score(seen, [A]) == [0]
    scorer.before_send(request(headers={"x-session-id": "t"}), {"default": picked(A)}, "default")
    assert list(scorer._bound) == ["t"], "the old one is swept"


@pytest.mark.parametrize(
    ("parameters", "headers", "expected"),
    [
        pytest.param({"headerName": "X-Sid"}, {"x-sid": "1"}, "1", id="header"),
        pytest.param({"cookieName": "sid"}, {"cookie": "a=b; sid=2; c=d"}, "2", id="cookie"),
        pytest.param({"cookieName": "sid"}, {"cookie": "a=b"}, None, id="another cookie"),
        pytest.param({"headerName": "x-sid"}, {}, None, id="no header"),
    ],
)
def test_the_session_id_producer(parameters: dict[str, Any], headers: dict[str, str], expected: str | None) -> None:
    producer = make("session-id-producer", **parameters)
    facts = producer.produce(request(headers=headers), [])
    assert facts == ({} if expected is None else {"SessionID/session-id-producer": expected})


def test_an_id_that_a_producer_found_binds_too() -> None:
    source = {"attribute": "SessionID", "producer": "session-id-producer"}
    scorer = make("session-affinity-scorer", strategy="session_id", sessionIdConfig={"sources": [source]})
    assert [key.name for key in scorer.consumes] == ["SessionID/session-id-producer"]
    seen = request(attributes={"SessionID/session-id-producer": "s"})
    scorer.before_send(seen, {"default": picked(A)}, "default")
    assert scorer.score(seen, [A, B]) == [1, 0]


@pytest.mark.parametrize("given", [{}, {"headerName": "a", "cookieName": "b"}])
def test_exactly_one_place_for_the_id(given: dict[str, str]) -> None:
    (problem,) = check(SessionIdParameters, given, path="p").problems
    assert "exactly one of headerName and cookieName" in problem.message


def test_exactly_one_source_of_a_session() -> None:
    (problem,) = check(SessionSource, {}, path="p").problems
    assert "exactly one of header and attribute" in problem.message
