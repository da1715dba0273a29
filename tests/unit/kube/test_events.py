"""Events are counted, not multiplied."""

from datetime import UTC, datetime, timedelta

from pointsman.kube.events import Ledger, Saying, event

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def saying(message: str = "it broke") -> Saying:
    return Saying("example.dev/v1", "Widget", "a", "w", "u1", "Warning", "Broken", message)


def test_a_storm_is_one_write_with_its_count() -> None:
    ledger = Ledger(interval=10)
    for _ in range(1000):
        ledger.say(saying(), wall=NOON)
    ((_, tally),) = ledger.due(now=0.0)
    assert (tally.count, tally.written) == (1000, 0)
    assert ledger.due(now=0.0) == []


def test_repetitions_wait_for_the_interval() -> None:
    ledger = Ledger(interval=10)
    ledger.say(saying(), wall=NOON)
    ledger.due(now=0.0)
    ledger.say(saying(), wall=NOON + timedelta(seconds=1))
    assert ledger.due(now=9.9) == []
    ((_, tally),) = ledger.due(now=10.0)
    assert (tally.count, tally.written, tally.first, tally.last) == (2, 1, NOON, NOON + timedelta(seconds=1))


def test_different_messages_are_different_events() -> None:
    ledger = Ledger()
    ledger.say(saying("a"), wall=NOON)
    ledger.say(saying("b"), wall=NOON)
    assert len(ledger.due(now=0.0)) == 2


def test_memory_is_bounded_and_the_oldest_is_forgotten() -> None:
    ledger = Ledger(limit=10)
    for number in range(100):
        ledger.say(saying(str(number)), wall=NOON)
    assert len(ledger) == 10
    assert [said.message for said, _ in ledger.due(now=0.0)] == [str(number) for number in range(90, 100)]


def test_a_repetition_finds_its_event_by_name() -> None:
    ledger = Ledger(interval=1)
    ledger.say(saying(), wall=NOON)
    (first,) = ledger.due(now=0.0)
    ledger.say(saying(), wall=NOON + timedelta(seconds=5))
    (second,) = ledger.due(now=5.0)
    one, two = (event(*each, component="op") for each in (first, second))
    assert one["metadata"] == two["metadata"]
    assert (one["count"], two["count"]) == (1, 2)
    assert two["lastTimestamp"] == "2026-01-02T12:00:05Z"
    assert one["involvedObject"]["uid"] == "u1"
