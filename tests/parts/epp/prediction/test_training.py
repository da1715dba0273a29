"""A training sidecar on loopback: samples arrive in batches, and what it does not take is counted."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

from tests.clock import Clock
from tests.logs import captured
from tests.parts.epp.prediction.test_questions import ROW
from tests.parts.epp.service import Service, serving
from tests.waiting import until

from pointsman.core.addresses import ServiceAddress
from pointsman.epp.prediction.breaker import FAILURES, SECONDS
from pointsman.epp.prediction.training import Trainer
from pointsman.epp.request.predictions import Sample, Samples, TrainingService


class Plugin:
    """Has samples."""

    def __init__(self, port: int, *, most: int = 10) -> None:
        self.training: TrainingService | None = TrainingService(
            address=ServiceAddress("127.0.0.1", port), every_seconds=0.01, seconds=30.0
        )
        self.samples = Samples(most)

    def add(self, count: int) -> None:
        for at in range(count):
            self.samples.add(Sample(features=ROW, at=0.0, ttft_ms=1.0 + at))

    def has_lost(self, count: int) -> bool:
        return self.samples.results["lost"] == count


@asynccontextmanager
async def training(*, most: int = 10) -> AsyncIterator[tuple[Plugin, Service, Clock]]:
    clock = Clock(0.0)
    async with serving(lambda _body: b'{"message":"ok"}', status="202 Accepted") as sidecar:
        plugin = Plugin(sidecar.port, most=most)
        trainer = Trainer(lambda: [plugin], clock=clock, wall=lambda: datetime(2026, 1, 1, tzinfo=UTC))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(trainer.run())
            yield plugin, sidecar, clock
            task.cancel()


async def test_what_has_come_since_is_one_message() -> None:
    async with training() as (plugin, sidecar, _):
        plugin.add(4)
        await until(lambda: plugin.samples.results["sent"] == 4)
        plugin.add(12)
        await until(lambda: plugin.samples.results["sent"] == 14)
    assert sidecar.heads[0].startswith(b"POST /add_training_data_bulk HTTP/1.1\r\n")
    entries = [json.loads(body)["entries"] for body in sidecar.bodies]
    assert [[each["actual_ttft_ms"] for each in batch] for batch in entries] == [
        [1.0, 2.0, 3.0, 4.0],
        [float(at) for at in range(3, 13)],
    ], "and of too many the newest"
    assert plugin.samples.results == {"sent": 14, "dropped": 2}
    assert entries[0][0]["timestamp"] == "2026-01-01T00:00:00Z"


async def test_a_sidecar_that_takes_nothing_costs_samples_and_is_left_alone() -> None:
    async with training() as (plugin, sidecar, clock):
        with captured() as lines:
            sidecar.habit = "500"
            for count in range(1, FAILURES + 1):
                plugin.add(1)
                await until(partial(plugin.has_lost, count))
            sidecar.habit = ""
            plugin.add(3)
            heard = len(sidecar.bodies)
            await asyncio.sleep(0.1)  # several rounds
            assert len(sidecar.bodies) == heard
            clock.now += SECONDS
            await until(lambda: plugin.samples.results["sent"] == 3)
        (line,) = lines
    assert (line["event"], line["reason"]) == ("predictor: the training sidecar takes no samples", "it answered 500")


async def test_a_sidecar_that_hangs_holds_nobody_up_but_the_trainer() -> None:
    async with training() as (plugin, sidecar, _):
        sidecar.habit = "hang"
        plugin.add(1)
        await until(lambda: sidecar.bodies)
        plugin.add(100)
        assert plugin.samples.results == {"dropped": 90}
