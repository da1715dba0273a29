"""Delays double, stay below the cap, and differ between those who wait."""

import random

from hypothesis import given
from hypothesis import strategies as st

from pointsman.kube.backoff import Backoff


@given(failures=st.integers(0, 10_000), seed=st.integers())
def test_delay_is_within_its_band(failures: int, seed: int) -> None:
    backoff = Backoff(first=0.1, cap=30.0, jitter=0.5)
    whole = min(30.0, 0.1 * 2 ** min(max(failures, 1) - 1, 60))
    assert whole / 2 <= backoff.delay(failures, rng=random.Random(seed)) <= whole


def test_a_crowd_spreads() -> None:
    rng = random.Random(1)
    assert len({Backoff().delay(5, rng=rng) for _ in range(100)}) == 100
