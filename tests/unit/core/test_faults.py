"""What is told of an exception, and how often."""

import errno
from typing import Any

from pointsman.core.faults import Faults, describe, sentence

SECRET = "Bearer sesame"


def test_a_flood_of_alike_is_a_few_lines_and_a_number() -> None:
    now = 0.0
    faults = Faults(clock=lambda: now)
    seen: list[dict[str, Any]] = []

    def raised(payload: str) -> None:
        try:
            int(payload)
        except ValueError as error:
            event: dict[str, Any] = {"event": "a call raised", "exc_info": error}
            if faults.tell(event):
                seen.append(event)

    for number in range(1000):
        raised(f"x{number}")
    assert len(seen) == 3
    now = 11.0
    raised("y")
    assert len(seen) == 4 and seen[-1]["left_out"] == 997


def test_what_speaks_of_code_is_told_and_groups_are_opened() -> None:
    missing = AttributeError("'int' object has no attribute 'x'")
    assert describe(ExceptionGroup("g", [missing]))["error"] == f"AttributeError: {missing}"
    assert describe(OSError(errno.ENOSPC, "No space left on device", "/x"))["error"].endswith("No space left on device")
    assert "sesame" not in sentence(KeyError(SECRET))
