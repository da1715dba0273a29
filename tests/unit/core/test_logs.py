"""What a log line may hold and cost, whatever failed."""

import errno
import io
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from pointsman.core import faults
from pointsman.core.logs import Bounded, Encoding, Faults, Lines, configure_logs, cut, get_logger

SECRET = "Bearer sesame"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def fail(payload: str) -> int:
    token = SECRET  # noqa: F841 - what a traceback with locals would show
    return int(payload)


@pytest.mark.parametrize("encoding", ["console", "json"])
def test_an_exception_is_one_line_without_what_was_sent(encoding: Encoding, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(encoding=encoding)
    try:
        fail("not a number but a prompt")
    except ValueError:
        get_logger("test").exception("a call raised", path="/" + "x" * 5000, bell="\x1b[2J\nforged line")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError" in line and "core/test_logs.py:" in line and "fail" in line
    assert "sesame" not in line and "prompt" not in line and "\x1b[2J" not in line
    assert len(line) < 2500
    if encoding == "json":
        assert json.loads(line)["error"] == "ValueError"


def test_a_flood_of_alike_is_a_few_lines_and_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    processor = Faults(clock=lambda: now)
    seen: list[dict[str, Any]] = []

    def raised(payload: str) -> None:
        try:
            fail(payload)
        except ValueError as error:
            try:
                seen.append(dict(processor(None, "error", {"event": "a call raised", "exc_info": error})))
            except structlog.DropEvent:
                pass

    for number in range(1000):
        raised(f"x{number}")
    assert len(seen) == 3
    now = 11.0
    raised("y")
    assert len(seen) == 4 and seen[-1]["left_out"] == 997


def test_a_thousand_exceptions_cost_little(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    log = get_logger("test")
    started = time.perf_counter()
    for _ in range(1000):
        try:
            fail("9" * 5000)
        except ValueError:
            log.exception("a call raised")
    assert time.perf_counter() - started < 2  # rich took 20 ms for each of them
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_messages_are_shown_where_someone_asked_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(verbosity=4)
    try:
        fail("a typo")
    except ValueError:
        get_logger("test").exception("a call raised")
    assert "a typo" in capsys.readouterr().err


def test_what_speaks_of_code_is_told_and_groups_are_opened() -> None:
    missing = AttributeError("'int' object has no attribute 'x'")
    assert faults.describe(ExceptionGroup("g", [missing]))["error"] == f"AttributeError: {missing}"
    assert faults.describe(OSError(errno.ENOSPC, "No space left on device", "/x"))["error"].endswith(
        "No space left on device"
    )
    assert "sesame" not in faults.sentence(KeyError(SECRET))


class Full(io.StringIO):
    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    file = Full()
    lines = Lines(file)
    lines.msg("one")
    lines.msg("two")
    file.full = False
    lines.msg("three")
    lines.msg("four")
    assert file.getvalue().splitlines() == ["three", "2 log lines before this one could not be written", "four"]
    file.close()
    lines.msg("five")


def test_long_texts_are_cut_except_where_their_writer_did() -> None:
    assert cut("a" * 2000) == "a" * 1000 + "… (2000 characters)"
    assert cut("a\nb") == "a\\nb"
    assert isinstance(Bounded("x"), str)
