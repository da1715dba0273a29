"""Transition times move with the status and only with it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pointsman.kube.conditions import Condition, is_current, merge, timestamp, truth_of

NOON = datetime(2026, 1, 2, 12, 0, 0, 999, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def test_a_new_condition_is_dated_now() -> None:
    (condition,) = merge([], [Condition("Ready", "True", "Done", "all up")], generation=3, now=NOON)
    assert condition == {
        "type": "Ready",
        "status": "True",
        "reason": "Done",
        "message": "all up",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-01-02T12:00:00Z",
    }


def test_the_date_stays_while_the_status_stays() -> None:
    known = merge([], [Condition("Ready", "False", "Waiting")], generation=1, now=NOON)
    (still,) = merge(known, [Condition("Ready", "False", "StillWaiting")], generation=2, now=LATER)
    assert still["lastTransitionTime"] == timestamp(NOON)
    assert (still["reason"], still["observedGeneration"]) == ("StillWaiting", 2)
    (turned,) = merge(known, [Condition("Ready", "True", "Done")], generation=2, now=LATER)
    assert turned["lastTransitionTime"] == timestamp(LATER)


def test_conditions_of_others_and_the_order_stay() -> None:
    foreign: dict[str, Any] = {"type": "Theirs", "status": "True", "extra": 1}
    merged = merge([foreign], [Condition("Ours", "True", "Done")], generation=1, now=NOON)
    assert [condition["type"] for condition in merged] == ["Theirs", "Ours"]
    assert merged[0] == foreign


def test_a_clock_that_jumps_back_does_not_touch_the_date_of_a_status_that_stays() -> None:
    known = merge([], [Condition("Ready", "True", "Done")], generation=1, now=LATER)
    assert merge(known, [Condition("Ready", "True", "Done")], generation=1, now=NOON) == known


def test_current_means_for_this_generation() -> None:
    conditions = merge([], [Condition("Ready", "True", "Done")], generation=1, now=NOON)
    document = {"metadata": {"generation": 2}, "status": {"conditions": conditions}}
    assert truth_of(document, "Ready") == "True"
    assert not is_current(document, "Ready")
    assert is_current({**document, "metadata": {"generation": 1}}, "Ready")
    assert truth_of(document, "Other") == "Unknown"
