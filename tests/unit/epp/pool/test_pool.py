"""Counters, freshness and ejection as a decision sees them."""

import pytest
from tests.clock import Clock

from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Member, Pool, Reservation
from pointsman.epp.pool.view import EndpointMetrics


def endpoint(at: int, **more: object) -> Endpoint:
    return Endpoint(name=f"pod-{at}", address=f"10.0.0.{at}", port=8000, **more)  # type: ignore[arg-type] # labels only


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> Pool:
    made = Pool(clock=clock)
    made.replace([endpoint(at) for at in range(1, 5)])
    return made


def scrape(member: Member, *, waiting: int, now: float, running: int = 0) -> None:
    metrics = EndpointMetrics(waiting=waiting, running=running, kv_usage=0.5, updated_at=now)
    member.scraped(metrics, attributes={}, mark=member.mark())


def eject(member: Member) -> None:
    for _ in range(2):
        member.judge(ok=False, connection=True)


def test_load_is_the_scrape_plus_what_happened_since(pool: Pool) -> None:
    member = pool.members[0]
    old = Reservation(member)
    scrape(member, waiting=3, running=5, now=100.0)
    assert (member.view.waiting, member.view.running) == (3, 5)
    Reservation(member)
    Reservation(member)
    assert (member.view.waiting, member.view.running) == (5, 7)
    old.release()
    assert (member.view.waiting, member.view.running) == (4, 6)


def test_picks_while_a_scrape_is_under_way_are_not_lost(pool: Pool) -> None:
    member = pool.members[0]
    mark = member.mark()
    Reservation(member)
    member.scraped(EndpointMetrics(waiting=2, updated_at=100.0), attributes={}, mark=mark)
    assert member.view.waiting == 3


def test_an_old_scrape_gives_way_to_our_own_count(pool: Pool) -> None:
    member = pool.members[0]
    scrape(member, waiting=10, now=100.0)
    for _ in range(2):
        Reservation(member)
    seen = []
    for age in (0.1, 0.65, 1.1, 1.55, 5.0):
        pool.sweep(100.0 + age)
        seen.append(member.view.waiting)
    assert seen[0] == 12
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 2
    assert member.view.kv_usage == 0.5  # nothing better is known
    scrape(member, waiting=1, now=106.0)
    assert member.view.waiting == 1


def test_without_metrics_a_burst_spreads_by_our_own_count(pool: Pool) -> None:
    for _ in range(100):
        Reservation(min(pool.candidates, key=lambda member: member.view.waiting))
    assert [member.inflight for member in pool.members] == [25, 25, 25, 25]


def test_an_endpoint_that_stays_keeps_its_counters(pool: Pool) -> None:
    member = pool.members[0]
    Reservation(member)
    pool.replace([endpoint(1, labels={"a": "b"}), endpoint(9)])
    assert pool.members[0] is member
    assert (member.view.labels, member.view.inflight_requests) == ({"a": "b"}, 1)
    pool.replace([endpoint(9)])
    pool.replace([endpoint(1)])
    assert pool.members[0].inflight == 0


def test_watchers_learn_who_is_there(pool: Pool) -> None:
    seen: list[list[str]] = []
    pool.watch(lambda members: seen.append([member.endpoint.name for member in members]))
    pool.replace([endpoint(7)])
    pool.clear()
    assert seen == [["pod-1", "pod-2", "pod-3", "pod-4"], ["pod-7"], []]
    assert not pool.synced


def test_a_subset_goes_by_address_only(pool: Pool) -> None:
    chosen = pool.within(["10.0.0.2:1234", "10.0.0.3", "nonsense"])
    assert [member.endpoint.name for member in chosen] == ["pod-2", "pod-3"]
    assert pool.within([]) == ()
    assert pool.within(None) == pool.members


def test_an_endpoint_that_cannot_be_reached_is_left_alone_and_comes_back(pool: Pool, clock: Clock) -> None:
    bad = pool.members[0]
    for _ in range(2):  # Envoy's retry served these requests elsewhere
        Reservation(bad).move(pool.members[1])
    assert bad not in pool.candidates
    assert pool.ejections == 1
    clock.now += 1.5
    bad.scrape_failures = {"metrics": 3}
    pool.sweep(clock.now)
    assert bad not in pool.candidates  # its time is over, but it is still not there
    bad.scrape_failures = {"metrics": 0}
    pool.sweep(clock.now)
    assert bad in pool.candidates
    probe = Reservation(bad)
    assert bad not in pool.candidates  # one probe at a time
    probe.answered(200)
    assert bad in pool.candidates
    Reservation(bad)
    assert bad in pool.candidates


def test_a_probe_that_nobody_waited_for_leaves_its_place_to_the_next(pool: Pool, clock: Clock) -> None:
    bad = pool.members[0]
    eject(bad)
    clock.now += 1.5
    pool.sweep(clock.now)
    Reservation(bad).release()
    assert bad in pool.candidates
    Reservation(bad).answered(500)
    assert bad not in pool.candidates


def test_errors_count_and_other_answers_are_signs_of_life(pool: Pool) -> None:
    member = pool.members[0]
    for status in (500, 503, 502, 500, 404, 500, 501, 500):
        Reservation(member).answered(status)
    assert member in pool.candidates
    for _ in range(4):
        Reservation(member).answered(500)
    assert member not in pool.candidates


def test_errors_everywhere_eject_no_more_than_half(pool: Pool) -> None:
    for _ in range(20):
        for member in pool.members:
            Reservation(member).answered(500)
    assert len(pool.candidates) == 2


def test_dead_connections_everywhere_leave_one(pool: Pool) -> None:
    for member in pool.members:
        eject(member)
    assert len(pool.candidates) == 1


def test_a_subset_of_ejected_endpoints_is_better_than_none(pool: Pool) -> None:
    eject(pool.members[0])
    assert pool.within(["10.0.0.1"]) == (pool.members[0],)
