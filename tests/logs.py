"""What was logged, for tests that look at it or that let a command set up the logs of their process."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from pointsman.core.faults import Faults
from pointsman.core.lines import Event
from pointsman.core.logs import Journal, keep_by


@contextmanager
def captured() -> Iterator[list[Event]]:
    """Collect every event, also of many alike; afterwards logs are what they were before."""
    events: list[Event] = []
    hours = count(0, 3600)
    before = keep_by(Journal(least=0, faults=Faults(clock=hours.__next__, messages=True), write=events.append))
    try:
        yield events
    finally:
        keep_by(before)
