"""A place is taken once and freed once, and follows its request."""

from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.member import Member
from pointsman.epp.pool.reservation import Reservation


def make(at: int = 1) -> Member:
    return Member(Endpoint(name=f"pod-{at}", address=f"10.0.0.{at}", port=8000))


class Heard:
    """A meter that remembers."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def sized(self, size: int) -> None:
        self.events.append(size)

    def answered(self, status: int) -> None:
        self.events.append(status)

    def chunk(self, body: bytes) -> None:
        self.events.append(body)

    def used(self, *, prompt: int, output: int, cached: int | None = None) -> None:
        self.events.append((prompt, output, cached))

    def took(self) -> None:
        return None

    def ended(self) -> None:
        self.events.append("end")


def test_a_place_is_seen_at_once_and_freed_once() -> None:
    member = make()
    reservation = Reservation(member, tokens=50)
    assert (member.view.inflight_requests, member.view.inflight_tokens, member.picks) == (1, 50, 1)
    reservation.first_byte()
    reservation.first_byte()
    assert (member.view.inflight_requests, member.view.inflight_tokens) == (1, 0)
    reservation.release()
    reservation.release()
    assert (member.view.inflight_requests, member.view.inflight_tokens) == (0, 0)
    assert reservation.member is None


def test_it_follows_its_request_with_all_that_it_holds() -> None:
    picked, served = make(1), make(2)
    reservation = Reservation(picked, tokens=50)
    reservation.move(served)
    reservation.move(served)
    assert (picked.inflight, picked.tokens, picked.picks) == (0, 0, 1)
    assert (served.inflight, served.tokens, served.picks) == (1, 50, 0)
    reservation.release()
    assert (served.inflight, served.tokens) == (0, 0)


def test_what_comes_after_the_end_changes_nothing() -> None:
    member, other = make(1), make(2)
    reservation = Reservation(member, tokens=50)
    reservation.release()
    reservation.move(other)
    reservation.first_byte()
    assert (member.inflight, member.tokens, other.inflight) == (0, 0, 0)


def test_the_meter_hears_all_and_the_end_once() -> None:
    reservation, heard = Reservation(make(), tokens=5), Heard()
    reservation.meter = heard
    reservation.answered(200)
    reservation.chunk(b"a")
    reservation.chunk(b"b")
    reservation.release()
    reservation.release()
    assert heard.events == [200, b"a", b"b", "end"]
