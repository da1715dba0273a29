"""Fixtures of the Envoy tests: where Envoy is, and stacks that end with the test, whatever happened in it."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.envoy.harness import Lab, Wishes

from pointsman.local.envoy import find

StartLab = Callable[..., Awaitable[Lab]]


@pytest.fixture(scope="session")
def envoy() -> Path:
    return find(os.environ, say=print)


@pytest.fixture
async def start_lab(envoy: Path, tmp_path: Path) -> AsyncIterator[StartLab]:
    """Return a function that starts a stack of the test's own."""
    labs: list[Lab] = []

    async def start(**wishes: Any) -> Lab:
        lab = Lab(tmp_path, envoy=envoy, wishes=Wishes(**wishes))
        labs.append(lab)
        await lab.start()
        return lab

    yield start
    for lab in labs:
        lab.close()


@pytest.fixture(scope="module")
def lab(envoy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return a stack that the tests of a module share: they may send what they like, and break nothing."""
    simulator = ("--max-model-len", "10000000", "--max-num-seqs", "256", "--inter-token-latency", "20ms")
    shared = Lab(tmp_path_factory.mktemp("lab"), envoy=envoy, wishes=Wishes(simulator=simulator))
    try:
        asyncio.run(shared.start())
        yield shared
    finally:
        shared.close()
