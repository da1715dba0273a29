"""Prediction sidecars on loopback with every bad habit: a request has its predictions, or None in time."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.clock import Clock
from tests.logs import captured
from tests.parts.epp.service import HABITS, Service, serving

from pointsman.core.addresses import ServiceAddress
from pointsman.epp.prediction.breaker import FAILURES, SECONDS
from pointsman.epp.prediction.questions import Predictor
from pointsman.epp.request.predictions import Features, Predicted, PredictionQuestion, PredictionService

ROW = Features(
    kv_cache_percentage=0.0,
    input_token_length=0,
    num_request_waiting=0,
    num_request_running=0,
    num_tokens_generated=1,
    prefix_cache_score=0.0,
)


def by_length(question: bytes) -> bytes:
    """Predict as many milliseconds as the prompt has tokens."""
    rows = json.loads(question)["requests"]
    return json.dumps({"predictions": [{"ttft_ms": row["input_token_length"], "tpot_ms": 1} for row in rows]}).encode()


class Stand:
    """Who asks, and the sidecars that are asked."""

    def __init__(self, predictor: Predictor, clock: Clock, *sidecars: Service) -> None:
        self.predictor, self.clock, self.sidecars = predictor, clock, sidecars

    def service(self, *, seconds: float = 30.0, dispatches: int = 4) -> PredictionService:
        addresses = tuple(ServiceAddress("127.0.0.1", each.port, "/base") for each in self.sidecars)
        return PredictionService(addresses=addresses, seconds=seconds, dispatches=dispatches)

    def question(self, *lengths: int, service: PredictionService | None = None) -> PredictionQuestion:
        return PredictionQuestion(
            service=service or self.service(),
            answer="told",
            targets=tuple(f"10.0.0.{at}:8000" for at in range(len(lengths))),
            rows=tuple(msgspec.structs.replace(ROW, input_token_length=length) for length in lengths),
        )

    async def ask(self, *lengths: int, service: PredictionService | None = None) -> Sequence[Predicted] | None:
        found: asyncio.Future[Sequence[Predicted] | None] = asyncio.get_running_loop().create_future()
        self.predictor.ask(self.question(*lengths, service=service), found.set_result)
        return await found


@asynccontextmanager
async def standing(*, sidecars: int = 1) -> AsyncIterator[Stand]:
    clock = Clock()
    predictor = Predictor(clock=clock, rng=random.Random(1))
    async with serving(by_length) as one, serving(by_length) as other, asyncio.TaskGroup() as group:
        predictor.begin(group)
        yield Stand(predictor, clock, *(one, other)[:sidecars])


async def test_all_candidates_are_asked_about_in_one_message_on_one_connection() -> None:
    async with standing() as stand:
        for _ in range(3):
            assert await stand.ask(7, 9) == [(7.0, 1.0), (9.0, 1.0)]
        (sidecar,) = stand.sidecars
        assert sidecar.connections == 1
        assert sidecar.heads[0].startswith(b"POST /base/predict/bulk/strict HTTP/1.1\r\nhost: 127.0.0.1:")
        assert [len(json.loads(body)["requests"]) for body in sidecar.bodies] == [2, 2, 2]
        assert stand.predictor.results == {"answered": 3}


async def test_questions_that_come_meanwhile_are_put_together() -> None:
    async with standing() as stand:
        service = stand.service(dispatches=1)
        answers = await asyncio.gather(*(stand.ask(at, 1000 + at, service=service) for at in range(50)))
        assert answers == [[(float(at), 1.0), (1000.0 + at, 1.0)] for at in range(50)]
        assert len(stand.sidecars[0].bodies) <= 2


async def test_what_does_not_fit_into_one_message_goes_with_the_next() -> None:
    async with standing() as stand:
        service = stand.service(dispatches=1)
        await asyncio.gather(*(stand.ask(*range(400), service=service) for _ in range(7)))
        sizes = [len(json.loads(body)["requests"]) for body in stand.sidecars[0].bodies]
        assert sum(sizes) == 2800
        assert max(sizes) == 800
        assert len(await stand.ask(*range(1500)) or ()) == 1500, "one question is never cut"


@pytest.mark.parametrize(("habit", "result"), HABITS.items())
async def test_a_bad_sidecar_costs_its_predictions_only(habit: str, result: str) -> None:
    async with standing() as stand:
        stand.sidecars[0].habit = habit
        seconds = 0.2 if result == "timeout" else 30.0
        assert await stand.ask(1, service=stand.service(seconds=seconds)) is None
        assert stand.predictor.results == {result: 1}
        stand.sidecars[0].habit = ""
        assert await stand.ask(1) == [(1.0, 1.0)], "and it may get better"


async def test_a_long_answer_that_has_little_to_say_is_not_read() -> None:
    predictor = Predictor(clock=Clock(), rng=random.Random(1))
    padded = serving(lambda question: by_length(question) + b" " * 100_000)
    async with padded as sidecar, asyncio.TaskGroup() as group:
        predictor.begin(group)
        stand = Stand(predictor, Clock(), sidecar)
        assert await stand.ask(1) is None
        assert predictor.results == {"unreadable": 1}


async def test_nobody_there() -> None:
    async with standing() as stand:
        stand.sidecars[0].port = 1
        assert await stand.ask(1) is None
        assert stand.predictor.results == {"unreachable": 1}


async def test_each_request_waits_its_own_time_and_no_longer_whatever_the_others_do() -> None:
    """Those behind a question that hangs are told in their own time, not when it is their turn."""
    async with standing() as stand:
        stand.sidecars[0].habit = "hang"
        service = stand.service(seconds=0.2, dispatches=1)
        began = asyncio.get_running_loop().time()
        took: list[float] = []

        async def one() -> None:
            assert await stand.ask(1, service=service) is None
            took.append(asyncio.get_running_loop().time() - began)

        await asyncio.gather(*(one() for _ in range(200)))
        assert stand.predictor.results == {"timeout": 200}
        assert min(took) >= 0.19
        # One after another they would take 200 times as long.
        assert max(took) < 5.0


async def test_after_failures_the_sidecar_is_left_alone_until_one_question_shows_that_it_is_well() -> None:
    async with standing() as stand:
        (sidecar,) = stand.sidecars
        service = stand.service()
        sidecar.habit = "500"
        for _ in range(FAILURES):
            assert stand.predictor.asks(service)
            assert await stand.ask(1) is None
        assert not stand.predictor.asks(service)
        assert await stand.ask(1) is None, "who waited already does not wait for it"
        assert stand.predictor.results == {"refused": FAILURES, "skipped": 2}
        assert len(sidecar.bodies) == FAILURES
        stand.clock.now += SECONDS
        assert stand.predictor.asks(service)
        assert await stand.ask(1) is None, "it is still ill"
        assert not stand.predictor.asks(service)
        stand.clock.now += SECONDS
        sidecar.habit = ""
        assert stand.predictor.asks(service)
        assert await stand.ask(1) == [(1.0, 1.0)]
        assert stand.predictor.asks(service)


async def test_of_two_sidecars_the_one_that_is_well_is_asked() -> None:
    async with standing(sidecars=2) as stand:
        ill, well = stand.sidecars
        ill.habit = "500"
        for _ in range(100):
            await stand.ask(1)
        assert len(ill.bodies) == FAILURES
        assert len(well.bodies) == 100 - FAILURES


async def test_a_failure_is_told_once_and_the_next_one_a_minute_later() -> None:
    async with standing() as stand:
        (sidecar,) = stand.sidecars
        with captured() as lines:
            for habit in ("500", "", "nonsense", "500"):
                sidecar.habit = habit
                await stand.ask(1)
            stand.clock.now += 60.0
            await stand.ask(1)
        told = [(line["level"], line.get("reason")) for line in lines]
        assert told == [("warning", "it answered 500"), ("info", None), ("warning", "it answered 500")]
        assert lines[0]["event"] == "predictor: no predictions from the sidecar, the picker's own are used"
        assert lines[0]["address"] == f"127.0.0.1:{sidecar.port}"


async def test_another_service_is_asked_on_another_connection() -> None:
    async with standing() as stand:
        await stand.ask(1)
        assert await stand.ask(1, service=stand.service(seconds=20.0)) == [(1.0, 1.0)]
        assert stand.sidecars[0].connections == 2


async def test_who_has_left_is_not_told() -> None:
    told: list[object] = []
    async with standing() as stand:
        stand.sidecars[0].habit = "hang"
        forget = stand.predictor.ask(stand.question(1, service=stand.service(seconds=0.05)), told.append)
        forget()
        await asyncio.sleep(0.1)
    assert told == []
    assert stand.predictor.results == {}
