"""The tests' own way of waiting."""

import pytest
from tests.waiting import eventually, until, wait_until


async def test_first_true_value_is_returned() -> None:
    values = iter([0, "", "there"])

    async def slowly() -> object:
        return next(values)

    assert await until(slowly, every=0) == "there"
    assert wait_until(iter([0, 7]).__next__, every=0) == 7


async def test_failure_says_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"^still \[\] after 0 s$"):
        await until(list, within=0, every=0)
    with pytest.raises(AssertionError, match=r"^still \[\] after 0 s$"):
        wait_until(list, within=0, every=0)


async def test_errors_are_waited_out_only_where_they_are_expected() -> None:
    def refused() -> bool:
        raise ConnectionRefusedError("not yet")

    for within in (0.0, 0.05):
        with pytest.raises(AssertionError, match=r"^ConnectionRefusedError\('not yet'\) for"):
            await until(refused, within=within, every=0, despite=(OSError,))
    with pytest.raises(AssertionError, match=r"^ConnectionRefusedError\('not yet'\) for"):
        wait_until(refused, within=0, every=0)
    with pytest.raises(ConnectionRefusedError):
        await until(refused)
    with pytest.raises(ConnectionRefusedError):
        wait_until(refused, despite=(LookupError,))


async def test_attempt_that_returns_nothing_is_one_that_worked() -> None:
    tries: list[int] = []

    async def attempt() -> None:
        tries.append(1)
        assert len(tries) > 2

    await eventually(attempt, every=0)
    assert len(tries) == 3
    with pytest.raises(AssertionError):
        await eventually(_never, within=0, every=0)


async def _never() -> None:
    raise AssertionError
