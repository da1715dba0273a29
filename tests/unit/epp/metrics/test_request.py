"""A request that rides on its reservation leaves its mark in the right families."""

import pytest
from tests.clock import Clock

from pointsman.epp.metrics.picker import PickerMetrics, RequestCells
from pointsman.epp.metrics.request import Bookkeeper
from pointsman.epp.plugins.api import PrefixMatches
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Member, Reservation
from pointsman.epp.request.request import Request

KEY = ("m", "t", "default-flow", "0")


def row(metrics: PickerMetrics) -> RequestCells:
    return metrics.row(model="m", target="t")


@pytest.fixture
def clock() -> Clock:
    return Clock(10.0)


@pytest.fixture
def metrics() -> PickerMetrics:
    return PickerMetrics()


@pytest.fixture
def reservation(metrics: PickerMetrics, clock: Clock) -> Reservation:
    member = Member(Endpoint(name="pod", address="10.0.0.1", port=8000))
    matches = PrefixMatches(total=4, block_tokens=64, blocks={}, cached={"10.0.0.1:8000": 2})
    request = Request(
        id="r", headers={}, model="m", target_model="t", size=500, attributes={"PrefixCacheMatchInfo/approx": matches}
    )
    made = Reservation(member)
    made.meter = Bookkeeper(metrics, clock=clock).picked(request, member.view, since=clock.now - 0.001)
    return made


def test_a_streamed_response(metrics: PickerMetrics, clock: Clock, reservation: Reservation) -> None:
    assert row(metrics).running == 1
    reservation.answered(200)
    for _ in range(3):
        clock.now += 0.5
        reservation.chunk(b"data: {}\n\n")
    assert reservation.meter is not None
    reservation.meter.used(prompt=7, output=11, cached=2)
    reservation.release()
    reservation.release()
    assert row(metrics).running == 0
    assert row(metrics).total == 1
    assert metrics.first_token.cells[(*KEY, "true")].sum == 0.5
    assert metrics.token_gap.cells[KEY].sum == 1.0
    assert metrics.duration.cells[KEY].sum == 1.5
    assert metrics.response_bytes.cells[KEY].sum == 30
    assert metrics.streaming_per_token.cells[KEY].sum == pytest.approx(0.1)
    assert metrics.per_token.cells[KEY].sum == pytest.approx(1.5 / 11)
    assert metrics.errors.cells == {}


def test_a_plain_response_in_pieces_is_not_streamed(
    metrics: PickerMetrics, clock: Clock, reservation: Reservation
) -> None:
    reservation.answered(200)
    for piece in (b'{"id":', b'"x"}', b""):
        clock.now += 0.25
        reservation.chunk(piece)
    reservation.release()
    assert metrics.first_token.cells[(*KEY, "false")].sum == 0.25
    assert metrics.token_gap.cells[KEY].sum == 0
    assert metrics.duration.cells[KEY].sum == 0.75


def test_an_error_of_the_model_server(metrics: PickerMetrics, reservation: Reservation) -> None:
    reservation.answered(503)
    reservation.release()
    assert metrics.errors.cells == {(*KEY, "ModelServerError"): 1}


def test_the_pick_itself(metrics: PickerMetrics, reservation: Reservation) -> None:
    assert reservation.member is not None
    assert metrics.attempts.cells == {("success", "t", "pod", "default", "8000"): 1}
    assert metrics.scheduling.cells[()].sum == pytest.approx(0.001)
    index = ("approx", "approx-prefix-cache-producer")
    assert metrics.index_ratio.cells[index].sum == 0.5
    assert metrics.index_bytes.cells[index].sum == 2 * 64 * 4


def test_a_refusal(metrics: PickerMetrics, clock: Clock) -> None:
    request = Request(id="r", headers={}, model="m", target_model="t")
    books = Bookkeeper(metrics, clock=clock)
    books.refused(request, code="ServiceUnavailable")
    assert metrics.errors.cells == {(*KEY, "ServiceUnavailable"): 1}
    assert metrics.attempts.cells == {}
    books.not_scheduled(request, since=clock.now)
    assert metrics.attempts.cells == {("failure", "t", "", "", ""): 1}
    assert row(metrics).total == 0
