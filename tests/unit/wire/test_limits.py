from tests.clock import Clock

from pointsman.wire.limits import Bucket, Rate


def test_a_burst_is_free_a_flood_is_not() -> None:
    clock = Clock()
    bucket = Bucket(Rate(burst=3, per_second=2), clock=clock)
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]
    clock.now += 1.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]


def test_rest_never_saves_more_than_one_more_burst() -> None:
    clock = Clock()
    bucket = Bucket(Rate(burst=2, per_second=10), clock=clock)
    clock.now += 1000.0
    assert [bucket.take() for _ in range(5)] == [True] * 4 + [False], "what it had, and one refill"
