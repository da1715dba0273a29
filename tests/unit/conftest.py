"""Unit tests are pure: no sockets, no processes. Whoever opens one is told where its test belongs."""

import socket
import subprocess
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

ADVICE = (
    "{what} in tests/unit: a test of one part with its sockets or processes belongs in tests/parts, "
    "in the folder of the same name"
)


class Impure(AssertionError):
    """A unit test did what only other tests may do."""


@pytest.fixture(autouse=True)
def _pure(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse sockets and processes; the test fails also where the code under test swallows the refusal."""
    seen: list[str] = []

    def refuse(what: str) -> NoReturn:
        seen.append(what)
        raise Impure(ADVICE.format(what=what))

    def refusing(what: str) -> Any:
        return lambda *_args, **_options: refuse(what)

    for name in ("bind", "connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refusing("a socket"))
    monkeypatch.setattr(subprocess.Popen, "__init__", refusing("a process"))
    yield
    if seen:
        pytest.fail(ADVICE.format(what=seen[0]))
