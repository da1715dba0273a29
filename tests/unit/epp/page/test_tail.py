"""The decisions of the last minutes: a whole stretch, bounded by time, number and candidates."""

from pointsman.epp.page.tail import Tail
from pointsman.epp.plugins.api import Picked
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Request
from pointsman.epp.schedule.decision import Outcome
from pointsman.epp.schedule.explain import Trace
from pointsman.epp.schedule.records import Record


def record(number: int, *, candidates: int = 1, at: float = 0.0, weight: int = 0) -> Record:
    views = [EndpointView(name="a", target=f"a:{n}", address="a", port=n) for n in range(candidates)]
    request = Request(id=f"r{number}", headers={})
    picked = Picked(endpoints=views[:1], candidates=views, scores=[0.0] * candidates)
    outcome = Outcome(request=request, results={"p": picked}, primary="p")
    return Record(request=request, candidates=views, at=at, outcome=outcome, trace=Trace(), weight=weight)


def ids(tail: Tail, now: float = 0.0) -> list[str]:
    return [each.request.id for each in tail.decisions(now)]


def test_old_ones_go_with_time() -> None:
    tail = Tail(seconds=300)
    tail.begin([record(n, at=n * 100.0) for n in range(5)])
    assert ids(tail, now=400.0) == ["r1", "r2", "r3", "r4"] and not tail.cut
    assert ids(tail, now=1000.0) == []


def test_the_oldest_go_when_there_are_too_many() -> None:
    tail = Tail(most=3)
    tail.begin([record(n) for n in range(5)])
    assert ids(tail) == ["r2", "r3", "r4"] and tail.cut


def test_memory_is_bounded_by_candidates() -> None:
    tail = Tail(candidates=10)
    tail.begin([record(n, candidates=4) for n in range(5)])
    assert ids(tail) == ["r3", "r4"]
    tail.add(record(9, candidates=11))
    assert ids(tail) == []
    tail.add(record(10, candidates=10))
    assert ids(tail) == ["r10"]


def test_memory_is_bounded_by_what_requests_weigh() -> None:
    tail = Tail(most_bytes=100)
    tail.begin([record(n, weight=40) for n in range(5)])
    assert ids(tail) == ["r3", "r4"] and tail.cut
    tail.add(record(9, weight=60))
    assert ids(tail) == ["r4", "r9"]
    tail.clear()
    tail.begin([record(n) for n in range(5)])
    assert len(ids(tail)) == 5


def test_what_cannot_be_decided_again_and_plugins_parts_are_not_kept() -> None:
    tail = Tail()
    view = EndpointView(name="a", target="a:1", address="a", port=1)
    tail.begin([Record(request=Request(id="drawn", headers={}), candidates=[view], drawn=view), record(1)])
    (kept,) = tail.decisions(0.0)
    assert kept.request.id == "r1" and kept.trace is None
    tail.clear()
    assert ids(tail) == []
