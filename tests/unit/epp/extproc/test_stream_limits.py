"""What requests may hold and how long they may take, message by message."""

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from tests.unit.epp.extproc.talk import A, make, picked

from pointsman.epp.schedule.records import Records


@pytest.mark.parametrize("patient", [False, True])
def test_a_body_over_the_limit_is_413_and_frees_its_place(patient: bool) -> None:
    talk = make(A, patient=patient, max_body=10)
    talk.headers()
    talk.body(b"x" * 10)
    (reply,) = talk.body(b"x")
    assert reply.immediate_response.status.code == 413
    assert b"--max-body" in reply.immediate_response.body
    assert talk.inflight == {"sim-1": 0}


def test_a_body_that_does_not_fit_is_429_and_frees_its_place() -> None:
    talk = make(A, patient=True, max_body=64 << 20)
    talk.headers()
    part = b"x" * 300_000
    assert [talk.body(part) for _ in range(3)] == [[], [], []]
    (reply,) = talk.body(part)
    assert reply.immediate_response.status.code == 429
    assert b"--max-held-bytes" in reply.immediate_response.body
    rows = {o.header.key: o.header.raw_value for o in reply.immediate_response.headers.set_headers}
    assert rows["x-llm-d-request-dropped-reason"] == b"rejected-memory"
    assert talk.exchange.finished
    assert talk.budget.held == 0


def test_the_largest_request_makes_room_for_a_small_one() -> None:
    talk = make(A, patient=True, max_body=64 << 20)
    hog = talk.exchange
    talk.headers()
    talk.body(b"x" * 1_000_000)
    talk.exchange = talk.open()
    talk.headers()
    assert talk.body(b'{"prompt": "' + b"x" * 100_000) == []
    assert hog.finished and not talk.exchange.finished
    (told,) = [pb.ProcessingResponse.FromString(raw) for raw in talk.pushed]
    assert told.immediate_response.status.code == 429
    assert picked(talk.body(b'", "model": "m"}', end=True)[0])
    talk.exchange.closed()
    hog.closed()
    assert talk.budget.held == 0


def test_tiny_parts_and_views_of_large_messages_count_with_all_that_they_keep() -> None:
    talk = make(A, patient=True)
    talk.headers()
    for _ in range(1000):
        talk.body(b"x")
    assert talk.budget.held >= 1000 * 50
    message = pb.ProcessingRequest(request_body=pb.HttpBody(body=b"y" * 5000)).SerializeToString()
    talk.exchange.message(memoryview(message + b"\xa2\x06\xff\x7f" + b"z" * 16_383))
    assert talk.budget.held >= 1000 * 50 + 20_000, "the view keeps what is around it"


def test_large_headers_count_as_long_as_they_are_kept() -> None:
    talk = make(A)
    talk.headers(raw={f"x-{n}": b"v" for n in range(400)})
    assert talk.budget.held > 80_000
    talk.exchange.closed()
    assert talk.budget.held == 0


def test_what_is_remembered_of_decisions_is_bounded_however_large_their_headers_are() -> None:
    talk = make(A)
    for at in range(5):
        talk.exchange = talk.open()
        size = 400_000 if at < 4 else 1
        talk.headers(raw={"x-request-id": str(at).encode(), "x-large": b"v" * size})
        talk.exchange.closed()
    weights = [record.weight for record in talk.director.records.find()]
    assert len(weights) == 5 and weights[0] == 0 and min(weights[1:]) >= 400_000
    few = Records(keep=1000, most_bytes=1_000_000)
    for record in reversed(talk.director.records.find()):
        few.add(record)
    assert [record.request.id for record in few.find()] == ["4", "3", "2"]


def test_a_large_subset_weighs_too() -> None:
    talk = make(A)
    talk.headers(subset=["10.0.0.1:8000", *(f"h{n}" for n in range(50_000))])
    (record,) = talk.director.records.find()
    assert record.weight > 3_000_000


@pytest.mark.parametrize("begun", [True, False], ids=["headers", "nothing"])
def test_a_request_that_is_not_complete_in_time_is_408(begun: bool) -> None:
    talk = make(A, patient=True)
    if begun:
        talk.headers()
        talk.body(b"{")
    talk.now = 59.0
    talk.deadlines.sweep()
    assert not talk.pushed
    talk.now = 61.0
    talk.deadlines.sweep()
    (told,) = [pb.ProcessingResponse.FromString(raw) for raw in talk.pushed]
    assert told.immediate_response.status.code == 408
    assert b"--body-timeout" in told.immediate_response.body
    assert talk.exchange.finished
    talk.exchange.closed()
    assert talk.budget.held == 0


def test_a_request_that_is_complete_has_all_the_time_for_its_answer() -> None:
    talk = make(A, patient=True)
    talk.headers()
    assert picked(talk.body(b'{"model": "m", "prompt": "p"}', end=True)[0])
    talk.now = 1000.0
    talk.deadlines.sweep()
    assert not talk.pushed and not talk.exchange.finished
