"""The queue, in virtual time."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kube.backoff import Backoff
from pointsman.kube.queue import Queue

pytestmark = pytest.mark.looptime


def make(*, first: float = 1.0, cap: float = 8.0) -> Queue[str]:
    return Queue(backoff=Backoff(first=first, cap=cap, jitter=0.0), rng=random.Random(1))


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_key_stands_in_line_once() -> None:
    queue = make()
    for _ in range(5):
        queue.add("x")
    assert len(queue) == 1


async def test_a_change_during_work_leads_to_exactly_one_more_run() -> None:
    queue = make()
    queue.add("x")
    key, _ = await queue.take()
    for _ in range(3):
        queue.add("x")
    assert len(queue) == 0  # never two workers on one key
    queue.done(key)
    assert len(queue) == 1
    await queue.take()
    queue.done(key)
    assert queue.idle


async def test_delays_double_up_to_the_cap_and_reset() -> None:
    queue = make()
    delays = []
    for _ in range(6):
        delays.append(queue.retry("x"))
        await queue.take()
        queue.done("x")
    assert delays == [1, 2, 4, 8, 8, 8]
    assert now() == sum(delays)
    queue.forget("x")
    assert queue.retry("x") == 1


async def test_a_change_goes_first_and_does_not_erase_the_failures() -> None:
    queue = make()
    for _ in range(4):
        queue.retry("x")
    await asyncio.sleep(0.5)
    queue.add("x")
    await queue.take()
    assert now() == 0.5
    queue.done("x")
    assert queue.idle  # the timer was superseded, not left behind
    assert queue.failures("x") == 4


async def test_of_two_timers_the_earlier_counts() -> None:
    queue = make()
    queue.add_later("x", delay=5)
    queue.add_later("x", delay=2)
    queue.add_later("x", delay=9)
    await queue.take()
    assert now() == 2
    queue.done("x")
    assert queue.idle


async def test_a_timer_that_fires_during_work_is_not_lost() -> None:
    queue = make()
    queue.add("x")
    await queue.take()
    queue.add_later("x", delay=1)
    await asyncio.sleep(3)
    assert len(queue) == 0
    queue.done("x")
    assert len(queue) == 1


async def test_time_in_line_is_told() -> None:
    queue = make()
    queue.add("x")
    await asyncio.sleep(3)
    assert await queue.take() == ("x", 3.0)


async def test_a_cancelled_taker_loses_no_key() -> None:
    queue = make()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await queue.take()
    queue.add("x")
    assert (await queue.take())[0] == "x"


async def test_close_leaves_no_timer() -> None:
    queue = make()
    queue.add_later("x", delay=1)
    queue.close()
    await asyncio.sleep(2)
    assert queue.idle


@given(
    script=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "later", "retry"])), max_size=40),
    workers=st.integers(1, 4),
)
def test_every_change_is_followed_by_a_run_that_began_after_it(script: list[tuple[str, str]], workers: int) -> None:
    """The one promise that controllers build on, for any script and any number of workers."""

    async def play() -> None:
        queue = make(first=0.001, cap=0.002)
        last_change: dict[str, int] = {}
        last_run: dict[str, int] = {}
        busy: set[str] = set()
        step = 0

        async def worker() -> None:
            nonlocal step
            while True:
                key, _ = await queue.take()
                assert key not in busy
                busy.add(key)
                step += 1
                last_run[key] = step
                await asyncio.sleep(0)
                busy.discard(key)
                queue.done(key)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker()) for _ in range(workers)]
            for key, act in script:
                step += 1
                last_change[key] = step
                if act == "add":
                    queue.add(key)
                elif act == "later":
                    queue.add_later(key, delay=0.001)
                else:
                    queue.retry(key)
                await asyncio.sleep(0)
            while not queue.idle:  # noqa: ASYNC110 - the queue announces no idleness
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()
        assert all(last_run[key] > changed for key, changed in last_change.items())

    asyncio.run(play())
