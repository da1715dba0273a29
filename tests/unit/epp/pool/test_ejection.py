from pointsman.epp.pool.ejection import GOOD, EjectionTerms, Standing, StandingState, aged, failed, may_eject, succeeded

TERMS = EjectionTerms()


def fail(standing: Standing, *, now: float = 0.0, connection: bool = False, room: bool = True) -> Standing:
    return failed(standing, now=now, connection=connection, room=room, terms=TERMS)


def ejected(*, now: float = 0.0, after: Standing = GOOD) -> Standing:
    return fail(fail(after, now=now, connection=True), now=now, connection=True)


def back(standing: Standing) -> Standing:
    return succeeded(aged(standing, now=standing.until, answers_scrapes=True), now=standing.until)


def test_five_errors_in_a_row_eject_and_a_success_between_does_not() -> None:
    standing = GOOD
    for _ in range(4):
        standing = fail(standing)
    assert standing.state is StandingState.IN
    assert fail(standing).state is StandingState.OUT
    assert fail(succeeded(standing, now=0.0)).state is StandingState.IN


def test_two_failed_connections_are_enough() -> None:
    assert fail(GOOD, connection=True).state is StandingState.IN
    assert ejected().state is StandingState.OUT


def test_without_room_nobody_is_ejected_but_the_count_goes_on() -> None:
    standing = GOOD
    for _ in range(9):
        standing = fail(standing, room=False)
    assert standing.state is StandingState.IN
    assert fail(standing, room=True).state is StandingState.OUT


def test_the_time_doubles_up_to_its_limit() -> None:
    standing, times = GOOD, []
    for _ in range(9):
        standing = ejected(now=standing.since, after=standing)
        times.append(standing.until - standing.since)
        standing = back(standing)
    assert times == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_quiet_spell_shortens_the_next_ejection() -> None:
    standing = back(ejected(after=back(ejected())))
    assert standing.ejections == 2
    again = ejected(now=standing.since + TERMS.quiet_seconds, after=standing)
    assert again.ejections == 2
    much_later = ejected(now=standing.since + 100 * TERMS.quiet_seconds, after=standing)
    assert much_later.ejections == 1


def test_out_ends_when_its_time_is_over_and_the_endpoint_is_there() -> None:
    out = ejected(now=10.0)
    assert aged(out, now=10.5, answers_scrapes=True) is out
    assert aged(out, now=11.0, answers_scrapes=False) is out
    assert aged(out, now=11.0, answers_scrapes=True).state is StandingState.PROBE


def test_a_probe_decides() -> None:
    probe = aged(ejected(), now=1.0, answers_scrapes=True)
    assert succeeded(probe, now=1.5).state is StandingState.IN
    worse = fail(probe, now=1.5, room=False)
    assert (worse.state, worse.until) == (StandingState.OUT, 3.5)


def test_old_requests_change_nothing_while_out() -> None:
    out = ejected()
    assert fail(out, now=0.5, connection=True) is out
    assert succeeded(out, now=0.5) is out


def test_a_pool_is_never_emptied() -> None:
    def room(out: int, total: int, *, connection: bool) -> bool:
        return may_eject(out=out, total=total, connection=connection, terms=TERMS)

    assert not room(0, 1, connection=True)
    assert room(2, 4, connection=True)
    assert not room(3, 4, connection=True)
    assert room(1, 4, connection=False)
    assert not room(2, 4, connection=False)
