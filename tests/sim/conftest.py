"""Simulators for the tests of this folder."""

from collections.abc import Iterator
from typing import IO

import pytest
from tests.sim.simulator import Simulator, Start


@pytest.fixture
def start() -> Iterator[Start]:
    """Start simulators with the given flags; all are stopped afterwards."""
    running: list[Simulator] = []

    def begin(*flags: str, env: dict[str, str] | None = None, log: IO[str] | None = None) -> Simulator:
        running.append(Simulator(*flags, env=env, log=log))
        return running[-1].wait_ready()

    yield begin
    for each in running:
        each.stop()


@pytest.fixture(scope="module")
def shared() -> Iterator[Simulator]:
    """One simulator in echo mode for tests that leave nothing behind."""
    simulator = Simulator("--mode", "echo", "--max-num-seqs", "64").wait_ready()
    yield simulator
    simulator.stop()
