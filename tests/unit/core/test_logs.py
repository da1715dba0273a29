"""What a log line may hold and cost, whatever failed."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.logs import captured

from pointsman.core.logs import Encoding, at_work, configure_logs, get_logger

SECRET = "Bearer sesame"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with captured():
        yield


def fail(payload: str) -> int:
    token = SECRET  # noqa: F841 - what a traceback with locals would show
    return int(payload)


def test_a_line_says_when_how_bad_what_and_then_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    with at_work(key="default/one"):
        get_logger("a.module").warning("two words", count=3, path="/x", text="a b", none="")
    when, line = capsys.readouterr().err.split(" ", 1)
    assert datetime.fromisoformat(when).tzinfo is UTC
    assert line == "warning two words module=a.module key=default/one count=3 path=/x text='a b' none=''\n"


def test_a_machine_gets_one_object_a_line_and_values_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(encoding="json")
    get_logger("a.module").info("event", count=3, flags=["a"], odd=Path("x"))
    said = json.loads(capsys.readouterr().err)
    assert said.pop("timestamp").endswith("Z")
    odd = repr(Path("x"))
    assert said == {
        "level": "info",
        "event": "event",
        "module": "a.module",
        "count": 3,
        "flags": ["a"],
        "odd": odd,
    }


@pytest.mark.parametrize(("verbosity", "heard"), [(0, "we"), (2, "iwe"), (3, "iwe"), (4, "diwe")])
def test_verbosity_is_klogs(verbosity: int, heard: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(verbosity=verbosity)
    log = get_logger("m")
    for say, event in ((log.debug, "d"), (log.info, "i"), (log.warning, "w"), (log.error, "e")):
        say(event)
    assert "".join(line.split()[2] for line in capsys.readouterr().err.splitlines()) == heard


async def test_what_a_task_is_at_stays_with_it() -> None:
    async def work(name: str) -> None:
        with at_work(key=name):
            await asyncio.sleep(0)
            get_logger("m").info(name)

    with captured() as events:
        await asyncio.gather(work("a"), work("b"))
        get_logger("m").info("none")
    assert [(event["event"], event.get("key")) for event in events] == [("a", "a"), ("b", "b"), ("none", None)]


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
