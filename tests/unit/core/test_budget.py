"""The largest holder pays, the small ones never notice, and the sum is kept whatever happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.budget import Account, Budget, Exhausted


class Holders:
    def __init__(self, *, limit: int) -> None:
        self.budget = Budget(limit=limit)
        self.gone: list[str] = []

    def open(self, name: str) -> Account:
        return self.budget.account("body", shed=lambda: self.gone.append(name))


def test_the_largest_makes_room_and_of_equals_the_oldest() -> None:
    holders = Holders(limit=1000)
    for name, size in (("old hog", 400), ("hog", 410), ("small", 20)):
        holders.open(name).hold(size)
    holders.open("newcomer").hold(300)
    assert holders.gone == ["old hog"]
    assert holders.budget.held == 410 + 20 + 300
    holders.open("next").hold(350)
    assert holders.gone == ["old hog", "hog"], "about as large as the next, and older"
    assert dict(holders.budget.shed) == {"body": 2}


def test_who_asks_for_most_is_refused_and_holds_nothing() -> None:
    holders = Holders(limit=1000)
    holders.open("small").hold(100)
    hog = holders.open("hog")
    hog.hold(800)
    with pytest.raises(Exhausted):
        hog.hold(800)
    assert (hog.size, holders.budget.held, holders.gone) == (0, 100, [])
    assert holders.budget.shed["body"] == 1


def test_what_has_no_account_makes_the_largest_go_and_is_refused_when_there_is_none() -> None:
    holders = Holders(limit=1000)
    holders.open("hog").hold(900)
    assert holders.budget.take(600)
    assert holders.gone == ["hog"]
    assert not holders.budget.take(600)
    assert holders.budget.held == 600
    holders.budget.give(600)
    assert holders.budget.held == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 500)), max_size=60))
def test_the_limit_is_kept_and_the_sum_is_right(steps: list[tuple[int, int]]) -> None:
    holders = Holders(limit=1000)
    accounts = [holders.open(str(n)) for n in range(10)]
    for number, size in steps:
        before = {n: a.size for n, a in enumerate(accounts)}
        gone = len(holders.gone)
        try:
            accounts[number].set(size)
        except Exhausted:
            assert size * 2 > max(before.values(), default=0), "whoever asks was about the largest"
        for name in holders.gone[gone:]:
            assert before[int(name)].bit_length() >= size.bit_length(), "never a much smaller one"
        assert holders.budget.held == sum(a.size for a in accounts) <= 1000
