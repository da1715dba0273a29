"""Fixtures of the Envoy tests: where Envoy is, and stacks that end with the test, whatever happened in it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.envoy.commands import Run
from tests.envoy.harness import Lab, Wishes

from pointsman.local.envoy import find
from pointsman.render.envoy.limits import GatewayLimits

StartLab = Callable[..., Awaitable[Lab]]
STRICT = GatewayLimits(headers_timeout=2, request_timeout=2, connection_idle_timeout=3, connections=300)


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
    yield from _shared(Lab(tmp_path_factory.mktemp("lab"), envoy=envoy, wishes=Wishes(simulator=simulator)))


@pytest.fixture(scope="module", params=["FailClose", "FailOpen"])
def strict_lab(request: pytest.FixtureRequest, envoy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return a stack that the tests of a module share, whose gateway has little patience, in each failure mode."""
    wishes = Wishes(failure_mode=request.param, limits=STRICT, replicas=2, simulator=("--inter-token-latency", "20ms"))
    yield from _shared(Lab(tmp_path_factory.mktemp("strict"), envoy=envoy, wishes=wishes))


def _shared(lab: Lab) -> Iterator[Lab]:
    try:
        asyncio.run(lab.start())
        yield lab
    finally:
        lab.close()


@pytest.fixture
def run(envoy: Path, tmp_path: Path) -> Iterator[Run]:
    """Return a function that runs one command, in an environment where nothing else runs."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "POINTSMAN_ENVOY": str(envoy)}

    def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "-m", "pointsman", *arguments]
        return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=90, check=False)

    yield command
    command("down")
