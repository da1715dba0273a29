"""Answers: lengths as the Go simulator draws them, echoes, stops."""

from collections import Counter

import pytest

from pointsman.sim.engine.chance import Chance
from pointsman.sim.text.answers import Answer, cut, echo, random_answer


def lengths(limit: int, *, count: int = 4000) -> list[int]:
    found = []
    for number in range(count):
        answer = random_answer(Chance(1, number), max_tokens=limit, room=10_000, ignore_eos=False)
        assert 1 <= len(answer.pieces) <= limit
        assert answer.finish_reason == ("length" if len(answer.pieces) == limit else "stop")
        found.append(len(answer.pieces))
    return found


@pytest.mark.parametrize("limit", [51, 101, 300])
def test_the_limit_itself_is_drawn_in_15_of_100_and_shorter_ones_by_bucket(limit: int) -> None:
    drawn = lengths(limit)
    assert drawn.count(limit) / len(drawn) == pytest.approx(0.15, abs=0.02)
    width = 20 if limit > 101 else (limit - 1) // 5
    buckets = Counter(min((length - 1) // width, 3) for length in drawn if length < limit)
    assert [buckets[i] / len(drawn) for i in range(3)] == pytest.approx([0.2, 0.3, 0.2], abs=0.03)


def test_tiny_limits_are_uniform() -> None:
    assert set(lengths(1, count=50)) == {1}
    assert set(lengths(6, count=500)) == {1, 2, 3, 4, 5, 6}


def test_without_a_limit_the_length_is_around_forty_and_fits_the_window() -> None:
    found = [len(random_answer(Chance(n), max_tokens=None, room=60, ignore_eos=False).pieces) for n in range(2000)]
    assert min(found) >= 1 and max(found) <= 60
    assert sum(found) / len(found) == pytest.approx(35, abs=5)


def test_an_ignored_end_gives_exactly_the_limit() -> None:
    assert len(random_answer(Chance(1), max_tokens=777, room=9, ignore_eos=True).pieces) == 777


def test_an_echo_is_never_cut_and_tells_that_the_limit_was_reached() -> None:
    assert echo("a b c", max_tokens=2) == Answer(["a ", "b ", "c"], "length")
    assert echo("a b c", max_tokens=4).finish_reason == "stop"


@pytest.mark.parametrize(
    ("stop", "kept", "reason"),
    [
        pytest.param(["c"], ["a ", "b "], "stop", id="at a token"),
        pytest.param(["b c"], ["a "], "stop", id="across tokens"),
        pytest.param([" b"], ["a"], "stop", id="within a token"),
        pytest.param(["zz", ""], ["a ", "b ", "c d"], "length", id="not there"),
        pytest.param(["a"], [""], "stop", id="at once"),
    ],
)
def test_stop_texts_cut_the_answer(stop: list[str], kept: list[str], reason: str) -> None:
    ended = cut(Answer(["a ", "b ", "c d"], "length"), stop=stop)
    assert ended == Answer(kept, reason, stop=stop[0] if reason == "stop" else None)
