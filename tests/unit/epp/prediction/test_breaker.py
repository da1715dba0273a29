"""When a server is left alone, and when it is tried again."""

from tests.clock import Clock

from pointsman.epp.prediction.breaker import Breaker


def test_after_failures_in_a_row_there_is_a_pause_and_then_one_question() -> None:
    clock = Clock()
    breaker = Breaker(clock=clock, failures=3, seconds=10.0)
    for _ in range(2):
        breaker.failed()
    assert breaker.allows()
    breaker.succeeded()
    for _ in range(3):
        assert breaker.allows(), "in a row, not in all"
        breaker.failed()
    assert not breaker.allows()
    clock.now += 9.9
    assert not breaker.allows()
    clock.now += 0.2
    assert breaker.allows()
    breaker.begin()
    assert not breaker.allows(), "one question shows"
    breaker.failed()
    clock.now += 9.9
    assert not breaker.allows()
    clock.now += 0.2
    breaker.begin()
    breaker.succeeded()
    assert breaker.allows()
