from collections.abc import Sequence

import pytest
from tests.clock import Clock

from pointsman.epp.extproc.messages import Malformed
from pointsman.epp.extproc.metrics import StreamMetrics
from pointsman.wire.grpc import Failure, Status
from pointsman.wire.protobuf import Data

REQUEST_HEADERS, RESPONSE_BODY = b"\x12\x00", b"\x2a\x00"


class Call:
    """Works for a second per message, and does as it is told."""

    def __init__(self, clock: Clock, *, error: Exception | None = None, ends: bool = False) -> None:
        self.clock, self.error, self.ends = clock, error, ends
        self.finished = False
        self.let_go = 0

    def message(self, data: Data) -> Sequence[bytes]:
        self.clock.now += 1.0
        if self.error is not None:
            raise self.error
        self.finished = self.ends
        return (bytes(data),)

    def half_closed(self) -> bool:
        return False

    def closed(self) -> None:
        self.let_go += 1


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def metrics(clock: Clock) -> StreamMetrics:
    return StreamMetrics(clock=clock)


def test_everything_passes_through_and_is_timed(metrics: StreamMetrics, clock: Clock) -> None:
    call = Call(clock)
    measured = metrics.open(call)
    assert metrics.inflight == 1
    assert measured.message(REQUEST_HEADERS) == (REQUEST_HEADERS,)
    measured.message(RESPONSE_BODY)
    measured.message(RESPONSE_BODY)
    clock.now += 10
    measured.closed()
    assert (metrics.inflight, call.let_go) == (0, 1)
    assert metrics.request.cells[()].sum == 1
    assert metrics.response.cells[()].sum == 2
    assert metrics.duration.cells[()].sum == 13
    assert metrics.total.cells == {("Canceled",): 1}


def test_an_end_of_our_own_is_ok(metrics: StreamMetrics, clock: Clock) -> None:
    measured = metrics.open(Call(clock, ends=True))
    measured.message(REQUEST_HEADERS)
    assert measured.finished
    measured.closed()
    other = metrics.open(Call(clock))
    assert not other.half_closed()
    other.closed()
    assert metrics.total.cells == {("OK",): 2}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(Failure(Status.RESOURCE_EXHAUSTED, "too much"), "ResourceExhausted", id="a status"),
        pytest.param(Malformed("what?"), "InvalidArgument", id="not a message"),
        pytest.param(RuntimeError("oops"), "Internal", id="our fault"),
    ],
)
def test_errors_have_grpcs_names(metrics: StreamMetrics, clock: Clock, error: Exception, code: str) -> None:
    measured = metrics.open(Call(clock, error=error))
    with pytest.raises(type(error)):
        measured.message(REQUEST_HEADERS)
    measured.closed()
    assert metrics.total.cells == {(code,): 1}
