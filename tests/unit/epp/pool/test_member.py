"""What a member's view says, and that it is never out of date."""

from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.member import Member
from pointsman.epp.pool.view import EndpointMetrics


def make() -> Member:
    return Member(Endpoint(name="pod", namespace="llm", address="FD00:0::7", port=8000, labels={"a": "b"}))


def test_the_view_is_the_endpoint() -> None:
    view = make().view
    assert (view.id, view.address, view.port, view.labels) == ("llm/pod", "FD00:0::7", 8000, {"a": "b"})
    assert view.target == "[FD00:0::7]:8000"
    assert make().host == "fd00::7"  # subset hints may spell it otherwise


def test_a_view_that_someone_holds_does_not_change() -> None:
    member = make()
    held = member.view
    member.enter(tokens=10)
    assert (held.inflight_requests, member.view.inflight_requests, member.view.inflight_tokens) == (0, 1, 10)


def test_every_change_is_in_the_next_view() -> None:
    member = make()
    member.enter(tokens=10)
    member.prefilled(4)
    assert member.view.inflight_tokens == 6
    metrics = EndpointMetrics(waiting=5, running=2, kv_usage=0.5, updated_at=10.0)
    member.scraped(metrics, attributes={"t": 1.0}, mark=member.mark())
    view = member.view
    assert (view.waiting, view.running, view.kv_usage, view.attributes) == (5, 2, 0.5, {"t": 1.0})
    assert view.metrics is metrics
    member.leave(tokens=6)
    assert (member.view.waiting, member.view.running, member.view.inflight_tokens) == (4, 1, 0)


def test_age_changes_the_view_only_when_it_matters() -> None:
    member = make()
    member.scraped(EndpointMetrics(waiting=5, updated_at=10.0), attributes={}, mark=member.mark())
    view = member.view
    member.age(10.1, threshold=2.0)
    assert member.view is view
    member.age(11.0, threshold=2.0)
    assert 0 < member.view.waiting < 5
    member.age(99.0, threshold=2.0)
    assert member.view.waiting == 0


def test_without_a_keeper_nobody_judges() -> None:
    member = make()
    for _ in range(9):
        member.judge(ok=False, connection=True)
    assert member.standing.state.value == "in"
